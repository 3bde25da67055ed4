"""One turn, from the question to the checkpoint, as one straight function: ``run_turn``.

gather → append → plan → restore → prefill → stream → record → checkpoint

Invariant: the question is durable before the model reads it, and the reply's end before it is reported.
Invariant: a cancelled reply is recorded as exactly the ids that were produced; a reply of no ids leaves no entry.
Invariant: a checkpoint may fail in any way without failing the turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from qmlx_lsp.engine.backend import Backend, Restored, Sampling, StateId
from qmlx_lsp.engine.generation import Job as EngineJob
from qmlx_lsp.engine.generation import Outcome, generate
from qmlx_lsp.engine.plan import Plan, Start, resume_plan
from qmlx_lsp.errors import CheckpointRejected, QuestionError, StoreError
from qmlx_lsp.session.event import Answer, Ask, Job, Step, Usage
from qmlx_lsp.session.gather import choose, look
from qmlx_lsp.session.model import SYSTEM_TEXT
from qmlx_lsp.session.reply import GrowingReply
from qmlx_lsp.session.session import Session
from qmlx_lsp.state import StateCopy
from qmlx_lsp.storage.checkpoints import Found
from qmlx_lsp.transcript.entry import Entry, Finish, Kind
from qmlx_lsp.transcript.transcript import Draft, Transcript
from qmlx_lsp.workspace.told import Limits

# Tokens that must be left for a reply; a turn that leaves fewer opens a new epoch.
REPLY_TOKENS_MIN = 128
CANCELLED_EARLY = Usage(0, 0, 0, 0, 0, 0.0, 0, 0.0, None, None, 0, "none", "cancelled before it began")


@dataclass(frozen=True, slots=True)
class _Resumed:
    """The state a turn goes on from, and what it took to have it."""

    state: StateId
    plan: Plan
    reason: str | None
    restore_ms: float
    restore_bytes: int
    ready_at: float


async def run_turn(session: Session, ask: Ask, job: Job) -> Answer:
    """Answer ``ask`` in ``session``; the caller holds ``session.lock``.

    Raises:
        QuestionError: the question cannot be asked; nothing was recorded.
        StoreError: the conversation log cannot be written; nothing was recorded.
    """
    if job.cancelled:
        return Answer(None, "", Finish.CANCELLED, CANCELLED_EARLY)
    started = time.perf_counter()
    await _append(session, ask)
    resumed = await _resume(session, job)
    turn, reply, outcome = await _compute(session, ask, job, resumed)
    usage = _usage(resumed, outcome, started)
    text = reply.finish()
    turn_id = await _record(session, turn, outcome, text, usage)
    if written := await _checkpoint(session):
        usage = replace(usage, written_bytes=written)
        if turn_id is not None:
            await session.services.on_log(session.services.log.amend_usage, turn_id, usage.as_dict())
    session.last_usage = usage
    return Answer(turn_id, text, outcome.finish, usage, outcome.error)


# --- gather and append --------------------------------------------------------------------------------------------


async def _append(session: Session, ask: Ask) -> None:
    """Say what has changed and the question, durably; in a new epoch if this one has no room."""
    told, entries = await _draft(session, ask, session.transcript, session.told)
    if not _fits(session, session.transcript, entries):
        fresh = Transcript(session.model.renderer)
        fresh_told, fresh_entries = await _draft(session, ask, fresh, {})
        if not _fits(session, fresh, fresh_entries):
            tokens = sum(len(entry.ids) for entry in fresh_entries)
            raise QuestionError(
                f"The question with its files has {tokens:,} tokens; {session.model.info.name} reads "
                f"{session.model.info.context_tokens:,}: ask about a smaller part."
            )
        log = session.services.log
        session.conversation = await session.services.on_log(
            log.new_epoch, session.conversation, session.model.identity
        )
        await session.drop_live("new epoch")
        session.transcript, session.told = fresh, {}
        told, entries = fresh_told, fresh_entries
    await session.services.on_log(session.services.log.append, session.conversation, entries, told)
    session.transcript.extend(entries)
    for path, text in told.items():
        if text is None:
            session.told.pop(path, None)
        else:
            session.told[path] = text


async def _draft(
    session: Session, ask: Ask, transcript: Transcript, told: dict[str, str]
) -> tuple[dict[str, str | None], list[Entry]]:
    """What this turn has to say, as entries. Files are read and encoded on a thread."""
    limits = session.services.settings.context
    open_texts = session.open_texts()
    max_bytes = limits.max_file_kb * 1024

    def work() -> tuple[dict[str, str | None], list[Entry]]:
        session.ignore.forget()
        sights = look(session.root, ask, open_texts, told, session.ignore, max_bytes)
        gathered = choose(
            ask, sights, told, Limits(max_bytes, limits.max_diff_share),
            int(session.model.info.context_tokens * limits.share),
            lambda text: len(session.model.renderer.codec.encode_data(text)),
        )  # fmt: skip
        drafts: list[Draft] = [] if transcript.entries else [(Kind.SYSTEM, SYSTEM_TEXT, None)]
        drafts += gathered.drafts
        question = ask.text.strip()
        if drafts or transcript.unanswered != question:  # asked again after a cancel: it stands there already
            drafts.append((Kind.QUESTION, question, None))
        return dict(gathered.told), transcript.draft(drafts)

    return await asyncio.to_thread(work)


def _fits(session: Session, transcript: Transcript, entries: Sequence[Entry]) -> bool:
    header = len(session.model.renderer.fragments.prompt)
    needed = len(transcript.log) + sum(len(entry.ids) for entry in entries) + header + REPLY_TOKENS_MIN
    return needed <= session.model.info.context_tokens


# --- plan and restore ---------------------------------------------------------------------------------------------


async def _resume(session: Session, job: Job) -> _Resumed:
    """The live state, a restored one or a new one; whichever is furthest on."""
    services, info = session.services, session.model.info
    wanted = len(session.transcript.log)
    live = session.live_position if session.live is not None else None
    reason: str | None = session.not_live
    stored: list[Found] = []
    gain = services.settings.store.restore_gain_tokens
    if services.store is not None and info.not_persisted is None and (live is None or wanted - live >= gain):
        stored = await services.on_store(_find, session, wanted)
    while True:
        plan = resume_plan(wanted, live, [found.position for found in stored], gain)
        if plan.start is Start.LIVE and session.live is not None:
            return _Resumed(session.live, plan, None, 0.0, 0, time.perf_counter())
        if plan.candidate is None:
            if services.store is not None and info.not_persisted is None and not stored and reason == "start":
                reason = await services.on_store(_why_none, session, wanted)
            elif info.not_persisted is not None:
                reason = f"not persisted: {info.not_persisted}"
            await session.drop_live(reason or "start")
            state = await services.worker.call(lambda backend: backend.new_state())
            session.settle(state, 0)
            return _Resumed(state, plan, reason, 0.0, 0, time.perf_counter())
        job.on_progress(Step.RESTORING, 0, plan.position)
        found = stored.pop(plan.candidate)
        began = time.perf_counter()
        try:
            restored = await services.worker.call(lambda backend, found=found: _restore(session, backend, found))  # type: ignore[misc]
        except CheckpointRejected as error:
            reason = error.reason
            await services.on_store(_reject, session, found, error)
            continue
        await session.drop_live("restored")
        session.settle(restored.state, plan.position)
        took = (time.perf_counter() - began) * 1000
        return _Resumed(restored.state, plan, reason, took, restored.bytes, time.perf_counter())


def _find(session: Session, limit: int) -> list[Found]:
    store, info = session.services.store, session.model.info
    assert store is not None
    return store.find(info.fingerprint, session.transcript.log, needs_snapshot=info.needs_snapshot, limit=limit)


def _why_none(session: Session, limit: int) -> str:
    store, info = session.services.store, session.model.info
    assert store is not None
    return store.why_none(info.fingerprint, session.transcript.log, needs_snapshot=info.needs_snapshot, limit=limit)


def _restore(session: Session, backend: Backend, found: Found) -> Restored:
    assert session.services.store is not None
    with session.services.store.open(found) as stored:
        return backend.restore(stored)


def _reject(session: Session, found: Found, error: CheckpointRejected) -> None:
    assert session.services.store is not None
    session.services.store.reject(found, error)


# --- prefill and stream -------------------------------------------------------------------------------------------


async def _compute(session: Session, ask: Ask, job: Job, resumed: _Resumed) -> tuple[int, GrowingReply, Outcome]:
    """Run the engine over what is new and stream the reply; returns the open turn, the reply and how it ended."""
    services, info, settings = session.services, session.model.info, session.services.settings
    loop = asyncio.get_running_loop()
    transcript = session.transcript
    header = transcript.reply_header()
    wanted = len(transcript.log)
    reply = GrowingReply(session.model.renderer.codec, info.eos_ids, job.on_text, settings.stream.batch_ms)
    room = info.context_tokens - wanted - len(header)
    engine_job = EngineJob(
        state=resumed.state,
        prefill=transcript.log.ids(resumed.plan.position, wanted),
        header=header,
        eos_ids=info.eos_ids,
        max_tokens=min(ask.max_tokens or settings.model.max_tokens, room),
        sampling=Sampling(settings.model.temperature, settings.model.top_p),
        chunk_tokens=settings.engine.prefill_chunk_tokens,
    )
    turn = await services.on_log(
        services.log.begin_reply, session.conversation, transcript.reply(header, [], Finish.OPEN, "")
    )

    def on_prefill(done: int, total: int) -> None:
        loop.call_soon_threadsafe(job.on_progress, Step.READING, done, total)

    def on_token(token: int) -> None:
        loop.call_soon_threadsafe(reply.feed, token)

    async def journal(ids: list[int], text: str) -> None:
        await services.on_log(services.log.journal_reply, turn, [*header, *ids], text)

    journalling = asyncio.create_task(reply.keep_journal(journal, settings.stream.journal_ms))
    try:
        outcome = await services.worker.call(
            lambda backend: generate(
                backend, engine_job, cancelled=job.stop.is_set, on_prefill=on_prefill, on_token=on_token
            )
        )
    finally:
        journalling.cancel()
        await asyncio.gather(journalling, return_exceptions=True)
    return turn, reply, outcome


# --- record and checkpoint ----------------------------------------------------------------------------------------


async def _record(session: Session, turn: int, outcome: Outcome, text: str, usage: Usage) -> int | None:
    """Make the reply's end durable and bring the live state's position in line. Returns the turn, if one remains."""
    log, on_log = session.services.log, session.services.on_log
    turn_id: int | None = turn
    if outcome.ids:
        entry = session.transcript.reply(session.transcript.reply_header(), outcome.ids, outcome.finish, text)
        await on_log(log.finish_reply, turn, entry, usage.as_dict())
        session.transcript.extend([entry])
    else:
        await on_log(log.drop_reply, turn)
        turn_id = None
    assert outcome.position is None or outcome.position <= len(session.transcript.log), "state ahead of the log"
    session.settle(session.live, outcome.position, "dropped after an error")
    return turn_id


async def _checkpoint(session: Session) -> int:
    """Write the rows that no stored segment has, and the snapshot; returns the bytes written so far.

    Rows leave the engine by a host copy; the write happens on the store's thread. The answer waits for it a bounded
    time, so that what it reports has normally survived a crash; a slow disk goes on behind it.
    """
    services, info = session.services, session.model.info
    store, state, position = services.store, session.live, session.live_position
    if store is None or state is None or info.not_persisted is not None or position == 0:
        return 0
    log = session.transcript.log
    try:
        start = await services.on_store(store.covered, info.fingerprint, log, position)
        copy = await services.worker.call(lambda backend: backend.copy_state(state, start))
        saving = asyncio.create_task(services.on_store(_save, session, copy))
        saving.add_done_callback(lambda task: _say_if_failed(session, task))
        done, _ = await asyncio.wait({saving}, timeout=services.settings.store.answer_wait_s)
        return saving.result() if done else 0
    except StoreError as error:
        services.notice(f"The conversation goes on, but its checkpoint was not written: {error}")
        return 0


def _save(session: Session, copy: StateCopy) -> int:
    """Write, and keep the newest checkpoint of this conversation whatever the quota says."""
    store, info, log = session.services.store, session.model.info, session.transcript.log
    assert store is not None
    written = store.save(info.fingerprint, log, copy)
    found = store.find(info.fingerprint, log, needs_snapshot=info.needs_snapshot, limit=copy.end)
    if found:
        store.pin(str(session.root), found[0])
    return written


def _say_if_failed(session: Session, task: asyncio.Task[int]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        session.services.notice(f"The conversation goes on, but its checkpoint was not written: {error}")


def _usage(resumed: _Resumed, outcome: Outcome, started: float) -> Usage:
    """What the turn cost. ``ttft_ms`` counts from the turn's start: gathering, restoring, reading, first token."""
    restored = resumed.plan.position if resumed.plan.start is Start.RESTORE else 0
    live = resumed.plan.position if resumed.plan.start is Start.LIVE else 0
    before_engine = (resumed.ready_at - started) * 1000
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
