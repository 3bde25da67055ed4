"""Processes: the connector that editors start, the socket between, the daemon behind it.

Invariant: the connector imports the standard library, ``paths``, ``settings`` and ``errors`` only, so that it is
ready in about 100 ms.
"""
