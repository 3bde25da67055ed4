"""Restoring a checkpoint through the program's own store, against a plain read of its files.

The state is a large model's in shape and noise in content; it is saved in several segments, as a conversation's is,
and every restore verifies all of it.

Invariant: what is held in memory at once is one state and one of its segments.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path

from qmlx_lsp.engine.mlx.measuring import LARGE, Noise, Shape, let_go
from qmlx_lsp.measure.disk import NOT_UNCACHED, UNCACHED, plain, uncache
from qmlx_lsp.measure.figures import BYTES_S, CLOCK_S, TIMES, Deadline, Figure, gigabytes
from qmlx_lsp.storage.checkpoints import CheckpointStore, Key
from qmlx_lsp.transcript.tokens import TokenLog

TOKENS = (32_768, 16_384, 8_192, 4_096, 2_048, 1_024)  # of the state: the first that memory, disk and time allow
SEGMENTS = 8
ROUNDS = 3
SAVE_SHARE = 0.4  # of the time, the saving at most
_VOCABULARY = 150_000


def snapshot_bytes(shape: Shape) -> int:
    """Bytes of what belongs to one position alone."""
    state = conv = shape.recurrent
    for size in shape.state:
        state *= size
    for size in shape.conv:
        conv *= size
    return 4 * state + 2 * conv


def affordable(shape: Shape, nbytes: int, write_bytes_s: float | None, seconds: float) -> int:
    """The most of ``TOKENS`` whose state fits into ``nbytes`` and is written in ``seconds``; 0 if none."""
    allowed = nbytes if write_bytes_s is None else min(nbytes, int(write_bytes_s * seconds))
    return next((one for one in TOKENS if one * shape.row_bytes + snapshot_bytes(shape) <= allowed), 0)


def restoring(
    folder: Path, nbytes: int, write_bytes_s: float | None, deadline: Deadline, shape: Shape = LARGE
) -> Iterator[Figure]:
    """Bytes per second of a restore, and how many times longer it takes than a plain read.

    Raises:
        StoreError, CheckpointRejected, OSError: the disk refused, or did not give back what it was given.
    """
    tokens = affordable(shape, nbytes, write_bytes_s, deadline.left * SAVE_SHARE)
    if not tokens:
        note = f"a state of {TOKENS[-1]:,} tokens is more than the memory, the disk or the time for it"
        yield Figure("restore", None, BYTES_S, note=note)
        return
    store = CheckpointStore(folder, quota_bytes=1 << 40, free_floor_bytes=0, clock=time.time)
    try:
        yield from _restored(store, folder, shape, tokens, deadline)
    finally:
        store.close()
        let_go()


def _restored(
    store: CheckpointStore, folder: Path, shape: Shape, tokens: int, deadline: Deadline
) -> Iterator[Figure]:
    noise, log = Noise(shape, tokens), TokenLog(random.Random(tokens).choices(range(_VOCABULARY), k=tokens))
    key = Key(blake2b(b"doctor", digest_size=16).digest(), log, needs_snapshot=True)
    start = 0
    for number in range(1, SEGMENTS + 1):
        end = tokens * number // SEGMENTS
        store.save(key, noise.copy(start, end, snapshot=number == SEGMENTS), owner="doctor")
        start = end
        if deadline.over:
            break
    if start < tokens:
        yield Figure("restore", None, BYTES_S, note=f"{tokens:,} tokens could not be saved within its time")
        return

    def restore() -> int:
        found = store.find(key.fingerprint, log, needs_snapshot=True, limit=tokens)[0]
        assert found.position == tokens, "the checkpoint at the end is there"
        with store.open(found) as stored:
            return noise.restore(stored)

    files = [file for name in ("segments", "snapshots") for file in sorted((folder / name).iterdir())]
    yield from compare(restore, files, tokens, deadline)


def compare(restore: Callable[[], int], files: list[Path], tokens: int, deadline: Deadline) -> Iterator[Figure]:
    """Rounds of a restore and a plain read of the same ``files``, both uncached where the system can."""
    cold, clock = True, deadline.clock
    restored: list[float] = []
    plainly: list[float] = []
    read = 0
    for _ in range(ROUNDS):
        cold = all(uncache(file) for file in files)
        began = clock()
        read = restore()
        restored.append(max(clock() - began, CLOCK_S))
        let_go()
        for file in files:
            uncache(file)
        plainly.append(plain(files, Deadline(clock, math.inf))[1])
        if deadline.left < restored[-1] + plainly[-1]:
            break
    seconds = statistics.median(restored)
    over = f"{tokens:,} tokens in {len(files)} files, {gigabytes(read)}, {len(restored)} times"
    how = f"verified; uncached by {UNCACHED}" if cold else f"verified; {NOT_UNCACHED}"
    yield Figure("restore", read / seconds, BYTES_S, over, how)
    yield Figure("restore_to_plain", seconds / statistics.median(plainly), TIMES, "the same files, as often")
