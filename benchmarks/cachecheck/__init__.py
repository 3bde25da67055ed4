"""Tests any server for three bugs of prefix caches: ``python -m benchmarks.cachecheck URL|qmlx``."""
