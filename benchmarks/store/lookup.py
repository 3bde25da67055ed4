"""How long it takes to know what is stored: ``find`` among a thousand checkpoints, opening a store of 10,000 files.

For ``find`` the rows are put into the index without files, for it opens none.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.store.figure import Figure, apart, tell
from benchmarks.store.shapes import TURN_TOKENS, log_of, open_store
from qmlx_lsp.state import Tensor, TensorSpec
from qmlx_lsp.storage.checkpoints import CheckpointStore
from qmlx_lsp.storage.files import OsFiles
from qmlx_lsp.storage.index import Index
from qmlx_lsp.storage.row import Kind, Row
from qmlx_lsp.storage.segment import encode_segment, encode_snapshot
from qmlx_lsp.storage.shelf import Shelf
from qmlx_lsp.transcript.tokens import TokenLog

CHECKPOINTS = 1_000
TOKENS = 100_000
LOOKUPS = 200
FILES = 10_000
OPENINGS = 15
_FINGERPRINT = b"f" * 16


def figures(*, quick: bool) -> Iterator[Figure]:
    for name in _SCENES:
        tell(f"lookup: {CHECKPOINTS:,} checkpoints, {name}")
        yield apart(_find, name)
    count = 1_000 if quick else FILES
    tell(f"opening a store of {count:,} files")
    yield apart(_open, count)


def _apart() -> tuple[TokenLog, list[Row]]:
    rows: list[Row] = []
    for number in range(CHECKPOINTS):
        log = log_of(TOKENS, number)
        rows += [_segment(log, 0, TOKENS), _snapshot(log, TOKENS)]
    return log, rows


def _turns() -> tuple[TokenLog, list[Row]]:
    rows: list[Row] = []
    turns = TOKENS // TURN_TOKENS
    for number in range(-(-CHECKPOINTS // turns)):
        log = log_of(turns * TURN_TOKENS, number)
        rows += _chain(log, range(0, len(log) + 1, TURN_TOKENS))
    return log, rows


def _along() -> tuple[TokenLog, list[Row]]:
    log = log_of(TOKENS)
    return log, _chain(log, range(0, TOKENS + 1, TOKENS // CHECKPOINTS))


def _forks() -> tuple[TokenLog, list[Row]]:
    """One log in turns, and from points along it forks of its last 100 ids turned around, each with a checkpoint."""
    log = log_of(TOKENS)
    points = [*range(0, TOKENS, TURN_TOKENS), TOKENS]
    rows = _chain(log, points)
    for number in range(CHECKPOINTS - len(points) + 1):
        at = points[number % (len(points) - 1)]
        fork = TokenLog([*log.ids(0, at), *log_of(TURN_TOKENS, number).ids()])
        rows += _chain(fork, [at, len(fork)])
    return log, rows


_SCENES = {
    "one each of 1,000 conversations": _apart,
    "every turn of 14 conversations": _turns,
    "every 100 tokens of one log": _along,
    "a log and forks from its turns": _forks,
}


def _chain(log: TokenLog, points: Sequence[int]) -> list[Row]:
    rows: list[Row] = []
    for a, b in pairwise(points):
        rows += [_segment(log, a, b), _snapshot(log, b)]
    return rows


def _segment(log: TokenLog, a: int, b: int) -> Row:
    return _row(Kind.SEGMENT, a, b, log.digest(a), log.digest(b))


def _snapshot(log: TokenLog, b: int) -> Row:
    return _row(Kind.SNAPSHOT, b, b, log.digest(b), log.digest(b))


def _row(kind: Kind, a: int, b: int, parent: bytes, digest: bytes) -> Row:
    return Row(kind, _FINGERPRINT, a, b, parent, digest, 1 << 20, 1 << 14, b"s" * 16, True, 1.0, 1.0)


def _find(name: str) -> Figure:
    log, rows = _SCENES[name]()
    with tempfile.TemporaryDirectory(prefix="qmlx-") as folder:
        store = open_store(Path(folder))
        index = Index(Path(folder) / "index.db")
        index.insert(rows)
        index.close()
        times = []
        for _ in range(LOOKUPS):
            began = time.perf_counter()
            found = store.find(_FINGERPRINT, log, needs_snapshot=True, limit=len(log))
            times.append((time.perf_counter() - began) * 1000)
            assert found[0].position == len(log), "it is found"
        store.close()
    times.sort()
    more = {"p95": times[len(times) * 95 // 100], "fitting": len(found), "rows": len(rows)}
    return Figure(f"lookup: {name}, {len(log):,} tokens", statistics.median(times), "ms", goal=10, more=more)


class _Unsynced(OsFiles):
    """To fill a folder quickly."""

    def fsync(self, fd: int) -> None:
        return None


def _fill(folder: Path, count: int) -> None:
    """Half of ``count`` segments of one token, half snapshots; one conversation."""
    CheckpointStore(folder, quota_bytes=1 << 40, free_floor_bytes=0, clock=time.time).close()
    shelf, index = Shelf(_Unsynced(), folder, 1 << 40), Index(folder / "index.db")
    log = log_of(count // 2)
    data = memoryview(bytes(64))
    rows, whole = (
        Tensor(TensorSpec("0.k", "BF16", (1, 1, 1, 32)), data),
        Tensor(TensorSpec("1.0", "BF16", (1, 32)), data),
    )
    written = []
    for end in range(1, count // 2 + 1):
        before, behind = log.digest(end - 1), log.digest(end)
        made = [
            encode_segment(
                _FINGERPRINT,
                (end - 1, end),
                (before, behind),
                [rows],
                log.ids(end - 1, end),
                needs_snapshot=True,
                now=1.0,
            ),
            encode_snapshot(_FINGERPRINT, end, behind, [whole], 1.0),
        ]
        for encoded in made:
            shelf.publish(encoded)
            written.append(encoded.row)
    index.insert(written)
    index.close()


def _open(count: int) -> Figure:
    with tempfile.TemporaryDirectory(prefix="qmlx-") as folder:
        _fill(Path(folder), count)
        times = []
        for _ in range(OPENINGS):
            began = time.perf_counter()
            store = open_store(Path(folder))
            times.append((time.perf_counter() - began) * 1000)
            assert sum(store.stats()[kind] for kind in ("segments", "snapshots")) == count, "nothing is lost"
            store.close()
    return Figure(
        f"opening a store of {count:,} files", statistics.median(times), "ms", goal=200, more={"worst": max(times)}
    )
