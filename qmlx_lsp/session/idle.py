"""What is done while nobody waits: reading ahead where somebody works, and preparing the next epochs.

Both give way to questions at once; reading ahead gives way to everything that the user does.

Invariant: reading ahead begins after a pause in the work, and only where there was some.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from qmlx_lsp.errors import QmlxError
from qmlx_lsp.session.epoch import prepare
from qmlx_lsp.session.event import Job
from qmlx_lsp.session.read_ahead import enough_power, read_ahead
from qmlx_lsp.session.rest import Rest
from qmlx_lsp.session.session import Session
from qmlx_lsp.settings import Settings

ECHOES_MAX = 9
"""Doublings at most of the pause before something is read that only the disk has brought."""


class IdleWork:
    """``sessions()`` are those that are open, ``session(root)`` opens one. ``bound(session)`` is called when the
    memory of a session's states has grown, ``warm(session, job)`` when all has been read there.
    ``enough_power(percent)`` is asked before anything is read ahead."""

    def __init__(
        self,
        settings: Settings,
        sessions: Callable[[], Sequence[Session]],
        session: Callable[[Path], Awaitable[Session]],
        bound: Callable[[Session], None],
        warm: Callable[[Session, Job], Awaitable[None]],
    ) -> None:
        self._ahead = settings.ahead
        self._sessions = sessions
        self._session = session
        self._bound = bound
        self._warm = warm
        self.epochs = Rest(self._prepare, settings.context.idle_s)
        self.reading = Rest(self._read, settings.ahead.after_s)
        self.enough_power: Callable[[float], Awaitable[bool]] = enough_power
        self._stirred: dict[Path, None] = {}  # where somebody has worked since it was last read, the latest last
        self._pausing: asyncio.Handle | None = None
        self._waiting = False
        self._echoes = 0  # how often something was read that the disk alone has brought, since the user did anything

    def stirred(self, root: Path, *, typing: bool = False) -> None:
        """The user does something in ``root``: reading ahead gives way, and begins again after a pause."""
        if not self._ahead.enabled:
            return
        self.reading.interrupt()
        self._stirred.pop(root, None)
        self._stirred[root] = None
        self._echoes = 0
        if self._pausing is not None:  # a burst of messages is one stir
            self._pausing.cancel()
        pause = self._ahead.pause_s if typing else self._ahead.after_s
        self._pausing = asyncio.get_running_loop().call_soon(self._pause, pause)

    def noticed(self, root: Path) -> None:
        """Something that is known of ``root`` has changed without its user: that interrupts nothing, and where it
        goes on and on, ever longer pauses lie between."""
        if not self._ahead.enabled:
            return
        self._stirred.setdefault(root)
        if not (self._waiting or self._pausing is not None or self.reading.busy):
            self.reading.begin(self._ahead.after_s * 2**self._echoes)
            self._echoes = min(self._echoes + 1, ECHOES_MAX)

    def _pause(self, pause_s: float) -> None:
        self._pausing = None
        if not self._waiting:
            self.reading.begin(pause_s)

    def interrupt(self) -> None:
        """Somebody waits for an answer."""
        self._waiting = True
        self.reading.interrupt()
        self.epochs.interrupt()

    def begin(self) -> None:
        """Nobody waits any more."""
        self._waiting = False
        self.epochs.begin()
        if self._stirred:
            self.reading.begin()

    async def quiet(self) -> None:
        """Tell what runs to stop, and wait until it has."""
        await self.reading.quiet()
        await self.epochs.quiet()

    async def stop(self, timeout_s: float) -> None:
        """Begin nothing more, and wait at most so many seconds for what runs."""
        deadline = time.monotonic() + timeout_s
        await self.reading.stop(timeout_s)
        await self.epochs.stop(max(0.0, deadline - time.monotonic()))

    async def _prepare(self, job: Job) -> None:
        """Prepare the next epochs, that of the conversation used last first."""
        for session in sorted(self._sessions(), key=lambda s: -s.last_used):
            if not job.cancelled:
                await prepare(session, job, self._bound)

    async def _read(self, job: Job) -> None:
        """Read what is new where somebody works, the place of the latest work first."""
        if not await self.enough_power(self._ahead.battery_percent):
            return
        for root in reversed(tuple(self._stirred)):
            with contextlib.suppress(QmlxError):  # whoever asks is told
                session = await job.unless_cancelled(self._open(root))
                if session is not None:
                    session.last_used = time.monotonic()
                    await read_ahead(session, job, partial(self._is_open, session), self._bound)
                    if not job.cancelled:
                        await self._warm(session, job)
            if job.cancelled:
                return
            self._stirred.pop(root, None)

    async def _open(self, root: Path) -> Session:
        return await self._session(root)

    def _is_open(self, session: Session) -> bool:
        return session in self._sessions()
