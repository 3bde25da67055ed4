"""A conversation begins anew, or is forgotten for good, while editors and turns go on around it.

It must never touch another conversation's turns, and never need the model.

Invariant: beginning anew waits for the turn that runs; forgetting cancels it, and waits until it has ended.
Invariant: what is forgotten has no session: its live state is dropped, its copies have left the writer's queue before
the files go, and whoever asks meanwhile waits for the end and finds an empty conversation.
Invariant: begun, either is carried through, whatever becomes of the request that wanted it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from qmlx_lsp.errors import QmlxError, QuestionError, StoreError
from qmlx_lsp.session.checkpoint import SETTLE_S
from qmlx_lsp.session.loading import seen
from qmlx_lsp.session.opening import owners
from qmlx_lsp.session.session import Services, Session
from qmlx_lsp.storage import forgetting, upkeep
from qmlx_lsp.storage.conversations import Conversation
from qmlx_lsp.storage.survey import Amount
from qmlx_lsp.transcript.transcript import Transcript

Opening = asyncio.Task[Session]

NEW = "begun anew"


async def _opened(opening: Opening | None) -> Session | None:
    """The session that is open or about to be; None when there is none, or when it could not be opened."""
    if opening is None or opening.cancelled():
        return None
    try:
        return await asyncio.shield(opening)
    except QmlxError:
        return None


async def begin_anew(services: Services, root: Path, opening: Opening | None) -> dict[str, Any]:
    """A new, empty epoch of ``root``'s conversation; the one that is there if that is empty.

    ``opening`` is what has opened its session, or does so now. Raises StoreError.
    """
    session = await _opened(opening)
    if session is None:
        return _begun(root, await services.on_log(services.log.begin_anew, str(root)))
    async with session.lock:
        await session.catch_up()
        conversation = await services.on_log(services.log.begin_anew, str(root))
        assert conversation is not None, "a session has a conversation"
        if conversation != session.conversation:
            session.conversation, session.told = conversation, {}
            session.transcript = Transcript(session.model.renderer)
            session.drop_live(NEW)
            session.drop_ahead(NEW)
    return _begun(root, conversation)


def _begun(root: Path, conversation: Conversation | None) -> dict[str, Any]:
    return {"root": str(root), "epoch": conversation.epoch if conversation is not None else 0}


async def forget(
    services: Services, root: Path, opening: Opening | None, quiet: Callable[[], Awaitable[None]]
) -> dict[str, Any]:
    """Delete ``root``'s conversation. What ``opening`` has opened is of no use any more; nobody gets it from now on.
    When ``quiet`` returns, nothing is done in idle time any more.

    Raises:
        QuestionError: there is no conversation.
        StoreError: something could not be deleted; what is left can be forgotten again.
    """
    await quiet()
    session = await _opened(opening)
    if session is not None:
        async with session.lock:
            session.drop_live("forgotten")
            session.drop_ahead("forgotten")
            session.unfinished = None
    await _settled(services, root)
    gone = await services.on_store(_forget_checkpoints, services, root)
    forgotten = await services.on_log(forgetting.forget_text, services.log, str(root), gone)
    if forgotten is None:
        raise QuestionError(f"There is no conversation for {root}.")
    return forgotten.as_dict()


def _forget_checkpoints(services: Services, root: Path) -> Amount:
    store = services.store
    if store is None:
        return forgetting.NOTHING
    for owner in owners(root):
        store.pin(owner, None)
    with upkeep.trouble(store.folder):
        return forgetting.forget_checkpoints(services.log, str(root), store.catalog)


async def _settled(services: Services, root: Path) -> None:
    """Wait until no copy waits for the disk. Raises StoreError when that takes too long."""
    writer = services.writer
    pending = [future for owner in owners(root) for future in writer.pending(owner)] if writer else []
    waiting = [asyncio.wrap_future(future) for future in pending]
    for future in waiting:
        future.add_done_callback(seen)
    if waiting and (await asyncio.wait(waiting, timeout=SETTLE_S))[1]:
        raise StoreError(f"checkpoints of {root} are still being written: wait a moment and forget it again")
