"""One turn, from the question to the checkpoint, as one straight function: ``run_turn``.

gather → append → plan → restore → prefill → stream → record → checkpoint

Invariant: the question is durable before the model reads it, and the reply's end before it is reported.
Invariant: a cancelled reply is recorded as exactly the ids that were produced; a reply of no ids leaves no entry.
Invariant: a checkpoint may fail in any way without failing the turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from qmlx_lsp.engine.backend import Backend, Sampling
from qmlx_lsp.engine.generation import Job as EngineJob
from qmlx_lsp.engine.generation import Outcome, generate
from qmlx_lsp.engine.plan import Start
from qmlx_lsp.errors import StoreError
from qmlx_lsp.session.checkpoint import Copier, copier, points, save
from qmlx_lsp.session.event import Answer, Ask, Job, Step, Usage
from qmlx_lsp.session.reply import GrowingReply
from qmlx_lsp.session.resume import Resumed, resume
from qmlx_lsp.session.session import Session
from qmlx_lsp.session.telling import say_question
from qmlx_lsp.transcript.entry import Finish

CANCELLED_EARLY = Usage(0, 0, 0, 0, 0, 0.0, 0, 0.0, None, None, 0, "none", "cancelled before it began")


@dataclass(frozen=True, slots=True)
class _Computed:
    """What came out of the engine: when it began, how it ended, the state's size, and who copied it for the store."""

    began: float
    outcome: Outcome
    nbytes: int
    copier: Copier | None


async def run_turn(session: Session, ask: Ask, job: Job) -> Answer:
    """Answer ``ask`` in ``session``; the caller holds ``session.lock``.

    Raises:
        QuestionError: the question cannot be asked; nothing was recorded.
        StoreError: the conversation log cannot be written; what is missing in it is written before the next turn.
    """
    if job.cancelled:
        return Answer(None, "", Finish.CANCELLED, CANCELLED_EARLY)
    started = time.perf_counter()
    await session.catch_up()
    await say_question(session, ask)
    resumed = await resume(session, job)
    turn, reply, computed = await _compute(session, ask, job, resumed)
    outcome = computed.outcome
    usage = _usage(resumed, outcome, (computed.began - started) * 1000)
    text = reply.finish()
    turn_id = await _record(session, turn, outcome, text, usage)
    session.live_bytes = computed.nbytes if session.live is not None else 0
    if written := await save(session, computed.copier, session.services.settings.store.answer_wait_s):
        usage = replace(usage, written_bytes=written)
        if turn_id is not None:
            with contextlib.suppress(StoreError):  # the turn itself is in the log
                await session.services.on_log(session.services.log.amend_usage, turn_id, usage.as_dict())
    session.last_usage = usage
    return Answer(turn_id, text, outcome.finish, usage, outcome.error)


# --- prefill and stream -------------------------------------------------------------------------------------------


async def _compute(session: Session, ask: Ask, job: Job, resumed: Resumed) -> tuple[int, GrowingReply, _Computed]:
    """Run the engine over what is new and stream the reply; returns the open turn, the reply and how it ended."""
    services, settings = session.services, session.services.settings
    loop = asyncio.get_running_loop()
    header = session.transcript.reply_header()
    reply = GrowingReply(session.model.renderer.shown(header), job.on_text, settings.stream.batch_ms)
    source = await asyncio.to_thread(session.model.renderer.codec.encode_data, ask.source) if ask.source else []
    engine_job, copying = _engine_job(session, ask, resumed, header, source)
    turn = await services.on_log(
        services.log.begin_reply, session.conversation, session.transcript.reply(header, [], Finish.OPEN, "")
    )

    def on_prefill(done: int, total: int) -> None:
        loop.call_soon_threadsafe(job.on_progress, Step.READING, done, total)

    def on_token(token: int) -> None:
        loop.call_soon_threadsafe(reply.feed, token)

    async def journal(ids: list[int], text: str) -> None:
        await services.on_log(services.log.journal_reply, turn, [*header, *ids], text)

    def work(backend: Backend) -> _Computed:
        began = time.perf_counter()
        outcome = generate(
            backend,
            engine_job,
            cancelled=job.stop.is_set,
            on_prefill=on_prefill,
            on_token=on_token,
            let_in=services.worker.let_in,
        )
        if outcome.position is None:
            return _Computed(began, outcome, 0, copying)
        if copying is not None:
            copying.take(backend)
        return _Computed(began, outcome, backend.nbytes(resumed.state), copying)

    journalling = asyncio.create_task(reply.keep_journal(journal, settings.stream.journal_ms))
    session.unfinished = partial(services.log.drop_reply, turn)  # unless it comes to something
    session.standing = (resumed.plan.position, _question(session))
    try:
        computed = await services.worker.call(work)
        session.unfinished = None
    finally:
        session.standing = ()
        journalling.cancel()
        await asyncio.gather(journalling, return_exceptions=True)
        if session.unfinished is not None:
            session.drop_live("dropped after an error")
            await session.catch_up()
    return turn, reply, computed


