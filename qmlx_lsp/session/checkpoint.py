"""Getting a conversation's state to the disk: behind its turns, before it leaves memory, and at the end.

Invariant: a checkpoint may fail in any way without failing the turn; the user is told once, until one succeeds.
Invariant: what is saved is keyed by the log it was copied from, whatever the conversation has become since.
Invariant: rows leave the engine in the same call that computed them, so no other turn comes between; the writer's
thread alone writes, and the answer waits for it a bounded time.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from dataclasses import dataclass, field

from qmlx_lsp.engine.backend import Backend, StateId
from qmlx_lsp.engine.plan import restore_points
from qmlx_lsp.engine.worker import EngineClosed, Priority
from qmlx_lsp.session.loading import seen
from qmlx_lsp.session.session import Session
from qmlx_lsp.state import StateCopy
from qmlx_lsp.storage.checkpoints import Saved
from qmlx_lsp.storage.saving import Key
from qmlx_lsp.storage.writer import WriteBehind

TROUBLE = "checkpoints"  # what a notice of ours is about
SETTLE_S = 30.0  # seconds; what a disk has not written by then is taken not to be there
# Models without a snapshot get checkpoints during a prefill so many times as often.
ROWS_ONLY_SHARE = 4
RETRY_DOUBLINGS = 5  # a failed checkpoint is tried again ever later, up to 2 ** 5 times ``store.retry_s``

Pending = tuple[int, Future[Saved]]  # the position that was copied, and what becomes of it


@dataclass(slots=True, eq=False)
class Copier:
    """Copies of one state, made while it grows. ``take`` and ``copy`` run on the engine thread, the rest on the loop.

    ``start``: rows before it are stored, or on the way. ``merge``: see ``Saved.merge``.
    """

    writer: WriteBehind
    owner: str
    key: Key
    state: StateId
    start: int
    merge: tuple[int, int] | None
    pending: list[Pending] = field(default_factory=list)
    taken: tuple[StateCopy, StateCopy | None] | None = None
    error: str | None = None

    def copy(self, backend: Backend) -> None:
        """Copy a state of tokens that are in the log already, and hand it to the writer."""
        self.take(backend)
        self.submit()

    def take(self, backend: Backend) -> None:
        """Copy what the store lacks. Never fails the turn."""
        try:
            position = backend.position(self.state)
            new = position > self.start or (position == self.start and self.key.needs_snapshot)
            if new and position and not self.writer.full:
                copied = backend.copy_state(self.state, self.start)
                self.taken = copied, backend.copy_state(self.state, *self.merge) if self.merge else None
        except Exception as error:  # noqa: BLE001 - whatever the model's code raises, the reply that is there counts
            self.error = f"{type(error).__name__}: {error}"

    def submit(self) -> None:
        """Hand over what was taken; the log must have all of its ids by now."""
        if self.taken is None:
            return
        copied, merged = self.taken
        self.taken = None
        future = self.writer.submit(self.owner, self.key, copied, merged)
        if future is not None:
            self.start, self.merge = copied.end, None
            self.pending.append((copied.end, future))


def copier(session: Session, state: StateId) -> Copier | None:
    """What copies ``state`` for the store; None when there is nothing to copy for, or no use in trying just now."""
    writer = session.services.writer
    if writer is None or session.stored is None or session.model.info.not_persisted is not None:
        return None
    if time.monotonic() < session.retry_at:
        return None
    info, entries = session.model.info, session.transcript.entries
    anchors = (entries[0].end,) if entries else ()
    key = Key(info.fingerprint, session.transcript.log, info.needs_snapshot, anchors)
    return Copier(writer, session.owner, key, state, session.stored, session.merge)


async def save(session: Session, made: Copier | None, wait_s: float | None) -> int:
    """Follow up the copies that ``made`` has made; returns the bytes written within ``wait_s`` (None: till all are).

    A slow disk goes on behind the answer.
    """
    if made is None:
        return 0
    if made.error is not None:
        _failed(session, made.error)
        return 0
    made.submit()
    session.stored, session.merge = made.start, made.merge
    saving = [asyncio.ensure_future(_follow(session, made.key, end, future)) for end, future in made.pending]
    if not saving:
        return 0
    done, _ = await asyncio.wait(saving, timeout=wait_s)
    return sum(task.result() for task in done)


async def _follow(session: Session, key: Key, end: int, future: Future[Saved]) -> int:
    """Draw the consequences of one save; returns the bytes written."""
    try:
        saved = await asyncio.shield(asyncio.wrap_future(future))
    except Exception as error:  # noqa: BLE001 - whatever became of it, the turn that it belongs to is over
        _failed(session, str(error) or type(error).__name__, key)
        return 0
    if session.transcript.log is not key.log:
        return saved.written
    if saved.covered < end:
        session.stored = None  # what we took to be there is not: the next turn asks the store
    elif saved.found is not None and saved.found.position == end:
        session.saved, session.merge = max(session.saved, end), saved.merge
        session.failures = 0
        session.services.notice(TROUBLE, None)
    return saved.written


def _failed(session: Session, why: str, key: Key | None = None) -> None:
    services = session.services
    services.notice(TROUBLE, f"The conversation goes on, but its checkpoint was not written: {why}")
    if key is None or session.transcript.log is key.log:
        session.stored = None
    pause = services.settings.store.retry_s * 2 ** min(session.failures, RETRY_DOUBLINGS)
    session.failures += 1
    session.retry_at = time.monotonic() + pause
    if pause:
        services.later(pause, session)


def points(session: Session, start: int, end: int) -> list[int]:
    """Where a prefill of ``[start, end)`` leaves checkpoints: where every conversation of this model begins to
    differ, and every now and then on a long way."""
    store, system = session.services.settings.store, session.transcript.entries[0].end
    # Rows are written once, wherever the points lie; a snapshot is written for each.
    spacing = store.point_tokens if session.model.info.needs_snapshot else store.point_tokens // ROWS_ONLY_SHARE
    found = set(restore_points(start, end, spacing, store.points_max))
    if start < system < end and system >= store.restore_gain_tokens:
        found.add(system)
    return sorted(found)


# --- outside a turn -------------------------------------------------------------------------------------------------


async def settled(session: Session) -> None:
    """Wait until nothing of this conversation waits for the disk any more; at most SETTLE_S."""
    writer = session.services.writer
    waiting = [asyncio.wrap_future(future) for future in writer.pending(session.owner)] if writer else []
    for future in waiting:
        future.add_done_callback(seen)
    if waiting:
        await asyncio.wait(waiting, timeout=SETTLE_S)


async def ask_covered(session: Session) -> None:
    """Find out how much of the log has its rows in the store, if that is not known."""
    services, info = session.services, session.model.info
    if services.store is None or info.not_persisted is not None or session.stored is not None:
        return
    await settled(session)
    log = session.transcript.log
    session.stored = await services.on_store(services.store.covered, info.fingerprint, log, len(log))


async def hand_over(session: Session) -> None:
    """Give the writer what is neither on the disk nor on its way. The caller holds the lock."""
    writer, state = session.services.writer, session.live
    if writer is None or state is None or session.saved >= session.live_position:
        return
    if writer.pending(session.owner):
        return  # the last turn's copy is on its way
    await ask_covered(session)
    if session.stored is None or session.stored > session.live_position:
        return  # the store has rows of a state that went further, and one that went less far cannot be added
    made = copier(session, state)
    if made is not None:
        try:
            await session.services.worker.call(made.copy, Priority.BACKGROUND)
        except EngineClosed:
            return
        await save(session, made, 0.0)
