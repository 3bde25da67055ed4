"""All live states together: they stay within the memory that they may take, and reach the disk before they go.

Invariant: a state that could not be brought to the disk is freed all the same when memory is short: it can be
computed again, and a machine that swaps cannot be worked with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from qmlx_lsp.session.checkpoint import hand_over, settled
from qmlx_lsp.session.loading import seen
from qmlx_lsp.session.session import Session


class LiveStates:
    """``sessions`` gives those that are open, ``limit_bytes`` is what their live states may take together."""

    def __init__(self, sessions: Callable[[], Sequence[Session]], limit_bytes: float) -> None:
        self._sessions = sessions
        self._limit = limit_bytes
        self._freeing: asyncio.Task[None] | None = None
        self._retries: set[asyncio.Task[None]] = set()

    def bound(self, newest: Session) -> None:
        """Free the states used longest ago until all of them fit; ``newest`` stays.

        What is not on the disk yet goes there first, in the background.
        """
        for session in self._too_much(newest):
            if session.saved >= session.live_position:
                _drop(session)
        if self._too_much(newest) and (self._freeing is None or self._freeing.done()):
            self._freeing = asyncio.create_task(self._free(newest))
            self._freeing.add_done_callback(seen)

    def _too_much(self, newest: Session) -> list[Session]:
        """The sessions to free, the one used longest ago first. Not those that are answering."""
        held = sorted(
            (s for s in self._sessions() if s.live is not None or s.ahead is not None), key=lambda s: s.last_used
        )
        excess = sum(s.held_bytes for s in held) - self._limit
        going: list[Session] = []
        for session in held:
            if excess > 0 and session is not newest and not session.lock.locked():
                going.append(session)
                excess -= session.held_bytes
        return going

    async def _free(self, newest: Session) -> None:
        for session in self._too_much(newest):
            used = session.last_used
            await self._hand_over(session)
            await settled(session)
            if not session.lock.locked() and session.last_used == used:  # else it is in use again
                _drop(session)

    @staticmethod
    async def _hand_over(session: Session) -> None:
        """Give the writer what is not on the disk yet, unless a turn is running, which does it by itself."""
        if not session.lock.locked():
            async with session.lock:
                await hand_over(session)

    def later(self, seconds: float, session: Session) -> None:
        """Try to checkpoint ``session`` once more in some seconds."""

        async def once() -> None:
            await asyncio.sleep(seconds)
            await self._hand_over(session)

        task = asyncio.create_task(once())
        self._retries.add(task)
        task.add_done_callback(self._retries.discard)
        task.add_done_callback(seen)

    async def hand_over(self) -> None:
        """Give the writer what is not on the disk yet: the last chance before the end."""
        for task in (*self._retries, *([self._freeing] if self._freeing else [])):
            task.cancel()
        for session in self._sessions():
            session.retry_at = 0.0
            await self._hand_over(session)


def _drop(session: Session) -> None:
    session.drop_ahead("memory")
    session.drop_live("memory")
