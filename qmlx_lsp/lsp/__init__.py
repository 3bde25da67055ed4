"""What editors speak. The only package that imports pygls and lsprotocol; one file per feature.

Everything is converted here, at the edge: positions, URIs, nulls. Below, there are only the plain data of
``session``.

Invariant: exactly one answer per request, cancelled ones included; -32800 only after the partial turn is recorded.
Invariant: handlers of document notifications are plain functions. pygls runs async handlers as tasks, and two
changes of one document would overtake each other.
"""
