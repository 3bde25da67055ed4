"""A result becomes one context entry of a conversation, at once and durably, without a question.

Invariant: it is in the log before anybody hears that it was told; if it cannot be, nothing has changed.
Invariant: it is told behind a turn that runs, and never to a conversation that is forgotten meanwhile.
Invariant: begun, telling is carried through, whatever becomes of the request that wanted it.
Invariant: a result that does not fit any more begins a new epoch, as a question would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from qmlx_lsp.session.loading import seen
from qmlx_lsp.session.session import Session
from qmlx_lsp.session.telling import say_result


class Results:
    """Tells results. ``session_of(root)`` opens a session, ``sessions()`` are those that are still somebody's;
    ``interrupt()`` and ``rest_again()`` stand around every telling."""

    def __init__(
        self,
        session_of: Callable[[Path], Awaitable[Session]],
        sessions: Callable[[], Sequence[Session]],
        interrupt: Callable[[], None],
        rest_again: Callable[[], None],
    ) -> None:
        self._session_of = session_of
        self._sessions = sessions
        self._interrupt = interrupt
        self._rest_again = rest_again
        self._telling: set[asyncio.Task[int]] = set()

    @property
    def busy(self) -> bool:
        return bool(self._telling)

    async def tell(self, root: Path, text: str) -> int:
        """Append ``text`` to the conversation of ``root``; returns the tokens of its entry. Raises QmlxError."""
        task = asyncio.create_task(self._tell(root, text))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)
        task.add_done_callback(seen)
        return await asyncio.shield(task)

    async def _tell(self, root: Path, text: str) -> int:
        self._interrupt()
        try:
            while True:
                session = await self._session_of(root)
                async with session.lock:
                    if any(session is held for held in self._sessions()):
                        return await say_result(session, text)
        finally:
            self._rest_again()

    async def settled(self, timeout_s: float) -> None:
        """Wait for what is being told, at most ``timeout_s`` seconds; what is not told by then will not be."""
        if self._telling:
            _, late = await asyncio.wait(self._telling, timeout=timeout_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
