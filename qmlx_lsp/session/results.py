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

from qmlx_lsp.errors import ToolError
from qmlx_lsp.session.loading import seen
from qmlx_lsp.session.model import SYSTEM_TEXT
from qmlx_lsp.session.opening import forced, step_into
from qmlx_lsp.session.session import Session
from qmlx_lsp.session.turn import REPLY_TOKENS_MIN
from qmlx_lsp.transcript.entry import Entry, Kind
from qmlx_lsp.transcript.transcript import Draft, Transcript


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
                        return await _tell(session, text)
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


async def _tell(session: Session, text: str) -> int:
    """Append ``text``; the caller holds ``session.lock``.

    Raises:
        ToolError: it is longer than the model can read.
        StoreError: the log cannot be written.
    """
    await session.catch_up()
    entries = await _draft(session.transcript, text)
    if not _fits(session, session.transcript, entries):
        entries = await _begin_anew(session, text, entries)
    await session.services.on_log(session.services.log.append, session.conversation, entries, {})
    session.transcript.extend(entries)
    return len(entries[-1].ids)


async def _draft(transcript: Transcript, text: str) -> list[Entry]:
    first: list[Draft] = [] if transcript.entries else [(Kind.SYSTEM, SYSTEM_TEXT, None)]
    return await asyncio.to_thread(transcript.draft, [*first, (Kind.CONTEXT, text, None)])


def _fits(session: Session, transcript: Transcript, entries: Sequence[Entry]) -> bool:
    new = sum(len(entry.ids) for entry in entries)
    return len(transcript.log) + new + REPLY_TOKENS_MIN <= session.context_tokens


async def _begin_anew(session: Session, text: str, entries: Sequence[Entry]) -> list[Entry]:
    for make in forced(session) if session.transcript.entries else ():
        ahead = await asyncio.to_thread(make)
        drafted = await _draft(ahead.transcript, text)
        if _fits(session, ahead.transcript, drafted):
            await step_into(session, ahead)
            return drafted
    raise ToolError(
        f"The result has {len(entries[-1].ids):,} tokens, too many for the {session.context_tokens:,} that are read "
        "at most: lower tools.output_kb."
    )
