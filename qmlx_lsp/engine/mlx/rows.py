"""State to host buffers and back, by memory copies; no file is opened here.

An evaluated ``mx.array`` is a buffer: rows leave by one host copy, and a restore reads straight into arrays that
are allocated zeroed, with headroom. Views are made on the engine thread, used at once and dropped: a view (or a
slice) kept over the next append makes MLX copy the whole cache. Zeroed matters: attention kernels may read rows
past the end of the slice they are given, and bits that happen to be NaN would spread.

Invariant: a restore fills fresh arrays and installs them only when all of it has been verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from qmlx_lsp.engine.mlx.caches import adapter
from qmlx_lsp.errors import CheckpointRejected
from qmlx_lsp.state import RowBuffer, RowSpec, StateCopy, StoredState, Tensor, TensorSpec

_DTYPES = {
    "F32": mx.float32, "F16": mx.float16, "BF16": mx.bfloat16, "I64": mx.int64, "I32": mx.int32,
    "U32": mx.uint32, "U8": mx.uint8, "BOOL": mx.bool_,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}

# mlx-lm grows a full KVCache by copying it; room for the coming reply avoids that on the first append.
CAPACITY_STEP = 256
HEADROOM_TOKENS = 512


def copy_state(caches: Sequence[Any], start: int, position: int, *, with_snapshot: bool) -> StateCopy:
    """Host copy of rows ``[start, position)`` and, if wanted, of the whole snapshot at ``position``.

    Settles the caches first, so that the live state goes on as a restored one would.
    """
    settle(caches)
    rows = tuple(
        _copy_rows(f"{layer}.{name}", array, start, position)
        for layer, cache in enumerate(caches)
        for name, array in adapter(cache).rows(cache).items()
    )
    if not with_snapshot:
        return StateCopy(start, position, rows, None)
    whole = tuple(
        _copy_whole(f"{layer}.{name}", array)
        for layer, cache in enumerate(caches)
        for name, array in adapter(cache).whole(cache).items()
    )
    return StateCopy(start, position, rows, whole)


def settle(caches: Sequence[Any]) -> None:
    """Arrange every cache as a restore would, and evaluate it."""
    for cache in caches:
        adapter(cache).settle(cache)
    mx.eval([array for c in caches for array in (*adapter(c).rows(c).values(), *adapter(c).whole(c).values())])


def load_state(caches: Sequence[Any], stored: StoredState) -> int:
    """Fill the fresh ``caches`` from ``stored``; returns the bytes read.

    Raises:
        CheckpointRejected: it cannot be trusted (checksums, ids) or its tensors do not fit these caches.
    """
    capacity = -(-stored.position // CAPACITY_STEP) * CAPACITY_STEP + HEADROOM_TOKENS
    row_arrays = [mx.zeros((1, s.heads, capacity, s.width), dtype=_dtype(s.dtype)) for s in stored.rows]
    snapshot = list(stored.snapshot or ())
    whole_arrays = [mx.zeros(spec.shape, dtype=_dtype(spec.dtype)) for spec in snapshot]
    names = [spec.name for spec in (*stored.rows, *snapshot)]
    arrays: list[dict[str, mx.array]] = [{} for _ in caches]
    for name, array in zip(names, [*row_arrays, *whole_arrays], strict=True):
        layer, _, local = name.partition(".")
        if not layer.isdigit() or int(layer) >= len(caches) or not local:
            raise CheckpointRejected("foreign", f"The checkpoint has a tensor {name!r} that this model has not.")
        arrays[int(layer)][local] = array
    _check_fit(caches, stored)
    mx.eval(row_arrays, whole_arrays)
    read = stored.fill(
        [
            RowBuffer(spec, capacity, memoryview(_bytes(array)))
            for spec, array in zip(stored.rows, row_arrays, strict=True)
        ],
        [memoryview(_bytes(array)) for array in whole_arrays],
    )
    for cache, found in zip(caches, arrays, strict=True):
        adapter(cache).install(cache, found, stored.position)
    return read


def _check_fit(caches: Sequence[Any], stored: StoredState) -> None:
    """Every layer must find in the checkpoint what its class needs, and nothing else."""
    rows = {spec.name for spec in stored.rows}
    for layer, cache in enumerate(caches):
        if not adapter(cache).snapshot and {f"{layer}.k", f"{layer}.v"} - rows:
            raise CheckpointRejected("foreign", f"The checkpoint has no rows for layer {layer}.")
    if any(adapter(cache).snapshot for cache in caches) and stored.snapshot is None:
        raise CheckpointRejected("foreign", "The checkpoint has no snapshot, which this model needs.")


def _copy_rows(name: str, array: mx.array, start: int, end: int) -> Tensor:
    _, heads, capacity, width = array.shape
    spec = RowSpec(name, _NAMES[array.dtype], heads, width)
    view = _bytes(array).reshape(heads, capacity, spec.row_bytes)[:, start:end, :]
    return Tensor(spec.tensor(end - start), memoryview(np.array(view, order="C")).cast("B"))


def _copy_whole(name: str, array: mx.array) -> Tensor:
    spec = TensorSpec(name, _NAMES[array.dtype], tuple(array.shape))
    return Tensor(spec, memoryview(np.array(_bytes(array))))


def _bytes(array: mx.array) -> NDArray[np.uint8]:
    """The array's own memory as bytes, without a copy; for use at once (see the module's docstring)."""
    return np.frombuffer(array, dtype=np.uint8)


def _dtype(name: str) -> mx.Dtype:
    if name not in _DTYPES:
        raise CheckpointRejected("foreign", f"The checkpoint has tensors of an unknown type {name!r}.")
    return _DTYPES[name]
