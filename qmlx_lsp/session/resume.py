"""Where a turn goes on from: the live state, a checkpoint, or nothing; whichever is furthest on.

Invariant: a restore is into a state of its own, which takes the live one's place only when it has been verified.
Invariant: a checkpoint that is refused is a miss, and the next best one is tried.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from qmlx_lsp.engine.backend import Backend, Restored, StateId
from qmlx_lsp.engine.plan import Plan, Start, resume_plan
from qmlx_lsp.engine.worker import EngineBusy, EngineClosed
from qmlx_lsp.errors import CheckpointRejected
from qmlx_lsp.session.checkpoint import ask_covered, settled
from qmlx_lsp.session.event import Job, Step
from qmlx_lsp.session.session import Session
from qmlx_lsp.storage.checkpoints import Found

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resumed:
    """The state a turn goes on from, and what it took to have it."""

    state: StateId
    plan: Plan
    reason: str | None
    restore_ms: float
    restore_bytes: int


async def resume(session: Session, job: Job) -> Resumed:
    """The live state, a restored one or a new one; whichever is furthest on."""
    if session.live is None:
        await settled(session)  # what is still on its way to the disk can be found when it is there
    resumed = await _choose(session, job)
    await ask_covered(session)
    return resumed


async def _choose(session: Session, job: Job) -> Resumed:
    services, info = session.services, session.model.info
    wanted = len(session.transcript.log)
    live = session.live_position if session.live is not None else None
    reason: str | None = session.not_live
    stored: list[Found] = []
    gain = services.settings.store.restore_gain_tokens
    further = live is None or (wanted - live >= gain and (session.stored is None or session.stored > live))
    if services.store is not None and info.not_persisted is None and further:  # else a slow disk costs nothing
        stored = await services.on_store(_find, session, wanted)
    while True:
        plan = resume_plan(wanted, live, [found.position for found in stored], gain)
        if plan.start is Start.LIVE and session.live is not None:
            return Resumed(session.live, plan, None, 0.0, 0)
        if plan.candidate is None:
            if services.store is not None and info.not_persisted is None and not stored and reason == "start":
                reason = await services.on_store(_why_none, session, wanted)
            elif info.not_persisted is not None:
                reason = f"not persisted: {info.not_persisted}"
            session.drop_live(reason or "start")
            state = await services.worker.call(lambda backend: backend.new_state())
            session.settle(state, 0)
            return Resumed(state, plan, reason, 0.0, 0)
        job.on_progress(Step.RESTORING, 0, plan.position)
        found = stored.pop(plan.candidate)
        began = time.perf_counter()
        try:
            restored = await services.worker.call(lambda backend, found=found: _restore(session, backend, found))  # type: ignore[misc]
        except CheckpointRejected as error:
            reason = error.reason
            await services.on_store(_reject, session, found, error)
            continue
        except (EngineBusy, EngineClosed):
            raise
        except Exception as error:  # noqa: BLE001 - whatever the model's code raises, what is not restored is read
            logger.warning("a checkpoint was not restored: %s: %s", type(error).__name__, error)
            reason = "failed"
            continue
        session.drop_live("restored")
        session.settle(restored.state, plan.position)
        session.saved = plan.position
        await services.on_store(_pin, session, found)  # it is what this conversation stands on
        took = (time.perf_counter() - began) * 1000
        return Resumed(restored.state, plan, reason, took, restored.bytes)


def _find(session: Session, limit: int) -> list[Found]:
    store, info = session.services.store, session.model.info
    assert store is not None
    return store.find(info.fingerprint, session.transcript.log, needs_snapshot=info.needs_snapshot, limit=limit)


def _why_none(session: Session, limit: int) -> str:
    store, info = session.services.store, session.model.info
    assert store is not None
    return store.why_none(info.fingerprint, session.transcript.log, limit=limit)


def _restore(session: Session, backend: Backend, found: Found) -> Restored:
    assert session.services.store is not None
    with session.services.store.open(found) as stored:
        return backend.restore(stored)


def _pin(session: Session, found: Found) -> None:
    assert session.services.store is not None
    session.services.store.pin(session.owner, found)


def _reject(session: Session, found: Found, error: CheckpointRejected) -> None:
    assert session.services.store is not None
    session.services.store.reject(found, error)
