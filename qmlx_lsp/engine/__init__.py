"""What computes: one thread that owns the model, and the few plain commands it is given.

Invariant: MLX objects never leave the engine thread, and only ``engine.mlx`` imports MLX. Ints, strs, bytes and
paths cross. Nothing here knows the store, the session or the editor.
"""
