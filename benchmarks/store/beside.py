"""What a save does to everything else: how long another thread stands still, and how fast a model decodes beside it.

The longest stall of a machine that does other things is noise as well, so the same time without a save stands next
to it.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from benchmarks.store.figure import Figure, apart, pairs, ratio, tell
from benchmarks.store.shapes import SHAPES, State, log_of, open_store, save_once

ROUNDS = 9
STALL_TOKENS = (256 << 20) // SHAPES["oss"].row_bytes  # 256 MiB of rows
TICK_S = 0.001
TURN_TOKENS = (32 << 20) // SHAPES["oss"].row_bytes  # 32 MiB of rows
EVERY_S = 1.0
HIDDEN, LAYERS = 256, 8


def figures(*, quick: bool) -> Iterator[Figure]:
    tell("stall of another thread during a save of 256 MiB")
    yield apart(_stall, 5 if quick else ROUNDS)
    tell("decoding beside a save of 32 MiB each second")
    yield apart(_decode, 3 if quick else 9, 3.0 if quick else 5.0)


def _stall(rounds: int) -> Figure:
    shape = SHAPES["oss"]
    copy = State(shape, STALL_TOKENS).copy(0, STALL_TOKENS, snapshot=True)
    with tempfile.TemporaryDirectory(prefix="qmlx-") as folder:
        store = open_store(Path(folder))
        logs = (log_of(STALL_TOKENS, seed) for seed in count())
        took = 1.0

        def beside_save() -> float:
            nonlocal took
            log = next(logs)
            began = time.perf_counter()
            longest = _longest_gap(lambda: save_once(store, shape, log, copy))
            took = time.perf_counter() - began
            return longest

        beside_save()
        found = pairs(beside_save, lambda: _longest_gap(lambda: time.sleep(took)), rounds)
        store.close()
    with_save, without = (statistics.median(side) * 1000 for side in zip(*found, strict=True))
    more = {"without_ms": without, "worst_ms": max(one for one, _ in found) * 1000, "save_ms": took * 1000}
    return Figure("longest stall of another thread during a save of 256 MiB", with_save, "ms", goal=20, more=more)


def _longest_gap(work: Callable[[], object]) -> float:
    """Seconds that a thread which wakes every millisecond was late by, at worst, while ``work`` ran."""
    longest, going = 0.0, threading.Event()
    done = threading.Event()

    def tick() -> None:
        nonlocal longest
        last = time.perf_counter()
        going.set()
        while not done.is_set():
            time.sleep(TICK_S)
            now = time.perf_counter()
            longest = max(longest, now - last - TICK_S)
            last = now

    thread = threading.Thread(target=tick)
    thread.start()
    going.wait()
    work()
    done.set()
    thread.join()
    return longest


def _decode(rounds: int, window_s: float) -> Figure:
    shape, each = SHAPES["oss"], TURN_TOKENS
    with tempfile.TemporaryDirectory(prefix="qmlx-") as folder:
        from qmlx_lsp.engine.mlx.blas import preload

        preload(Path(folder) / "blas")
        from benchmarks.store.models import HybridBackend
        from qmlx_lsp.engine.backend import Sampling

        copy = State(shape, each).copy(0, each, snapshot=True)
        store = open_store(Path(folder) / "store")
        backend = HybridBackend(HIDDEN, LAYERS)
        backend.load("hybrid", lambda *_: None, lambda: False)
        saves = 0

        def save(stop: threading.Event) -> None:
            nonlocal saves
            while not stop.is_set():
                began = time.perf_counter()
                save_once(store, shape, log_of(each, saves), copy)
                saves += 1
                stop.wait(began + EVERY_S - time.perf_counter())

        def speed() -> float:
            """Tokens per second for some seconds, always from an empty state."""
            state = backend.new_state()
            steps = backend.decode(state, [1, 2, 3], Sampling(), 1 << 30)
            next(steps)
            began, tokens = time.perf_counter(), 0
            while (passed := time.perf_counter() - began) < window_s:
                next(steps)
                tokens += 1
            steps.close()
            backend.drop_state(state)
            return tokens / passed

        def beside() -> float:
            stop = threading.Event()
            thread = threading.Thread(target=save, args=(stop,))
            thread.start()
            found = speed()
            stop.set()
            thread.join()
            return found

        speed()
        found = pairs(beside, speed, rounds)
        store.close()
    alone = statistics.median(two for _, two in found)
    more = {"alone_tokens_per_s": alone, "windows": rounds, "saves": saves, "worst": min(a / b for a, b in found)}
    # On a machine of two cores that others use, the speed itself is no gate; the stall is.
    return Figure(
        "decode speed beside a save of 32 MiB each second / alone",
        ratio(found),
        goal=0.85,
        gate=0.6,
        least=True,
        more=more,
    )
