"""The checkpoint store's figures, both sides in one run: ``python -m benchmarks.store`` (see ``__main__``)."""
