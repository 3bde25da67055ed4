"""What the figures were measured on, as plain data; kept beside them."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from qmlx_lsp import __version__


def machine() -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "qmlx-lsp": __version__,
        "mlx": metadata.version("mlx"),
        "mlx-lm": metadata.version("mlx-lm"),
    }


def load() -> float:
    """Of the last minute, in processes that wanted a core."""
    return round(os.getloadavg()[0], 2)


def _processor() -> str:
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    for line in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
