"""What can be asked of a session and what comes back, as plain frozen data."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from qmlx_lsp.transcript.entry import Finish
from qmlx_lsp.workspace.diagnostics import Diagnostic

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """A question. ``path`` (absolute, or the URI of a document that has no file yet) is the file it is asked in;
    ``lines`` the selection in it, first and last line counted from 1, both included; ``at`` the line of the cursor.
    ``diagnostics`` are what checkers say of that file, None if nobody knows. ``source`` is text that the reply is
    likely to copy; it is not told."""

    text: str
    path: str | None = None
    lines: tuple[int, int] | None = None
    max_tokens: int | None = None
    at: int | None = None
    diagnostics: tuple[Diagnostic, ...] | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a turn cost, counted where it happened (DESIGN: what is counted, honestly).

    ``context`` ids stood before the first generated one: ``live`` were in memory, ``restored`` came from disk,
    ``prefilled`` were computed. Times in milliseconds, from the moment the turn had the engine's model.
    ``decode_tps`` counts the decode window only. ``reason`` says why the start was not live.
    """

    context: int
    live: int
    restored: int
    prefilled: int
    generated: int
    restore_ms: float
    restore_bytes: int
    prefill_ms: float
    ttft_ms: float | None
    decode_tps: float | None
    written_bytes: int
    plan: str
    reason: str | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished turn. ``turn_id`` is None when nothing was generated and so nothing was recorded as a reply."""

    turn_id: int | None
    text: str
    finish: Finish
    usage: Usage
    error: str | None = None


class Step(StrEnum):
    """Where a running turn is."""

    WAITING = "waiting"
    LOADING = "loading the model"
    READING = "reading"
    RESTORING = "restoring"
    ANSWERING = "answering"


@dataclass(slots=True, eq=False)
class Job:
    """A running turn, as its owner sees it.

    ``on_text(delta)`` gets the reply in batches, ``on_progress(step, done, total)`` where it is; both are called on
    the event loop and must not block. ``cancel`` is called on the event loop, any number of times; ``stop`` is what
    the engine thread looks at.
    """

    on_text: Callable[[str], None] = lambda _delta: None
    on_progress: Callable[[Step, int, int], None] = lambda _step, _done, _total: None
    stop: threading.Event = field(default_factory=threading.Event)
    _told: asyncio.Event = field(default_factory=asyncio.Event)

    def cancel(self) -> None:
        self.stop.set()
        self._told.set()

    @property
    def cancelled(self) -> bool:
        return self.stop.is_set()

    async def until_done(self, future: asyncio.Future[Any]) -> None:
        """Wait until ``future`` is done, or the job is cancelled."""
        told = asyncio.ensure_future(self._told.wait())
        try:
            await asyncio.wait({future, told}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()

    async def unless_cancelled(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Await ``work``; when the job is cancelled first, cancel ``work`` and return None."""
        task = asyncio.ensure_future(work)
        told = asyncio.ensure_future(self._told.wait())
        try:
            await asyncio.wait({task, told}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            return None
        finally:
            told.cancel()
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
