"""A working day: 500 turns of one conversation through the whole program, and what they leave in memory.

A real (tiny, random) hybrid model behind the real backend, engine thread, session and store. Every third turn is
cancelled while it answers, every fifth raises in the middle of a pass. At rest after each hundred turns: resident
memory, what MLX holds beyond the live state, and the objects that the garbage collector knows.

The conversation itself does grow: ids, entries, the live state. Requests must not: of what belongs to a running turn
nothing may be left.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx

from benchmarks.store.figure import Figure, apart, resident, tell
from benchmarks.store.models import HybridBackend
from qmlx_lsp.app import App
from qmlx_lsp.daemon.memory import give_back_freed_memory
from qmlx_lsp.paths import Paths
from qmlx_lsp.session.event import Ask, Job
from qmlx_lsp.settings import Settings

EACH = 100
HIDDEN, LAYERS = 32, 2
MAX_TOKENS = 24
# What belongs to a running turn, by the name of its class.
OF_A_TURN = (
    "Job",
    "Ask",
    "Answer",
    "GrowingReply",
    "StateCopy",
    "Tensor",
    "Found",
    "OpenCheckpoint",
    "Task",
    "traceback",
    "generator",
)


class _Fault:
    """Raises in front of a chosen pass of a turn."""

    def __init__(self) -> None:
        self.left: int | None = None

    def before_pass(self) -> None:
        if self.left is None:
            return
        self.left -= 1
        if self.left <= 0:
            self.left = None
            raise RuntimeError("boom")


def figures(*, quick: bool) -> Iterator[Figure]:
    turns = 200 if quick else 500
    tell(f"memory: {turns} turns, every third cancelled, every fifth raising")
    rests = apart(_day, turns, EACH // (2 if quick else 1))
    first = rests[0]
    what = f"{turns} turns, after each {turns // len(rests)}"
    later = rests[1:]
    rise = max(rest["resident"] for rest in later) / first["resident"]
    yield Figure(
        f"resident memory at rest / after the first rest: {what}", rise, goal=1.1,
        more={"mib": [rest["resident"] >> 20 for rest in rests], "live_mib": [rest["live"] >> 20 for rest in rests]},
    )  # fmt: skip
    yield Figure(
        f"MLX memory beyond the live state, last / first rest: {what}",
        (later[-1]["mlx"] or 1) / (first["mlx"] or 1), goal=1.1,
        more={"kib": [rest["mlx"] >> 10 for rest in rests], "cached_kib": [rest["cached"] >> 10 for rest in rests]},
    )  # fmt: skip
    left = {name: later[-1]["kinds"][name] - first["kinds"][name] for name in OF_A_TURN}
    grown = {name: number for name, number in left.items() if number > 0}
    yield Figure(f"objects of finished turns, growth: {what}", sum(grown.values()), "", goal=0, more=grown)
    per_turn = (later[-1]["objects"] - first["objects"]) / (later[-1]["turns"] - first["turns"])
    most = later[-1]["kinds"] - first["kinds"]
    yield Figure(
        f"collectable objects per turn (entries of the conversation): {what}", per_turn, "",
        more={"kinds": dict(most.most_common(4)), "ends": dict(later[-1]["ends"])},
    )  # fmt: skip


def _day(turns: int, each: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="qmlx-") as folder:
        give_back_freed_memory()  # as the daemon does
        return asyncio.run(_turns(Path(folder), turns, each))


async def _turns(folder: Path, turns: int, each: int) -> list[dict[str, Any]]:
    paths = Paths(*(folder / name for name in ("config", "data", "cache", "run", "log")))
    paths.prepare()
    settings = Settings()
    settings = replace(
        settings,
        store=replace(settings.store, quota_gib=4.0, free_floor_gib=0.0, restore_gain_tokens=1),
        stream=replace(settings.stream, batch_ms=1),
    )
    project, fault, ends = folder / "project", _Fault(), Counter[str]()
    project.mkdir()
    backend: HybridBackend | None = None

    def make() -> HybridBackend:
        nonlocal backend
        backend = HybridBackend(HIDDEN, LAYERS, fault.before_pass)
        return backend

    app = App(paths, settings, make)
    rests: list[dict[str, Any]] = []
    try:
        for number in range(1, turns + 1):
            job = Job()
            if number % 3 == 0:
                job.on_text = lambda _text, job=job: job.cancel()  # type: ignore[misc]
            fault.left = 9 if number % 5 == 0 else None
            question = Ask(f"question {number}: what does it do?", max_tokens=MAX_TOKENS)
            answer = await app.registry.ask(project, question, job)
            fault.left = None
            ends[answer.finish.value] += 1
            job.on_text = lambda _text: None
            del job, answer, question
            if number % each == 0:
                rests.append(await _rest(app, project, number, ends))
    finally:
        await app.stop()
    return rests


async def _rest(app: App, project: Path, turns: int, ends: Counter[str]) -> dict[str, Any]:
    session = await app.registry.session(project)
    for _ in range(3):
        await asyncio.sleep(0.05)
        gc.collect()
    services = app.registry.services
    live = await services.worker.call(lambda backend: 0 if session.live is None else backend.nbytes(session.live))
    kinds = Counter(type(thing).__name__ for thing in gc.get_objects())
    return {
        "turns": turns, "resident": resident(), "mlx": mx.get_active_memory() - live, "live": live,
        "cached": mx.get_cache_memory(),
        "objects": sum(kinds.values()), "kinds": kinds, "ends": Counter(ends), "tokens": len(session.transcript.log),
    }  # fmt: skip
