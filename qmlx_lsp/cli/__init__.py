"""The command line: one module per verb, no logic of its own.

Invariant: every reading verb takes ``--json`` and then prints one object per line and nothing else on stdout.
Invariant: an error is one line on stderr and exit code 2; there is no traceback.
"""
