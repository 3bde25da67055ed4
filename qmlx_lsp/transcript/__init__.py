"""What the model is told: entries, their token ids, and the log that only ever grows.

Pure: no clock, no disk, no event loop, no MLX.

Invariant (prefix stability): for every transcript ``t`` and entry ``e``, ``tokens(t)`` is a prefix of
``tokens(t + e)``. Rendering an entry depends on the entry and on how the log ends, on nothing else.
Invariant (tokens are truth): generated ids are kept as generated; text is for people.
"""
