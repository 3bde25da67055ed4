"""The next epoch, prepared while nobody waits: summary → opening → read → checkpoint → step.

As a conversation comes near its limit (``context.epoch_share``), the model writes a summary of it on a branch of the
live state; the opening (``session/opening.py``) is read into a state of its own and brought to the disk; then the
conversation goes on with that one. So whoever asks next waits for nothing.

Invariant: until the step, the old epoch is as it was: its log, its live state (the branch is taken back) and what the
store has of it. Whatever fails here fails without harm, and is tried again at a later rest.
Invariant: a question stops this within one pass of the model. A summary that was finished is kept, and so is what was
read, as far as the next opening begins with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from qmlx_lsp.engine.backend import Backend, Sampling, StateId
from qmlx_lsp.engine.generation import Job as EngineJob
from qmlx_lsp.engine.generation import Outcome, generate
from qmlx_lsp.engine.worker import EngineBusy, EngineClosed
from qmlx_lsp.session.background import call, dropping, read
from qmlx_lsp.session.checkpoint import hand_over, settled
from qmlx_lsp.session.event import Job
from qmlx_lsp.session.opening import carried, due_at, opening_tokens, prepared, step_into
from qmlx_lsp.session.session import Session
from qmlx_lsp.transcript.entry import Finish, Kind
from qmlx_lsp.transcript.epoch import SUMMARY_REQUEST, Summary, complete

T = TypeVar("T")
logger = logging.getLogger(__name__)

# Tokens that must be left for a summary; with fewer there is none.
SUMMARY_TOKENS_MIN = 16


async def prepare(session: Session, job: Job, bound: Callable[[Session], None]) -> None:
    """Bring the next epoch of ``session`` as far as ``job`` lets, if it is time to. Never raises.

    ``bound`` is called when the memory of the session's states has grown or is going to.
    """
    at = due_at(session)
    if at is None or len(session.transcript.log) < at or session.live is None:
        return  # without its live state the conversation is not in use: a turn brings it back
    try:
        await _prepare(session, job, bound)
    except (EngineBusy, EngineClosed):
        return
    except Exception as error:  # noqa: BLE001 - nobody asked for this; the conversation goes on as it is
        logger.warning("the next epoch of %s was not prepared: %s: %s", session.root, type(error).__name__, error)
        session.drop_ahead("dropped after an error")
    finally:
        session.preparing = None


async def _prepare(session: Session, job: Job, bound: Callable[[Session], None]) -> None:
    session.preparing = "summary"
    if not await _summarise(session, job):
        return
    session.preparing = "files"
    ahead = await _open(session, job)
    if ahead is None:
        return
    bound(session)
    session.preparing = "reading"
    await read(ahead, job, copy_end=True)
    if session.ahead is not ahead:
        ahead.drop_live("new epoch")  # by a turn that had to, before there was a state
        return
    bound(session)
    if ahead.live_position < len(ahead.transcript.log):
        return
    session.preparing = "saving"
    await _save(ahead, job)
    async with session.lock:
        if job.cancelled or session.ahead is not ahead or not session.ahead_fits:
            return
        session.preparing = "stepping"
        await session.catch_up()
        await step_into(session, ahead)
    bound(session)


# --- summary --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Branch:
    """What came out of a branch. ``rewound``: the state is back where it was; else it has been dropped."""

    outcome: Outcome
    rewound: bool


async def _summarise(session: Session, job: Job) -> bool:
    """Have the model sum up the conversation. False when there is to be no opening now; True with a summary, or when
    there can be none."""
    if complete(session.known_summary, session.transcript.entries, carried(session)):
        return True
    if session.model.info.not_persisted is not None:
        return True  # its caches are of a class that cannot be rewound
    async with session.lock:
        state, transcript = session.live, session.transcript
        if job.cancelled or state is None:
            return False
        engine_job = _request(session, state)
        if engine_job.max_tokens < SUMMARY_TOKENS_MIN:
            return True
        let_in = session.services.worker.let_in
        branch = await dropping(
            session, call(session, job, lambda backend: _on_branch(backend, engine_job, job, let_in))
        )
        if branch is None:
            return False
        if not branch.rewound:
            session.settle(None, None, "dropped after an error")
        if branch.outcome.finish is Finish.ERROR:
            logger.warning("no summary of %s: %s", session.root, branch.outcome.error)
        if branch.outcome.finish in (Finish.ERROR, Finish.CANCELLED):
            return False
        end = len(transcript.log)
        session.summary = Summary(end, _text(session, branch.outcome), transcript.log.digest(end))
        return branch.rewound and not job.cancelled


def _request(session: Session, state: StateId) -> EngineJob:
    """The request for a summary behind all that was said; thoughts, if the model has them, come on top."""
    settings, info, transcript = session.services.settings, session.model.info, session.transcript
    request = transcript.draft([(Kind.QUESTION, SUMMARY_REQUEST, None)])
    header = transcript.reply_header(request)
    most = min(settings.context.summary_tokens, opening_tokens(session) // 2)
    if _thinks(session):
        most += settings.model.max_tokens
    return EngineJob(
        state=state,
        prefill=[*transcript.log.ids(session.live_position), *(i for entry in request for i in entry.ids)],
        header=header,
        eos_ids=info.eos_ids,
        spare=session.model.renderer.spare_ids,
        max_tokens=min(most, info.context_tokens - request[-1].end - len(header)),
        sampling=Sampling(settings.model.temperature, settings.model.top_p),
        chunk_tokens=settings.engine.prefill_chunk_tokens,
    )


def _thinks(session: Session) -> bool:
    fragments = session.model.renderer.fragments
    return session.services.settings.model.thinking and bool(fragments.think_end or fragments.channels)


def _on_branch(backend: Backend, engine_job: EngineJob, job: Job, let_in: Callable[[Backend], None]) -> _Branch:
    """Generate on top of the state and go back to where it was."""
    mark = backend.mark(engine_job.state)
    outcome = generate(
        backend,
        engine_job,
        cancelled=job.stop.is_set,
        on_prefill=lambda _done, _total: None,
        on_token=lambda _id: None,
        let_in=let_in,
    )
    if outcome.position is None:
        return _Branch(outcome, rewound=False)
    try:
        backend.rewind(engine_job.state, mark)
    except (ValueError, AssertionError):
        backend.drop_state(engine_job.state)
        return _Branch(outcome, rewound=False)
    return _Branch(outcome, rewound=True)


def _text(session: Session, outcome: Outcome) -> str:
    """The summary in ``outcome``, without thoughts; empty when it has none."""
    renderer = session.model.renderer
    return renderer.answer(renderer.fragments.prompt, outcome.ids)


# --- opening, prefill, checkpoint -----------------------------------------------------------------------------------


async def _open(session: Session, job: Job) -> Session | None:
    """The opening as it would be now, with what has been read of it already; None when something was said meanwhile,
    or when there is no room for one."""
    log = session.transcript.log
    of = log.digest(len(log))
    made = await prepared(session)
    if job.cancelled or session.transcript.log is not log or log.digest(len(log)) != of:
        return None
    former = session.ahead
    if former is not None and made is not None:
        wanted, read = made.transcript.log, former.transcript.log
        if len(wanted) == len(read) and wanted.digest(len(wanted)) == read.digest(len(read)):
            session.ahead_of = of
            return former
        known = former.live_position
        if former.live is not None and known <= len(wanted) and wanted.digest(known) == read.digest(known):
            made.settle(former.live, known)
            made.live_bytes = former.live_bytes
            former.settle(None, None, "new epoch")
    session.drop_ahead("new epoch")
    if made is not None:  # what it is going to take
        made.live_bytes = max(made.live_bytes, len(made.transcript.log) * session.model.info.row_bytes)
    session.ahead, session.ahead_of = made, of
    return made


async def _save(ahead: Session, job: Job) -> None:
    """Wait until the opening is on the disk, or cannot be brought there: then the epoch begins without."""
    await job.unless_cancelled(settled(ahead))
    if ahead.saved < len(ahead.transcript.log):  # all was read at an earlier rest
        async with ahead.lock:
            await job.unless_cancelled(hand_over(ahead))
        await job.unless_cancelled(settled(ahead))
