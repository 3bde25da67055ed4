"""A whole daemon in this process, less its socket: a home, a project, an App on the scripted backend.

``Gate`` stops the engine thread before a chosen forward pass, or makes that pass fail, so that a test is at a known
place without waiting for time to pass.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from qmlx_lsp.app import App
from qmlx_lsp.engine.scripted import ScriptedBackend
from qmlx_lsp.paths import Paths
from qmlx_lsp.session.event import Answer, Ask, Job
from qmlx_lsp.session.session import Session
from qmlx_lsp.settings import Settings
from qmlx_lsp.storage.files import FileSystem
from qmlx_lsp.transcript.entry import Entry
from tests.support.waiting import until

WAIT_S = 20.0


class Gate:
    """``before_pass`` for the scripted backend."""

    def __init__(self) -> None:
        self.passes: list[tuple[str, int]] = []
        self._kind = ""
        self._left = 0
        self._error: Exception | None = None
        self._reached = threading.Event()
        self._go = threading.Event()

    def before_pass(self, kind: str, length: int) -> None:
        self.passes.append((kind, length))
        if kind != self._kind:
            return
        self._left -= 1
        if self._left >= 0:
            return
        self._kind = ""
        if self._error is not None:
            raise self._error
        self._reached.set()
        assert self._go.wait(WAIT_S), "the test left the engine waiting"

    def hold(self, kind: str, after: int = 0) -> None:
        """Stop before pass number ``after`` (from 0) of ``kind`` from now on."""
        self._reached.clear()
        self._go = threading.Event()  # one per stop: the engine may stand at the last one still
        self._kind, self._left, self._error = kind, after, None

    def move(self, kind: str, after: int = 0) -> None:
        """Let the engine go on, up to pass number ``after`` of ``kind`` from here."""
        here = self._go
        self.hold(kind, after)
        here.set()

    def fail(self, kind: str, after: int = 0, error: Exception | None = None) -> None:
        self._kind, self._left, self._error = kind, after, error or RuntimeError("boom")

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, WAIT_S), "the engine never came there"

    def open(self) -> None:
        self._kind = ""
        self._go.set()


class Idle:
    """The clock of idle time: it stands until ``passes`` is called."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._waiting: list[asyncio.Event] = []

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        mine = asyncio.Event()
        self._waiting.append(mine)
        try:
            await mine.wait()
        finally:
            self._waiting.remove(mine)

    async def passes(self) -> None:
        """The wait that has begun last is over (as soon as it has begun)."""
        await until(lambda: self._waiting)
        self._waiting[-1].set()


def quick(**sections: Any) -> Settings:
    """Settings for tests: ``quick(store={"quota_gib": 0.1})``."""
    settings = Settings()
    defaults: dict[str, dict[str, Any]] = {
        "model": {"name": "scripted"},
        "store": {"free_floor_gib": 0.0, "quota_gib": 1.0, "restore_gain_tokens": 1, "retry_s": 0.0},
        "stream": {"batch_ms": 1},
        "inline": {"debounce_ms": 0, "debounce_max_ms": 0},
    }
    for name in {**defaults, **sections}:
        values = {**defaults.get(name, {}), **sections.get(name, {})}
        settings = replace(settings, **{name: replace(getattr(settings, name), **values)})
    return settings


def paths_in(base: Path) -> Paths:
    home = base / "home"
    paths = Paths(home / "config", home / "data", home / "cache", home / "run", home / "log")
    paths.prepare()
    return paths


def long(text: str) -> str:
    """Longer than what is read together with the head of a reply, so that it has a prefill of its own."""
    return text + "." * Settings().engine.tail_tokens


