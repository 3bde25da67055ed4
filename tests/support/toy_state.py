"""A pretended model whose state is a pure function of the ids, so that a test knows every byte it must get back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b, shake_128
from pathlib import Path

from qmlx_lsp.errors import CheckpointRejected
from qmlx_lsp.state import RowBuffer, RowSpec, StateCopy, StoredState, Tensor, TensorSpec
from qmlx_lsp.storage.checkpoints import CheckpointStore, Found, Key, Saved
from qmlx_lsp.storage.files import FileSystem
from qmlx_lsp.transcript.tokens import TokenLog

HEADROOM = 3
PAINT = 0xEE  # what the lent memory holds before it is filled


@dataclass(frozen=True)
class Toy:
    """A model with two row tensors and, if ``hybrid``, a snapshot of two tensors (one of them empty)."""

    name: str = "toy"
    hybrid: bool = False
    heads: int = 2
    width: int = 8

    @property
    def fingerprint(self) -> bytes:
        return blake2b(self.name.encode(), digest_size=32).digest()

    @property
    def rows(self) -> tuple[RowSpec, ...]:
        return (
            RowSpec("0.k", "BF16", self.heads, self.width),
            RowSpec("0.v", "F32", self.heads, self.width),
        )

    @property
    def side(self) -> tuple[TensorSpec, ...]:
        return (TensorSpec("1.state", "F32", (1, 3, 5)), TensorSpec("1.empty", "F32", (1, 0, 5)))

    def head(self, log: TokenLog, spec: RowSpec, head: int, a: int, b: int) -> bytes:
        """Rows ``[a, b)`` of one head: each depends on all ids up to its own."""
        seed = self.fingerprint + spec.name.encode() + bytes([head])
        return b"".join(_row(seed, log.digest(at + 1), spec.row_bytes) for at in range(a, b))

    def tensor(self, log: TokenLog, spec: RowSpec, a: int, b: int) -> Tensor:
        data = b"".join(self.head(log, spec, head, a, b) for head in range(spec.heads))
        return Tensor(spec.tensor(b - a), memoryview(data))

    def snapshot(self, log: TokenLog, position: int) -> tuple[Tensor, ...]:
        seed = self.fingerprint + log.digest(position)
        return tuple(Tensor(spec, memoryview(shake_128(seed).digest(spec.nbytes))) for spec in self.side)

    def copy(self, log: TokenLog, a: int, b: int) -> StateCopy:
        rows = tuple(self.tensor(log, spec, a, b) for spec in self.rows) if a < b else ()
        return StateCopy(a, b, rows, self.snapshot(log, b) if self.hybrid else None)


@lru_cache(100_000)
def _row(seed: bytes, digest: bytes, size: int) -> bytes:
    return shake_128(seed + digest).digest(size)


def save(store: CheckpointStore, toy: Toy, log: TokenLog, end: int | None = None) -> int:
    """Save what is new up to ``end``, as a session does."""
    end = len(log) if end is None else end
    return put(store, toy, log, toy.copy(log, store.covered(toy.fingerprint, log, end), end)).written


def put(store: CheckpointStore, toy: Toy, log: TokenLog, copy: StateCopy, **about: str) -> Saved:
    """Save ``copy`` as it is."""
    return store.save(key(toy, log), copy, **about)


def key(toy: Toy, log: TokenLog, *anchors: int) -> Key:
    return Key(toy.fingerprint, log, toy.hybrid, anchors)


def find(store: CheckpointStore, toy: Toy, log: TokenLog, limit: int | None = None) -> list[Found]:
    limit = len(log) if limit is None else limit
    return store.find(toy.fingerprint, log, needs_snapshot=toy.hybrid, limit=limit)


def why(store: CheckpointStore, toy: Toy, log: TokenLog) -> str:
    return store.why_none(toy.fingerprint, log, limit=len(log))


def check_fill(state: StoredState, toy: Toy, log: TokenLog) -> int:
    """Fill painted memory from ``state`` and compare every byte; return the bytes read."""
    assert tuple(state.rows) == toy.rows
    capacity = state.position + HEADROOM
    memory = [bytearray([PAINT]) * (spec.heads * capacity * spec.row_bytes) for spec in toy.rows]
    side = [bytearray(spec.nbytes) for spec in state.snapshot or ()]
    buffers = [RowBuffer(spec, capacity, memoryview(data)) for spec, data in zip(toy.rows, memory, strict=True)]
    count = state.fill(buffers, [memoryview(data) for data in side])
    for spec, data in zip(toy.rows, memory, strict=True):
        for head in range(spec.heads):
            want = toy.head(log, spec, head, 0, state.position) + bytes([PAINT]) * (HEADROOM * spec.row_bytes)
            begin = head * capacity * spec.row_bytes
            assert data[begin : begin + capacity * spec.row_bytes] == want
    if toy.hybrid:
        assert side == [bytes(tensor.data) for tensor in toy.snapshot(log, state.position)]
    else:
        assert state.snapshot is None
    return count


def restore(store: CheckpointStore, toy: Toy, log: TokenLog) -> tuple[int, int]:
    """Restore as a session does: candidates in order, rejected ones reported; return the position and the tries."""
    tried = 0
    for found in find(store, toy, log):
        tried += 1
        try:
            with store.open(found) as state:
                assert state.position == found.position
                check_fill(state, toy, log)
                return found.position, tried
        except CheckpointRejected as error:
            store.reject(found, error)
    return 0, tried


def payload(folder: Path) -> list[Path]:
    """Every file of the store but the index."""
    return sorted(p for name in ("segments", "snapshots", "quarantine") for p in (folder / name).iterdir())


def payload_bytes(folder: Path) -> int:
    """What the quota counts: every file of the folder but the index."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("index.db"))
    return sum(path.stat().st_size for path in files)


def open_store(
    folder: Path,
    files: FileSystem | None = None,
    *,
    quota: int = 1 << 30,
    floor: int = 0,
    clock: Callable[[], float] = lambda: 1_000.0,
) -> CheckpointStore:
    return CheckpointStore(folder, files=files, quota_bytes=quota, free_floor_bytes=floor, clock=clock)


def log_of(count: int, *, seed: int = 0) -> TokenLog:
    """``count`` ids that depend on ``seed``."""
    return TokenLog((seed * 7_919 + at * 31) % 50_000 for at in range(count))


def branch(log: TokenLog, at: int, ids: Sequence[int]) -> TokenLog:
    return TokenLog([*log.ids(0, at), *ids])
