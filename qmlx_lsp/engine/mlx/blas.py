"""A fast BLAS for MLX on Linux CPUs.

MLX's Linux wheel is linked against a reference BLAS; OpenBLAS, loaded into the process with global symbols before
MLX, takes its place and multiplies float32 matrices about 30 times faster. It comes from ``ngsolve-openblas`` on
x86-64 and from ``cmeel-openblas`` on ARM: on x86-64 the latter (0.3.31) has AVX-512 instructions in its common code
and kills the process on processors without them (measured on an AMD EPYC, Zen 3).

With it, results differ by rounding when the same rows are computed in other groups; tests that compare bits turn
it off with ``QMLX_BLAS=off``.

OpenBLAS needs ``libgfortran.so.5``, which a bare Debian has not and no package index carries under that name. MLX's
wheel carries it under a name of its own, so where the system has none, a copy of that one is given its usual name
(in the library's own name field, which is long enough) and loaded first.

Invariant: nothing is loaded once MLX has been imported; it would not be used, and would hide that it is not.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from importlib import metadata
from pathlib import Path

FORTRAN = "libgfortran.so.5"
# Package and library, by machine.
OPENBLAS = {
    "x86_64": ("ngsolve-openblas", "ngsolve_openblas/libopenblas*.so"),
    "aarch64": ("cmeel-openblas", "cmeel.prefix/lib/libopenblas.so.0"),
}
_loaded: list[ctypes.CDLL] = []


def preload(folder: Path) -> str | None:
    """Load OpenBLAS where it helps; the path that was loaded, or None.

    None on macOS, with ``QMLX_BLAS=off``, without the package, or when MLX is in the process already. ``folder``
    (made if needed) holds the renamed Fortran library, if one has to be made.
    """
    if sys.platform != "linux" or os.environ.get("QMLX_BLAS", "").lower() == "off" or "mlx.core" in sys.modules:
        return None
    path = _find(*OPENBLAS.get(platform.machine(), ("", "")))
    if path is None:
        return None
    # Where neither way works (built for another processor, no Fortran), MLX's own BLAS still does, slowly.
    loaded = _load(path) or (_load_fortran(folder) and _load(path))
    return str(path) if loaded else None


def _load(path: Path) -> bool:
    try:
        _loaded.append(ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL))
    except OSError:
        return False
    return True


def _load_fortran(folder: Path) -> bool:
    ours = _find("mlx-cpu", "mlx_cpu.libs/libgfortran-*.so.5*")
    if ours is None:
        return False
    for needed in sorted(ours.parent.glob("libquadmath-*.so*")):
        _load(needed)
    copy = folder / f"{ours.stem}-{ours.stat().st_size}.{FORTRAN}"
    if not copy.exists() and not _rename_copy(ours, copy):
        return False
    return _load(copy)


def _rename_copy(library: Path, copy: Path) -> bool:
    """``copy`` becomes ``library`` with the usual name in its name field. False when the field is not as expected."""
    content = library.read_bytes()
    old, new = library.name.encode() + b"\0", FORTRAN.encode()
    if content.count(old) != 1:
        return False
    try:
        copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = copy.with_suffix(f".{os.getpid()}")
        draft.write_bytes(content.replace(old, new.ljust(len(old), b"\0")))
        draft.rename(copy)
    except OSError:
        return False
    return True


def _find(package: str, pattern: str) -> Path | None:
    """The first file of an installed package that matches ``pattern`` (below site-packages)."""
    try:
        base = Path(str(metadata.distribution(package).locate_file("."))) if package else None
    except metadata.PackageNotFoundError:
        return None
    return next(iter(sorted(base.glob(pattern))), None) if base else None
