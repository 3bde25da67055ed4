"""The plain data in which a model's state travels between the engine and the store.

``engine`` makes and takes these, ``storage`` writes and reads them, ``session`` carries them from one to the
other; so neither of the two has to know the other. No MLX object is ever in here: only names, sizes and bytes.

A state of ``n`` tokens has two parts (see the words *segment* and *snapshot* in ARCHITECTURE.md):

* **rows**: tensors with one row per token, head-major ``[1, heads, tokens, width]``. Any range ``[a, b)`` can be
  cut out of them and put together again with its neighbours.
* **snapshot**: tensors that belong to exactly one position and cannot be cut (recurrent state, window caches).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

# Bytes per element of the safetensors dtypes that a cache can have.
DTYPE_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U32": 4, "U8": 1, "BOOL": 1}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, safetensors dtype (a key of ``DTYPE_BYTES``) and shape of one tensor."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor on the host: ``data`` is C-contiguous and holds ``spec.nbytes`` bytes that nobody changes."""

    spec: TensorSpec
    data: memoryview


@dataclass(frozen=True, slots=True)
class RowSpec:
    """One row tensor of a model, whatever its length: ``[1, heads, tokens, width]`` of ``dtype``."""

    name: str
    dtype: str
    heads: int
    width: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one head's row."""
        return self.width * DTYPE_BYTES[self.dtype]

    def tensor(self, tokens: int) -> TensorSpec:
        return TensorSpec(self.name, self.dtype, (1, self.heads, tokens, self.width))


@dataclass(frozen=True, slots=True)
class StateCopy:
    """Host copy of rows ``[start, end)`` and, where the model needs one, of the snapshot at ``end``.

    ``rows`` are in the model's fixed order, each ``[1, heads, end - start, width]``. ``snapshot`` is None for a
    model whose whole state is rows.
    """

    start: int
    end: int
    rows: tuple[Tensor, ...]
    snapshot: tuple[Tensor, ...] | None

    @property
    def nbytes(self) -> int:
        return sum(t.spec.nbytes for t in (*self.rows, *(self.snapshot or ())))


@dataclass(frozen=True, slots=True)
class RowBuffer:
    """Writable memory for one row tensor, head-major with room for ``capacity`` tokens.

    Row ``r`` of head ``h`` starts at byte ``(h * capacity + r) * spec.row_bytes`` of ``data``. The memory is lent
    for the length of one call of ``StoredState.fill`` and must not be kept.
    """

    spec: RowSpec
    capacity: int
    data: memoryview


class StoredState(Protocol):
    """A checkpoint that has been found and is held open (leased), ready to be read."""

    @property
    def position(self) -> int:
        """Number of tokens the state holds."""

    @property
    def rows(self) -> Sequence[RowSpec]:
        """The row tensors, in the model's fixed order."""

    @property
    def snapshot(self) -> Sequence[TensorSpec] | None:
        """The snapshot's tensors, or None when the state is rows only."""

    def fill(self, rows: Iterable[RowBuffer], snapshot: Iterable[memoryview]) -> int:
        """Read rows ``[0, position)`` into ``rows`` and the snapshot into ``snapshot``; return the bytes read.

        Both may be made while they are taken: that happens on the calling thread, in order, rows first, and what has
        been taken is filled meanwhile. So the caller can allocate one tensor while the disk reads the one before it.
        Every tensor's checksum is verified and the token ids are compared with those that were asked for.

        Raises:
            CheckpointRejected: anything is doubtful; what is in the buffers then is worthless.
        """
