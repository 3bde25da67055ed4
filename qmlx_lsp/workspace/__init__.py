"""What the editor and the disk show us: documents, positions, differences, ignore rules, what to tell of a file.

Pure: no clock, no event loop, no threads, no disk. What has to be read is read by a function that is passed in.

Invariant: positions inside are code points; an editor's own encoding is known only where its message is applied.
Invariant: a line ends at ``\\n``, ``\\r\\n`` or ``\\r``, as the protocol has it, and at nothing else.
Invariant: no message of a client, however wrong, raises here; what cannot be applied leaves the document marked.
"""
