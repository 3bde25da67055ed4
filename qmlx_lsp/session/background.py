"""Reading tokens into a live state while nobody waits for it, a pass at a time.

Invariant: between two passes the lock is free and the job is looked at, so whoever wants the conversation or the
model waits for one pass at most.
Invariant: what was read is in the live state after every pass, so that stopping loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from qmlx_lsp.engine.backend import Backend, StateId
from qmlx_lsp.engine.worker import EngineBusy, Priority
from qmlx_lsp.session.checkpoint import Copier, copier, points, save
from qmlx_lsp.session.event import Job
from qmlx_lsp.session.loading import seen
from qmlx_lsp.session.resume import resume
from qmlx_lsp.session.session import Session

T = TypeVar("T")


async def call(session: Session, job: Job, work: Callable[[Backend], T]) -> T | None:
    """``work`` on the engine, behind whatever else waits for it. None when ``job`` was cancelled before it began."""
    future = session.services.worker.submit(work, Priority.BACKGROUND)
    result = asyncio.wrap_future(future)
    result.add_done_callback(seen)
    await job.unless_cancelled(asyncio.wait({result}))
    if not result.done():
        future.cancel()  # unless it has begun
        await asyncio.wait({result})
    return None if result.cancelled() else result.result()


async def dropping(session: Session, work: Coroutine[Any, Any, T]) -> T:
    """``work``; if it fails, nobody knows what the live state has read, and it goes."""
    known = False
    try:
        result = await work
        known = True
    except EngineBusy:
        known = True  # it was not even begun
        raise
    finally:
        if not known:
            session.drop_live("dropped after an error")
    return result


async def read(session: Session, job: Job, *, copy_end: bool) -> None:
    """Read the log into the live state as far as ``job`` lets, restoring first what the store has, and copy the state
    for the store on a long way; at the end of it only with ``copy_end``."""
    async with session.lock:
        if job.cancelled or not session.transcript.entries:
            return
        state = (await resume(session, Job())).state
        log, end = session.transcript.log, len(session.transcript.log)
        stops = [*points(session, session.live_position, end), end]
    chunk = session.services.settings.engine.prefill_chunk_tokens
    while True:
        async with session.lock:
            at = session.live_position
            if job.cancelled or session.live != state or session.transcript.log is not log or at >= end:
                return
            to = min(at + chunk, next(stop for stop in stops if stop > at))
            copies = to in stops and (copy_end or to < end)
            copying = copier(session, state) if copies else None
            nbytes = await dropping(session, call(session, job, _chunk(state, log.ids(at, to), copying)))
            if nbytes is None:
                return
            session.settle(state, to)
            session.live_bytes = nbytes
            await save(session, copying, 0.0)


def _chunk(state: StateId, ids: list[int], copying: Copier | None) -> Callable[[Backend], int]:
    def work(backend: Backend) -> int:
        backend.prefill(state, ids)
        if copying is not None:
            copying.copy(backend)
        return backend.nbytes(state)

    return work
