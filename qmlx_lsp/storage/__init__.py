"""What survives: the conversation log, and the store of model states with its index and its retention.

Everything is synchronous and is called from a storage thread, never from an event loop; only
``StoredState.fill`` is called from the engine's thread.

Invariant (conversations are not cache): nothing in here ever deletes a conversation.
Invariant (checkpoints may be lost, never wrong): a checkpoint that is doubtful in any way is a miss.
"""
