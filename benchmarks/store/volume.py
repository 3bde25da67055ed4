"""Bytes written over a long conversation, and what many small turns cost against few large ones.

Bytes are counted where they go to the file system, files of both kinds and whatever is written twice included; the
index is not (some 300 bytes a file).
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.store.figure import Figure, apart, pairs, ratio, tell
from benchmarks.store.restoring import payload, restore_once
from benchmarks.store.shapes import SHAPES, TURN_TOKENS, Shape, layout, log_of, open_store, save_all
from qmlx_lsp.storage.files import OsFiles, Piece

SMALL_TURNS, LARGE_TURNS = 2_000, 20
SMALL_TOKENS = (8, 96)
ROUNDS = 7


class Counting(OsFiles):
    """The real file system; ``written`` counts the bytes."""

    def __init__(self) -> None:
        self.written = 0

    def pwritev(self, fd: int, pieces: Sequence[Piece], offset: int) -> int:
        done = super().pwritev(fd, pieces, offset)
        self.written += done
        return done


# --- a long conversation --------------------------------------------------------------------------------------------


def amplification(*, quick: bool) -> Iterator[Figure]:
    """Over 100 turns; fewer for those that would write 7.5 and 18.6 GB, for no byte depends on the number."""
    for key, turns in [("oss", 20)] if quick else [("oss", 100), ("7b", 50), ("122b", 25)]:
        tell(f"bytes written: {SHAPES[key].name}, {turns} turns of {TURN_TOKENS:,} tokens")
        yield from apart(_amplification, key, turns)


def _amplification(key: str, turns: int) -> list[Figure]:
    shape, files = SHAPES[key], Counting()
    ends = [TURN_TOKENS * (number + 1) for number in range(turns)]
    with tempfile.TemporaryDirectory(prefix="qmlx-") as folder:
        store = open_store(Path(folder), files)
        began = time.perf_counter()
        save_all(store, shape, log_of(ends[-1]), ends, every_snapshot=True)
        took = time.perf_counter() - began
        snapshots = store.stats()["snapshots"]
        store.close()
    whole = sum(shape.row_bytes * end for end in ends) + snapshot_bytes(shape, ends)
    needed = shape.row_bytes * ends[-1] + snapshot_bytes(shape, ends)
    what = f"{shape.name}, {turns} turns of {TURN_TOKENS:,}"
    more = {"written_mb": files.written / 1e6, "snapshots_left": snapshots, "ms_per_turn": took / turns * 1000}
    return [
        Figure(
            f"bytes written / (new rows + a snapshot a turn): {what}", files.written / needed, goal=1.02, more=more
        ),
        Figure(f"the whole prefix each turn / bytes written: {what}", whole / files.written),
    ]


def snapshot_bytes(shape: Shape, ends: Sequence[int]) -> int:
    """Bytes of the snapshots at ``ends``: those of a window grow until it is full."""
    made = layout(shape)
    return sum(spec.nbytes for end in ends for spec in made.snapshot_at(end))


# --- small turns ----------------------------------------------------------------------------------------------------


def small_turns(*, quick: bool) -> Iterator[Figure]:
    """Small turns against large ones of the same total. Rows alone in the size of the 122B's (24 KiB a token), and
    gpt-oss with its snapshot at every turn, as a session saves it."""
    turns = 200 if quick else SMALL_TURNS
    for shape, every in [(Shape("rows of 24 KiB", full=12, heads=2, width=256), False), (SHAPES["oss"], True)]:
        tell(f"small turns: {shape.name}, {turns:,} turns of {SMALL_TOKENS[0]} to {SMALL_TOKENS[1]} tokens")
        with (
            tempfile.TemporaryDirectory(prefix="qmlx-") as small,
            tempfile.TemporaryDirectory(prefix="qmlx-") as large,
        ):
            total, ends = _small_ends(turns)
            chains = [(small, ends), (large, [total * (n + 1) // LARGE_TURNS for n in range(LARGE_TURNS)])]
            written = [apart(_write, folder, shape, at, every) for folder, at in chains]
            found = apart(_compare, small, large, shape, total, fresh=True)
            yield from _small_figures(shape, ends, written, found)


def _small_ends(turns: int) -> tuple[int, list[int]]:
    draw, ends = random.Random(turns), [0]
    for _ in range(turns):
        ends.append(ends[-1] + draw.randint(*SMALL_TOKENS))
    return ends[-1], ends[1:]


def _write(folder: str, shape: Shape, ends: list[int], every: bool) -> dict[str, float]:  # noqa: FBT001 - crosses processes
    files = Counting()
    store = open_store(Path(folder), files)
    began, times = time.perf_counter(), []

    def report(_end: int) -> None:
        times.append(time.perf_counter() - began)

    save_all(store, shape, log_of(ends[-1]), ends, every_snapshot=every, report=report)
    stats = store.stats()
    store.close()
    tenth = max(1, len(times) // 10)
    return {
        "written": files.written, "segments": stats["segments"], "snapshots": stats["snapshots"],
        "first_ms": times[tenth - 1] / tenth * 1000, "last_ms": (times[-1] - times[-1 - tenth]) / tenth * 1000,
    }  # fmt: skip


def _compare(small: str, large: str, shape: Shape, total: int) -> list[tuple[float, float]]:
    log, wanted = log_of(total), layout(shape)
    stores = [open_store(Path(folder)) for folder in (small, large)]
    for folder in (small, large):  # into the page cache, both
        for file in payload(Path(folder)):
            file.read_bytes()
    one, two = (lambda store=store: restore_once([], store, shape, log, wanted) for store in stores)
    found = pairs(one, two, ROUNDS)
    for store in stores:
        store.close()
    return found


def _small_figures(
    shape: Shape, ends: list[int], written: list[dict[str, float]], found: list[tuple[float, float]]
) -> Iterator[Figure]:
    turns, total = len(ends), ends[-1]
    small, large = written
    what = f"{shape.name}, {turns:,} turns, {total:,} tokens"
    needed = shape.row_bytes * total + (snapshot_bytes(shape, ends) if small["snapshots"] > 1 else 0)
    times = {
        "small_ms": sorted(a for a, _ in found)[ROUNDS // 2] * 1000,
        "large_ms": sorted(b for _, b in found)[ROUNDS // 2] * 1000,
    }
    yield Figure(f"restore after small turns / after {LARGE_TURNS} large: {what}", ratio(found), goal=1.3, more=times)
    yield Figure(
        f"segments after small turns: {what}", int(small["segments"]), "", more={"large": int(large["segments"])}
    )
    yield Figure(
        f"bytes written / (new rows + a snapshot a turn), small turns: {what}", small["written"] / needed, goal=2.1
    )
    yield Figure(
        f"milliseconds of a small turn's save, last tenth: {what}",
        small["last_ms"],
        "ms",
        more={"first_tenth": small["first_ms"]},
    )
