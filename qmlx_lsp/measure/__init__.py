"""What this machine does, measured, and what to expect of it: ``qmlx-lsp doctor --bench``.

It must never touch what the program keeps: its files lie in a folder of their own, which is gone afterwards.

Invariant: a figure that could not be measured is one that says why; none keeps the next one from being made.
"""
