"""The only place that imports mlx and mlx_lm. Imported late, on the engine thread.

Invariant: no MLX object leaves this package; what goes out is ints, strs, bytes and ``qmlx_lsp.state``.
"""
