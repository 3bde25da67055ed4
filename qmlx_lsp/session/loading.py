"""Bringing the model up once, for everyone who waits for it, with its progress told to whoever listens.

Invariant: one load at a time. A failed load is reported to all who waited; the next request tries again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any

from qmlx_lsp.engine.worker import Calls
from qmlx_lsp.errors import ModelError, QmlxError
from qmlx_lsp.session.model import LoadedModel, prepare

# Progress is told this often at most; a download reports hundreds of times a second.
REPORT_INTERVAL_S = 0.1


class Phase(StrEnum):
    """Where the model is."""

    IDLE = "idle"
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Progress:
    """``done`` of ``total`` in whatever unit ``message`` implies; ``total`` 0 when unknown."""

    phase: Phase
    message: str
    done: int = 0
    total: int = 0

    @property
    def percent(self) -> int | None:
        return min(100, self.done * 100 // self.total) if self.total else None


class Loader:
    """Loads ``source`` on the worker. ``listen`` to follow; listeners are called on the event loop. ``today`` gives
    the day on which a conversation begins."""

    def __init__(self, worker: Calls, source: str, *, thinking: bool, today: Callable[[], date] = date.today) -> None:
        self._worker = worker
        self._source = source
        self._thinking = thinking
        self._today = today
        self._task: asyncio.Task[LoadedModel] | None = None
        self._listeners: list[Callable[[Progress], None]] = []
        self._last_report = 0.0
        self.closing = False
        self.progress = Progress(Phase.IDLE, "")

    @property
    def source(self) -> str:
        return self._source

    @property
    def loaded(self) -> LoadedModel | None:
        task = self._task
        return task.result() if task is not None and task.done() and self.progress.phase is Phase.READY else None

    def listen(self, listener: Callable[[Progress], None]) -> Callable[[], None]:
        """Call ``listener`` at every change from now on; returns how to stop."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def start(self) -> asyncio.Task[LoadedModel]:
        """Begin loading if it has not begun (or has failed); the task is shared by all."""
        if self._task is None or self.progress.phase is Phase.FAILED:
            self._task = asyncio.create_task(self._load())
            self._task.add_done_callback(seen)
        return self._task

    async def ready(self) -> LoadedModel:
        """The loaded model.

        Raises:
            ModelError: it cannot be loaded; says why and what to do.
        """
        return await asyncio.shield(self.start())

    async def _load(self) -> LoadedModel:
        loop = asyncio.get_running_loop()
        self._tell(Progress(Phase.LOADING, f"loading {self._source}"))

        def report(done: int, total: int, what: str) -> None:
            loop.call_soon_threadsafe(self._tell, Progress(Phase.LOADING, what, done, total))

        try:
            info = await self._worker.call(lambda backend: backend.load(self._source, report, lambda: self.closing))
            loaded = await asyncio.to_thread(prepare, info, thinking=self._thinking, today=self._today)
        except QmlxError as error:
            self._tell(Progress(Phase.FAILED, str(error)))
            raise
        except Exception as error:
            self._tell(Progress(Phase.FAILED, f"{type(error).__name__}: {error}"))
            raise ModelError(f"The model {self._source} cannot be loaded: {type(error).__name__}: {error}") from error
        self._tell(Progress(Phase.READY, f"{info.name} is ready", 1, 1))
        return loaded

    def _tell(self, progress: Progress) -> None:
        if self.progress.phase in (Phase.READY, Phase.FAILED) and progress.phase is Phase.LOADING and progress.total:
            return  # a late report of a load that has ended
        now = time.monotonic()
        same = progress.message == self.progress.message and progress.phase is self.progress.phase
        last = progress.total and progress.done >= progress.total
        self.progress = progress
        if same and not last and now - self._last_report < REPORT_INTERVAL_S:
            return
        self._last_report = now
        for listener in tuple(self._listeners):
            listener(progress)


def seen(task: asyncio.Future[Any]) -> None:
    """Take note of a shared task's failure: whoever still waits gets it, and asyncio need not complain as well."""
    if not task.cancelled():
        task.exception()