class Bench:
    """``app`` is the running App, ``backend`` its scripted backend, ``project`` the root that is asked about."""

    def __init__(self, base: Path, settings: Settings | None = None, **backend: Any) -> None:
        self.paths = paths_in(base)
        self.settings = settings or quick()
        self.project = base / "project"
        self.project.mkdir(exist_ok=True)
        self.gate = Gate()
        self.notices: list[str] = []
        self._options: dict[str, Any] = {"before_pass": self.gate.before_pass, **backend}
        self._files: FileSystem | None = self._options.pop("files", None)
        self._make: Callable[..., ScriptedBackend] = self._options.pop("make", ScriptedBackend)
        self._today: Callable[[], date] = self._options.pop("today", date.today)
        self.start()

    def start(self) -> None:
        self.app = App(self.paths, self.settings, self._backend, self._files, self._today)
        self.app.registry.listen_notices(self.notices.append)
        self.idle = Idle()
        self.app.registry.idle.epochs.sleep = self.idle.sleep
        self.pauses = Idle()
        self.app.registry.idle.reading.sleep = self.pauses.sleep
        self.battery: list[float] = []
        self.power = True
        self.app.registry.idle.enough_power = self._enough_power

    def _backend(self) -> ScriptedBackend:
        self.backend = self._make(**self._options)
        return self.backend

    async def restart(self, **backend: Any) -> None:
        await self.app.stop()
        self._options.update(backend)
        self.start()

    async def ask(self, text: str, job: Job | None = None, *, root: Path | None = None, **about: Any) -> Answer:
        question = Ask(text, **about)
        return await asyncio.wait_for(self.app.registry.ask(root or self.project, question, job or Job()), WAIT_S)

    def begin(self, text: str, *, root: Path | None = None, **about: Any) -> tuple[asyncio.Task[Answer], Job]:
        job = Job()
        return asyncio.create_task(self.ask(text, job, root=root, **about)), job

    async def cancelled(self, text: str, kind: str, after: int = 0, **about: Any) -> Answer:
        """Ask and cancel while the engine stands before pass ``after`` of ``kind``."""
        self.gate.hold(kind, after)
        task, job = self.begin(text, **about)
        await self.gate.reached()
        job.cancel()
        self.gate.open()
        return await task

    async def rest(self) -> None:
        """Nobody asks anything until all work of idle time has ended."""
        await self.idle.passes()
        await self.rested()

    async def rested(self) -> None:
        """All work of idle time that has begun ends."""
        if running := self.app.registry.idle.epochs._running():
            done, _ = await asyncio.wait(running, timeout=WAIT_S)
            assert len(done) == len(running), "work in idle time did not end"
            for task in done:
                task.result()

    async def _enough_power(self, percent: float) -> bool:
        self.battery.append(percent)
        return self.power

    async def pause(self) -> None:
        """Nobody does anything until all has been read ahead."""
        reading = self.app.registry.idle.reading
        # Of the waits that were broken off, some may be about to notice it.
        await until(lambda: len(reading._running()) == 1 and len(self.pauses._waiting) == 1)
        await self.pauses.passes()
        if running := reading._running():
            done, _ = await asyncio.wait(running, timeout=WAIT_S)
            assert len(done) == len(running), "reading ahead did not end"
            for task in done:
                task.result()

    async def interrupt(self, text: str, **about: Any) -> asyncio.Task[Answer]:
        """Ask, and return as soon as the work of idle time has been told to stop."""
        at_rest = self.app.registry.idle.epochs._job
        task, _ = self.begin(text, **about)
        await until(lambda: at_rest.cancelled)
        return task

    async def session(self, root: Path | None = None) -> Session:
        return await self.app.registry.session(root or self.project)

    async def live_ids(self) -> list[int] | None:
        """What the live state has really read."""
        session = await self.session()
        if session.live is None:
            return None
        state = session.live
        return await self.app.registry.services.worker.call(lambda _backend: self.backend.ids(state))

    def entries(self, root: Path | None = None) -> Sequence[Entry]:
        """The current epoch's entries as the database holds them; they are checked to tile from 0."""
        log = self.app.registry.services.log
        found = log.find(str(root or self.project))
        entries = log.entries(found) if found else []
        ends = [0, *itertools.accumulate(len(entry.ids) for entry in entries)]
        assert [(entry.start, entry.end) for entry in entries] == list(itertools.pairwise(ends))
        return entries

    def ids(self, root: Path | None = None) -> list[int]:
        return [token for entry in self.entries(root) for token in entry.ids]

    async def check(self) -> None:
        """State equals log: the live state has read exactly the log's first ``live_position`` ids."""
        session, ids = await self.session(), self.ids()
        assert session.transcript.log.ids() == ids
        live = await self.live_ids()
        assert live is None or live == ids[: session.live_position]
        assert live is None or len(live) == session.live_position


@asynccontextmanager
async def bench(base: Path, settings: Settings | None = None, **backend: Any) -> AsyncIterator[Bench]:
    made = Bench(base, settings, **backend)
    try:
        yield made
    finally:
        made.gate.open()
        await made.app.stop()


def text_of(ids: Sequence[int]) -> str:
    """What scripted ids say; control tokens as their names. Independent of the product's own decoder."""
    names = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
    return b"".join(bytes([i]) if i < 256 else names[i - 256].encode() for i in ids).decode("utf-8", "replace")
