"""This daemon beside mlx_lm.server, in one run: ``python -m benchmarks.sidebyside``."""