def _engine_job(
    session: Session, ask: Ask, resumed: Resumed, header: Sequence[int], source: Sequence[int]
) -> tuple[EngineJob, Copier | None]:
    """What the engine is to do, and who copies for the store on the way."""
    settings, transcript, began = session.services.settings, session.transcript, resumed.plan.position
    asked, question = len(transcript.log), _question(session)
    engine_job = EngineJob(
        state=resumed.state,
        prefill=transcript.log.ids(began, asked),
        header=header,
        eos_ids=session.model.info.eos_ids,
        spare=session.model.renderer.spare_ids,
        max_tokens=min(ask.max_tokens or settings.model.max_tokens, session.context_tokens - asked - len(header)),
        sampling=Sampling(settings.model.temperature, settings.model.top_p),
        chunk_tokens=settings.engine.prefill_chunk_tokens,
        bases=[question - began] if session.completes and question > began else (),
        source=source,
        tail_tokens=settings.engine.tail_tokens,
    )
    copying = copier(session, resumed.state)
    if copying is not None:
        at = [point - began for point in points(session, began, asked)]
        engine_job = replace(engine_job, points=at, at_point=copying.copy)
    return engine_job, copying


def _question(session: Session) -> int:
    """Where the last thing that was said begins."""
    return session.transcript.entries[-1].start


# --- record -------------------------------------------------------------------------------------------------------


async def _record(session: Session, turn: int, outcome: Outcome, text: str, usage: Usage) -> int | None:
    """Make the reply's end durable and bring the live state's position in line. Returns the turn, if one remains."""
    log = session.services.log
    turn_id: int | None = None
    session.unfinished = partial(log.drop_reply, turn)
    if outcome.ids:
        entry = session.transcript.reply(session.transcript.reply_header(), outcome.ids, outcome.finish, text)
        session.unfinished = partial(log.finish_reply, turn, entry, usage.as_dict())
        session.transcript.extend([entry])
        turn_id = turn
    session.settle(session.live, outcome.position, "dropped after an error")
    await session.catch_up()
    return turn_id


def _usage(resumed: Resumed, outcome: Outcome, before_engine: float) -> Usage:
    """What the turn cost. ``ttft_ms`` counts from the turn's start: gathering, restoring, waiting for the engine
    (``before_engine`` ms), reading, first token."""
    restored = resumed.plan.position if resumed.plan.start is Start.RESTORE else 0
    live = resumed.plan.position if resumed.plan.start is Start.LIVE else 0
    decoded = len(outcome.ids) - 1
    return Usage(
        context=live + restored + outcome.prefilled,
        live=live,
        restored=restored,
        prefilled=outcome.prefilled,
        generated=len(outcome.ids),
        restore_ms=round(resumed.restore_ms, 2),
        restore_bytes=resumed.restore_bytes,
        prefill_ms=round(outcome.prefill_ms, 2),
        ttft_ms=None if outcome.first_token_ms is None else round(before_engine + outcome.first_token_ms, 2),
        decode_tps=round(decoded / outcome.decode_ms * 1000, 2) if decoded > 0 and outcome.decode_ms else None,
        written_bytes=0,
        plan=resumed.plan.start.value,
        reason=resumed.reason,
    )
