"""When nobody waits for an answer: then work is done that nobody asked for, until somebody asks something.

Invariant: work in idle time begins when nobody has waited for so many seconds, and is told to stop the moment
somebody does. Whoever waits does not wait for it to end, only for the pass that runs.
Invariant: one piece of such work runs at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from qmlx_lsp.session.event import Job
from qmlx_lsp.session.loading import seen


class Rest:
    """``work(job)`` is begun at every rest and looks at ``job.cancelled``. ``sleep`` is the clock."""

    def __init__(self, work: Callable[[Job], Awaitable[None]], idle_s: float) -> None:
        self._work = work
        self._idle_s = idle_s
        self._job = Job()
        self._tasks: list[asyncio.Task[None]] = []  # the last one may run; those before it were told to stop
        self._closed = False
        self.sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep

    def interrupt(self) -> None:
        """Somebody waits. Any number of times."""
        self._job.cancel()

    def begin(self, after_s: float | None = None) -> None:
        """Nobody waits any more; ``after_s`` in place of ``idle_s``."""
        if not self._closed:
            self._job.cancel()
            self._job = Job()
            former = self._running()
            pause = self._idle_s if after_s is None else after_s
            self._tasks = [*former, asyncio.create_task(self._run(former, self._job, pause))]
            self._tasks[-1].add_done_callback(seen)

    @property
    def busy(self) -> bool:
        """Whether something runs, or is going to after its pause."""
        return bool(self._running()) and not self._job.cancelled

    async def quiet(self) -> None:
        """Tell what runs to stop, and wait until it has."""
        self.interrupt()
        if running := self._running():
            await asyncio.wait(running)

    def _running(self) -> list[asyncio.Task[None]]:
        return [task for task in self._tasks if not task.done()]

    async def _run(self, former: list[asyncio.Task[None]], job: Job, pause_s: float) -> None:
        if former:
            await asyncio.wait(former)
        await job.unless_cancelled(self.sleep(pause_s))
        if not job.cancelled:
            await self._work(job)

    async def stop(self, timeout_s: float) -> None:
        """Begin nothing more, and wait at most so many seconds for what runs."""
        self._closed = True
        self._job.cancel()
        if running := self._running():
            _, late = await asyncio.wait(running, timeout=timeout_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
