"""State to host buffers and back, by memory copies; no file is opened here.

An evaluated ``mx.array`` is a buffer: rows leave by one host copy, and a restore reads straight into arrays that
are allocated zeroed, with headroom. Views are made on the engine thread, used at once and dropped: a view (or a
slice) kept over the next append makes MLX copy the whole cache. Zeroed matters: attention kernels may read rows
past the end of the slice they are given, and bits that happen to be NaN would spread.

Invariant: a restore fills fresh arrays and installs them only when all of it has been verified.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from qmlx_lsp.engine.mlx.caches import adapter, parts
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
        _copy_rows(f"{part}.{name}", array, start, position)
        for part, cache in parts(caches).items()
        for name, array in adapter(cache).rows(cache).items()
    )
    if not with_snapshot:
        return StateCopy(start, position, rows, None)
    whole = tuple(
        _copy_whole(f"{part}.{name}", array)
        for part, cache in parts(caches).items()
        for name, array in adapter(cache).whole(cache).items()
    )
    return StateCopy(start, position, rows, whole)


def settle(caches: Sequence[Any]) -> None:
    """Arrange every cache as a restore would, and evaluate it."""
    single = parts(caches).values()
    for cache in single:
        adapter(cache).settle(cache)
    arrays: list[mx.array] = []
    for cache in single:
        arrays += [*adapter(cache).rows(cache).values(), *adapter(cache).whole(cache).values()]
    mx.eval(arrays)


@dataclass(frozen=True, slots=True)
class Layout:
    """What a model's state is made of: each array's dtype, heads and width (rows) or dtype and shape (snapshot).

    ``windows`` holds the most rows that a cache which forgets keeps, by the name of the part.
    """

    rows: tuple[RowSpec, ...]
    snapshot: tuple[TensorSpec, ...]
    windows: Mapping[str, int]

    @property
    def row_bytes(self) -> int:
        """Bytes that each token's rows take, all layers together."""
        return sum(spec.heads * spec.row_bytes for spec in self.rows)

    def snapshot_at(self, position: int) -> tuple[TensorSpec, ...]:
        """The snapshot's tensors at ``position``: those of a cache which forgets grow until it is full."""
        return tuple(self._sized(spec, position) for spec in self.snapshot)

    def _sized(self, spec: TensorSpec, position: int) -> TensorSpec:
        window = self.windows.get(spec.name.rpartition(".")[0])
        if window is None:
            return spec
        batch, heads, _, width = spec.shape
        return TensorSpec(spec.name, spec.dtype, (batch, heads, min(position, window), width))


def layout(caches: Sequence[Any]) -> Layout:
    """The layout of ``caches``, which have read something (evaluated or not)."""
    rows, whole, windows = [], [], {}
    for part, cache in parts(caches).items():
        found = adapter(cache)
        rows += [_row_spec(f"{part}.{name}", array) for name, array in found.rows(cache).items()]
        whole += [_whole_spec(f"{part}.{name}", array) for name, array in found.whole(cache).items()]
        if (window := found.window(cache)) is not None:
            windows[part] = window
    return Layout(tuple(rows), tuple(whole), windows)


def load_state(caches: Sequence[Any], stored: StoredState, wanted: Layout) -> int:
    """Fill the fresh ``caches`` from ``stored``; returns the bytes read.

    Raises:
        CheckpointRejected: it cannot be trusted (checksums, ids) or its tensors do not fit these caches.
    """
    _check_fit(stored, wanted)
    capacity = -(-stored.position // CAPACITY_STEP) * CAPACITY_STEP + HEADROOM_TOKENS
    snapshot = tuple(stored.snapshot or ())
    row_arrays: list[mx.array] = []
    whole_arrays: list[mx.array] = []

    def lent_rows() -> Iterator[RowBuffer]:
        for spec in stored.rows:
            yield RowBuffer(spec, capacity, _lent(spec.tensor(capacity), row_arrays))

    read = stored.fill(lent_rows(), (_lent(spec, whole_arrays) for spec in snapshot))
    names = [*(row.name for row in stored.rows), *(spec.name for spec in snapshot)]
    single = parts(caches)
    arrays: dict[str, dict[str, mx.array]] = {part: {} for part in single}
    for name, array in zip(names, [*row_arrays, *whole_arrays], strict=True):
        part, _, local = name.rpartition(".")
        arrays[part][local] = array
    for part, cache in single.items():
        adapter(cache).install(cache, arrays[part], stored.position)
    return read


def _lent(spec: TensorSpec, arrays: list[mx.array]) -> memoryview:
    """The memory of one more array, zeroed. Made when the store takes it, for zeroing is as slow as reading."""
    arrays.append(mx.zeros(spec.shape, dtype=_dtype(spec.dtype)))
    mx.eval(arrays[-1])
    return _bytes(arrays[-1]).data


def _check_fit(stored: StoredState, wanted: Layout) -> None:
    """The checkpoint must hold exactly what this model's caches hold at that position."""
    if stored.position < 1:
        raise CheckpointRejected("foreign", "The checkpoint holds no tokens.")
    if tuple(stored.rows) != wanted.rows:
        raise CheckpointRejected("foreign", "The checkpoint's rows are not those of this model.")
    if wanted.snapshot and stored.snapshot is None:
        raise CheckpointRejected("foreign", "The checkpoint has no snapshot, which this model needs.")
    if tuple(stored.snapshot or ()) != wanted.snapshot_at(stored.position):
        raise CheckpointRejected("foreign", "The checkpoint's snapshot is not one of this model.")


def _copy_rows(name: str, array: mx.array, start: int, end: int) -> Tensor:
    spec = _row_spec(name, array)
    view = _bytes(array).reshape(spec.heads, -1, spec.row_bytes)[:, start:end, :]
    # Flat, because a view with no rows in it cannot be cast.
    return Tensor(spec.tensor(end - start), np.array(view, order="C").reshape(-1).data)


def _copy_whole(name: str, array: mx.array) -> Tensor:
    return Tensor(_whole_spec(name, array), np.array(_bytes(array)).data)


def _row_spec(name: str, array: mx.array) -> RowSpec:
    return RowSpec(name, _NAMES[array.dtype], array.shape[1], array.shape[3])


def _whole_spec(name: str, array: mx.array) -> TensorSpec:
    return TensorSpec(name, _NAMES[array.dtype], tuple(array.shape))


def _bytes(array: mx.array) -> NDArray[np.uint8]:
    """The array's own memory as bytes, without a copy; for use at once (see the module's docstring)."""
    exporter: Any = array  # MLX's stubs do not say that an array is a buffer
    return np.frombuffer(exporter, dtype=np.uint8)


def _dtype(name: str) -> mx.Dtype:
    if name not in _DTYPES:
        raise CheckpointRejected("foreign", f"The checkpoint has tensors of an unknown type {name!r}.")
    return _DTYPES[name]
