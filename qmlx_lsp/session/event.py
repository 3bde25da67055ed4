"""What can be asked of a session and what comes back, as plain frozen data."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from qmlx_lsp.transcript.entry import Finish


@dataclass(frozen=True, slots=True)
class Ask:
    """A question. ``path`` (absolute) is the file it is asked in; ``lines`` the selection in it, first and last line
    counted from 1, both included."""

    text: str
    path: str | None = None
    lines: tuple[int, int] | None = None
    max_tokens: int | None = None


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


@dataclass(slots=True)
class Job:
    """A running turn, as its owner sees it.

    ``on_text(delta)`` gets the reply in batches, ``on_progress(step, done, total)`` where it is; both are called on
    the event loop and must not block. ``cancel`` may be called from any thread, any number of times.
    """

    on_text: Callable[[str], None] = lambda _delta: None
    on_progress: Callable[[Step, int, int], None] = lambda _step, _done, _total: None
    stop: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        self.stop.set()

    @property
    def cancelled(self) -> bool:
        return self.stop.is_set()
