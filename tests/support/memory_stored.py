"""A checkpoint in memory: pieces that ``copy_state`` gave, put together as the store would."""

from collections.abc import Iterable, Sequence

from qmlx_lsp.errors import CheckpointRejected
from qmlx_lsp.state import RowBuffer, RowSpec, StateCopy, TensorSpec


class MemoryStored:
    """Pieces ``[0, a) [a, b) …``; the snapshot is the last piece's. ``fail`` rejects after half of it was written."""

    def __init__(self, pieces: Sequence[StateCopy], *, fail: bool = False) -> None:
        assert [piece.start for piece in pieces] == [0, *(piece.end for piece in pieces[:-1])]
        self._pieces = pieces
        self._fail = fail
        self.position = pieces[-1].end
        self.rows: Sequence[RowSpec] = tuple(
            RowSpec(tensor.spec.name, tensor.spec.dtype, tensor.spec.shape[1], tensor.spec.shape[3])
            for tensor in pieces[-1].rows
        )
        self._whole = pieces[-1].snapshot
        whole = self._whole
        self.snapshot: Sequence[TensorSpec] | None = None if whole is None else tuple(t.spec for t in whole)

    def fill(self, rows: Iterable[RowBuffer], snapshot: Iterable[memoryview]) -> int:
        read = 0
        rows, snapshot = list(rows), list(snapshot)
        for piece in self._pieces:
            for buffer, tensor in zip(rows, piece.rows, strict=True):
                read += self._put(buffer, tensor.data, piece.start, piece.end)
            if self._fail:
                raise CheckpointRejected("corrupt", "A checksum does not match.")
        for target, tensor in zip(snapshot, self._whole or (), strict=True):
            target[:] = tensor.data
            read += tensor.data.nbytes
        return read

    @staticmethod
    def _put(buffer: RowBuffer, data: memoryview, start: int, end: int) -> int:
        width = buffer.spec.row_bytes
        size = (end - start) * width
        for head in range(buffer.spec.heads):
            at = (head * buffer.capacity + start) * width
            buffer.data[at : at + size] = data[head * size : (head + 1) * size]
        return data.nbytes
