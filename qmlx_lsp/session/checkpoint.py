"""Writing a turn's state behind its answer.

Invariant: a checkpoint may fail in any way without failing the turn; the user is told once, until one succeeds.
Invariant: what is saved is keyed by the log it was copied from, whatever the conversation has become since.
Invariant: rows leave the engine in the same call that computed them, so no other turn comes between; the store's
thread alone writes, and the answer waits for it a bounded time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from qmlx_lsp.engine.backend import Backend, StateId
from qmlx_lsp.session.session import Session
from qmlx_lsp.state import StateCopy
from qmlx_lsp.storage.checkpoints import Key
from qmlx_lsp.transcript.tokens import TokenLog

TROUBLE = "checkpoints"  # what a notice of ours is about


@dataclass(frozen=True, slots=True)
class Copied:
    """A host copy of the state, or why there is none."""

    copy: StateCopy | None = None
    error: str | None = None


def copy_state(backend: Backend, state: StateId, start: int) -> Copied:
    """Copy what the store lacks of ``state``. On the engine thread."""
    try:
        return Copied(backend.copy_state(state, start))
    except Exception as error:  # noqa: BLE001 - whatever the model's code raises, the reply that is there counts
        return Copied(error=f"{type(error).__name__}: {error}")


async def save(session: Session, copied: Copied, log: TokenLog) -> int:
    """Hand ``copied``, a state of ``log``, to the store; returns the bytes written by the time the answer goes out.

    A slow disk goes on behind the answer.
    """
    if copied.copy is None:
        if copied.error is not None:
            _failed(session, copied.error)
        return 0
    services = session.services
    session.stored = copied.copy.end
    saving = asyncio.ensure_future(services.on_store(_save, session, copied.copy, log))
    saving.add_done_callback(lambda task: _ended(session, log, task))
    done, _ = await asyncio.wait({saving}, timeout=services.settings.store.answer_wait_s)
    return saving.result()[0] if done and saving.exception() is None else 0


def _save(session: Session, copy: StateCopy, log: TokenLog) -> tuple[int, bool]:
    """Write, and keep the newest checkpoint of this conversation whatever the quota says.

    Returns the bytes written and whether the state can now be found.
    """
    store, info = session.services.store, session.model.info
    assert store is not None
    saved = store.save(Key(info.fingerprint, log, info.needs_snapshot), copy, owner=str(session.root))
    return saved.written, saved.found is not None and saved.found.position == copy.end


def _ended(session: Session, log: TokenLog, saving: asyncio.Future[tuple[int, bool]]) -> None:
    error = None if saving.cancelled() else saving.exception()
    if error is not None:
        _failed(session, str(error) or type(error).__name__)
    elif not saving.cancelled() and saving.result()[1]:
        session.services.notice(TROUBLE, None)
        return
    if session.transcript.log is log:
        session.stored = None  # what we took to be there is not: the next turn asks the store


def _failed(session: Session, why: str) -> None:
    session.services.notice(TROUBLE, f"The conversation goes on, but its checkpoint was not written: {why}")
