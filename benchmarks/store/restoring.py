"""A verified restore against a plain read of the same files into as much fresh memory, and the memory it takes.

*Plain* is one thread: open, ``readinto`` of anonymous memory that nobody touched before, nothing verified. *Cold*
means that the files were dropped from the page cache before each side; macOS has no call for that.
"""

from __future__ import annotations

import gc
import mmap
import os
import random
import re
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlx.core as mx

from benchmarks.store.figure import Figure, apart, pairs, ratio, resident, tell
from benchmarks.store.shapes import SHAPES, layout, log_of, open_store, restore, save_all
from qmlx_lsp.engine.mlx.caches import adapter

ROUNDS = 7
CAN_DROP = hasattr(os, "posix_fadvise")
# An agent's turns: median 245 tokens, mean some 500.
TURN_MEDIAN, TURN_SPREAD = 245, 1.2


def figures(*, quick: bool) -> Iterator[Figure]:
    for key, tokens in (
        [("122b", 8_192), ("oss", 8_192)] if quick else [(k, t) for t in (8_192, 32_768) for k in SHAPES]
    ):
        for chain in ("20",) if quick else ("1", "20", "turns"):
            with tempfile.TemporaryDirectory(prefix="qmlx-") as folder:
                tell(f"restore: {SHAPES[key].name}, {tokens:,} tokens, chain {chain}")
                count = apart(_write, folder, key, tokens, chain)
                name = f"{SHAPES[key].name} {tokens // 1024}k, {count} segments"
                for cold in (False, True) if CAN_DROP else (False,):
                    yield _figure(name, apart(_compare, folder, key, tokens, cold, fresh=True), cold=cold)
                yield Figure(
                    f"peak memory of a restore / result: {name}", *[apart(_peak, folder, key, tokens, fresh=True)],
                    goal=1.1,
                )  # fmt: skip
    if not CAN_DROP:
        tell("restore: cold is not measured on this system; `sudo purge` between two runs gives an idea")


def _figure(name: str, found: list[tuple[float, float]], *, cold: bool) -> Figure:
    more = {
        "restore_ms": statistics.median(one for one, _ in found) * 1000,
        "plain_ms": statistics.median(two for _, two in found) * 1000,
        "worst": max(one / two for one, two in found),
    }
    return Figure(
        f"restore / plain read, {'cold' if cold else 'warm'}: {name}", ratio(found), goal=1.2, gate=1.5, more=more
    )


def ends_of(tokens: int, chain: str) -> list[int]:
    """Where the segments of a chain end: ``chain`` equal ones, or an agent's ``turns``."""
    if chain != "turns":
        return [tokens * (number + 1) // int(chain) for number in range(int(chain))]
    draw, ends = random.Random(tokens), [0]
    while ends[-1] < tokens:
        ends.append(min(tokens, ends[-1] + 1 + int(TURN_MEDIAN * draw.lognormvariate(0, TURN_SPREAD))))
    return ends[1:]


def _write(folder: str, key: str, tokens: int, chain: str) -> int:
    """Save the chain; returns how many segments it has."""
    store = open_store(Path(folder))
    save_all(store, SHAPES[key], log_of(tokens), ends_of(tokens, chain), every_snapshot=False)
    count = store.stats()["segments"]
    store.close()
    return count


def _compare(folder: str, key: str, tokens: int, cold: bool) -> list[tuple[float, float]]:  # noqa: FBT001 - crosses processes
    """Seconds of a restore and of a plain read, in pairs."""
    shape, log = SHAPES[key], log_of(tokens)
    store, wanted = open_store(Path(folder)), layout(shape)
    files = payload(Path(folder))

    def restored() -> float:
        return restore_once(files if cold else [], store, shape, log, wanted)

    def plain() -> float:
        drop(files if cold else [])
        began = time.perf_counter()
        held = [_read(file) for file in files]
        took = time.perf_counter() - began
        for memory in held:
            memory.close()
        return took

    restored(), plain()
    found = pairs(restored, plain, ROUNDS)
    store.close()
    return found


def restore_once(dropped: list[Path], *args: Any) -> float:
    """Seconds of one restore into fresh memory, after dropping ``dropped`` from the page cache."""
    gc.collect()
    mx.clear_cache()
    drop(dropped)
    began = time.perf_counter()
    held = restore(*args)
    took = time.perf_counter() - began
    held.clear()
    return took


def payload(folder: Path) -> list[Path]:
    """The files of the store's one chain, in whatever order they lie."""
    return [file for name in ("segments", "snapshots") for file in sorted((folder / name).iterdir())]


def _read(file: Path) -> mmap.mmap:
    with file.open("rb", buffering=0) as stream:
        size = file.stat().st_size
        memory = mmap.mmap(-1, size)
        view, done = memoryview(memory), 0
        while done < size:
            done += stream.readinto(view[done:])
        view.release()
    return memory


def drop(files: list[Path]) -> None:
    """Take ``files`` out of the page cache."""
    for file in files:
        fd = os.open(file, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def _peak(folder: str, key: str, tokens: int) -> float:
    """How far resident memory rises above what it was at any time of the restore, in sizes of the result."""
    shape, log = SHAPES[key], log_of(tokens)
    store, wanted = open_store(Path(folder)), layout(shape)
    gc.collect()
    mx.clear_cache()
    before = resident()
    caches = restore(store, shape, log, wanted)
    size = sum(
        array.nbytes for c in caches for array in (*adapter(c).rows(c).values(), *adapter(c).whole(c).values())
    )
    rise = _high_water() - before
    store.close()
    return rise / size


def _high_water() -> int:
    """The most bytes this process ever had resident.

    Linux hands ``ru_maxrss`` down through exec, so that a child inherits its parent's; the mark of this program alone
    is in /proc.
    """
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text(encoding="ascii")
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
