"""mlx_lm.server in this process, with the BLAS that our daemon loads: ``… launch.py FOLDER ARGUMENTS``.

Started by itself it multiplies with MLX's own, some 30 times slower on Linux, and every figure would say only that.
"""

from __future__ import annotations

import sys
from pathlib import Path

from qmlx_lsp.engine.mlx import blas

if __name__ == "__main__":
    blas.preload(Path(sys.argv[1]))
    sys.argv = ["mlx_lm.server", *sys.argv[2:]]
    from mlx_lm.server import main

    main()
