"""The turns that run now, in all conversations, and who is told when that changes.

Invariant: whoever listens hears of every beginning and every end, in order, on the event loop, and cannot make either
fail.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from qmlx_lsp.session.event import Answer, Job

logger = logging.getLogger(__name__)

Listener = Callable[[Path, Answer | None], None]
"""Called with a root in which something has begun, or with how a turn there has ended."""


class Running:
    """Used on the event loop only."""

    def __init__(self) -> None:
        self._jobs: dict[Job, Path] = {}
        self._at_rest = asyncio.Event()
        self._listeners: list[Listener] = []

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(tuple(self._jobs))

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` from now on; returns how to stop."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def begin(self, job: Job, root: Path) -> None:
        self._jobs[job] = root
        self._at_rest.clear()
        self._tell(root, None)

    def end(self, job: Job, answer: Answer | None) -> None:
        """``answer`` is None where nothing came of it."""
        root = self._jobs.pop(job)
        if not self._jobs:
            self._at_rest.set()
        self._tell(root, answer)

    def within(self, root: Path) -> list[Job]:
        """What runs in the conversation of ``root``."""
        return [job for job, about in self._jobs.items() if about == root]

    def cancel(self) -> None:
        for job in self:
            job.cancel()

    async def rested(self, timeout_s: float) -> None:
        """Return when nothing runs, or after ``timeout_s`` seconds."""
        if self._jobs:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._at_rest.wait(), timeout_s)

    def _tell(self, root: Path, answer: Answer | None) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(root, answer)
            except Exception:  # a status line that cannot be told must not end a turn
                logger.exception("a listener failed")
