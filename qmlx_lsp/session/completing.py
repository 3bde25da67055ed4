"""One completion on a session's live state: as a branch, or as a turn that stays.

Invariant: a branch is made of what the transcript was when it was planned; the engine finds out whether the state is
still there, and else nothing happens.
Invariant: a completion that stays is in the log, durably, before anybody hears of it; if that fails, the live state,
which has read it, is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from qmlx_lsp.engine.backend import Backend, StateId
from qmlx_lsp.engine.branch import Base, BranchJob, Completed, complete
from qmlx_lsp.engine.plan import Start
from qmlx_lsp.engine.worker import Calls, EngineBusy, Priority
from qmlx_lsp.session.event import Job, Usage
from qmlx_lsp.session.loading import seen
from qmlx_lsp.session.model import SYSTEM_TEXT, LoadedModel
from qmlx_lsp.session.resume import Resumed, resume
from qmlx_lsp.session.session import Session
from qmlx_lsp.session.window import Window
from qmlx_lsp.settings import Settings
from qmlx_lsp.transcript import gap as gaps
from qmlx_lsp.transcript.encoder import Codec, TextStream
from qmlx_lsp.transcript.entry import Entry, Finish, Kind
from qmlx_lsp.transcript.growing import GrowingText
from qmlx_lsp.transcript.healing import Healing, Vocabulary, open_piece
from qmlx_lsp.transcript.suffix import Tail
from qmlx_lsp.transcript.transcript import Transcript
from qmlx_lsp.workspace.ghost import Ending

# Tokens before the text at the cursor; with more (a conversation that has not been read) it waits for its turn.
HEAD_TOKENS_SHORT = 2_048
HEADS_MAX = 8  # of prompts that are kept


@dataclass(frozen=True, slots=True, eq=False)
class Filling:
    """What a model's completions need beside it: the marks it fills gaps with, if it has any, all its tokens, and the
    heads and texts of its prompts, which keystroke after keystroke are nearly the same."""

    marks: gaps.Marks | None
    vocabulary: Vocabulary
    head: Callable[[Tail, gaps.Gap], gaps.Head]
    text: GrowingText
    encoding: threading.Lock

    @classmethod
    def of(cls, model: LoadedModel, fim: str) -> Filling:
        """Takes up to a second: for a thread. ``fim`` as in the settings."""
        renderer, trained = model.renderer, {"on": True, "off": False}.get(fim)
        marks = gaps.find_marks(renderer.codec, model.info.name, trained=trained)

        @lru_cache(maxsize=HEADS_MAX)
        def head(tail: Tail, gap: gaps.Gap) -> gaps.Head:
            return gaps.head(renderer, marks, tail, gap, SYSTEM_TEXT)

        codec = renderer.codec
        return cls(marks, Vocabulary(codec), head, GrowingText(codec), threading.Lock())


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be completed in so many tokens. ``invoked``: somebody has asked for it. ``allowed()`` is asked on
    the thread that makes the prompt, before anything is made of the text."""

    window: Window
    max_tokens: int
    invoked: bool
    filling: Filling
    allowed: Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Prompt:
    """``heads`` by the position they stand behind, the deepest first; ``open_text`` is to be written once more."""

    heads: tuple[tuple[int, gaps.Head], ...]
    text: list[int]
    open_text: str


async def completed(
    session: Session, wanted: Wanted, job: Job, is_open: Callable[[], bool], priority: Priority = Priority.SHORT
) -> Completed | None:
    """What the model writes, on a branch. None when ``job`` is cancelled, or when there is nowhere to stand.
    ``is_open``: whether the session is still that of its conversation."""
    session.completes = True
    state = session.live
    if state is None:
        state = await job.unless_cancelled(_resumed(session, is_open))
    if state is None:
        return None
    positions = sorted({session.live_position, *session.standing}, reverse=True)
    prompt = await asyncio.to_thread(prompt_for, session.transcript, session.model, wanted, positions)
    limit = session.model.info.context_tokens
    branch = branch_for(session.model, session.services.settings, state, wanted, prompt, limit)
    if branch is None or job.cancelled:
        return None
    return await on_engine(session.services.worker, branch, job, priority)


async def recorded(session: Session, wanted: Wanted, job: Job) -> Completed | None:
    """What the model writes, as a turn, if that is anything; the caller holds ``session.lock``. None when ``job`` is
    cancelled before it began, or when there is no place for it.

    Raises:
        StoreError: the log cannot be written.
    """
    await session.catch_up()
    resumed = await resume(session, Job())
    log, at = session.transcript.log, session.live_position
    prompt = await asyncio.to_thread(prompt_for, session.transcript, session.model, wanted, [len(log)])
    limit = session.context_tokens
    branch = branch_for(session.model, session.services.settings, resumed.state, wanted, prompt, limit)
    if prompt is None or branch is None or job.cancelled:
        return None
    branch = replace(branch, bases=[Base(at, [*log.ids(at), *prompt.heads[0][1].ids])], stay=True)
    known = False
    try:
        found = await on_engine(session.services.worker, branch, job)
        if found is not None and found.position is not None:
            await _record(session, prompt, found, resumed)
            await _weigh(session, resumed.state)
        known = True
    finally:
        if not known:
            session.drop_live("dropped after an error")
    return found


def written(codec: Codec, wanted: Wanted, found: Completed) -> str:
    """The text of a completion behind the cursor: less what of it stood there before."""
    given = open_piece(codec, wanted.window.before)
    text = codec.decode(found.ids)
    return text.removeprefix(given) if text.startswith(given) else ""


# --- the prompt ----------------------------------------------------------------------------------------------------


def prompt_for(
    transcript: Transcript, model: LoadedModel, wanted: Wanted, positions: Sequence[int], *, bare: bool = False
) -> Prompt | None:
    """None where it is not allowed. ``bare``: marks, if the model has them, without any conversation. Blocking
    (looks at the disk, encodes): for a thread."""
    if not wanted.allowed():
        return None
    codec, gap, marks = model.renderer.codec, wanted.window.gap, wanted.filling.marks
    tails = ((at, transcript.tail_at(at)) for at in positions)
    heads = [(at, wanted.filling.head(tail, gap)) for at, tail in tails if tail is not None]
    if bare and marks is not None:
        heads = [(0, gaps.Head((), tuple(gaps.bare_head(codec, marks, gap))))]
    again = open_piece(codec, wanted.window.before)
    before = wanted.window.before.removesuffix(again)
    with wanted.filling.encoding:
        text = gaps.text(wanted.filling.text.encode, marks, gap, before)
    return Prompt(tuple(heads), text, again)


def branch_for(
    model: LoadedModel, settings: Settings, state: StateId, wanted: Wanted, prompt: Prompt | None, limit: int
) -> BranchJob | None:
    """None where there is no prompt, nowhere to stand, or no room within ``limit`` tokens."""
    if prompt is None:
        return None
    info, codec = model.info, model.renderer.codec
    needed = len(prompt.text) + wanted.max_tokens
    bases = [Base(at, ids) for at, head in prompt.heads if at + len(ids := head.ids) + needed <= limit]
    if not bases:
        return None
    ending, stream = Ending(wanted.window.cursor, prompt.open_text), TextStream(codec)
    return BranchJob(
        state=state,
        bases=bases,
        text=prompt.text,
        eos_ids=gaps.ends(codec, info.eos_ids),
        max_tokens=wanted.max_tokens,
        chunk_tokens=settings.engine.prefill_chunk_tokens,
        allowed=Healing(codec, wanted.filling.vocabulary, prompt.open_text) if prompt.open_text else None,
        stops=lambda token: ending.feed(stream.add(token)),
    )


# --- the engine ----------------------------------------------------------------------------------------------------


async def _resumed(session: Session, is_open: Callable[[], bool]) -> StateId | None:
    """May be cancelled: whoever comes next finds what was begun."""
    await session.lock.acquire()
    if session.live is not None or not is_open():
        session.lock.release()
        return session.live if is_open() else None

    def ended(resuming: asyncio.Task[StateId]) -> None:
        session.lock.release()
        seen(resuming)

    # Seen through whatever becomes of the request: a state that was restored for nobody would be held for good.
    resuming = asyncio.ensure_future(_resume(session))
    resuming.add_done_callback(ended)
    return await asyncio.shield(resuming)


async def _resume(session: Session) -> StateId:
    state = (await resume(session, Job())).state
    await _weigh(session, state)
    return state


async def _weigh(session: Session, state: StateId) -> None:
    """Take note of what the live state takes, which all of them together are bounded by. Under the lock."""
    with contextlib.suppress(EngineBusy):  # it is weighed behind the next one
        session.live_bytes = await session.services.worker.call(lambda engine: engine.nbytes(state), Priority.SHORT)


async def on_engine(
    worker: Calls, branch: BranchJob, job: Job, priority: Priority = Priority.SHORT
) -> Completed | None:
    """Run it; what is not short is not let in before others. None when ``job`` is cancelled before it began, or when
    it had nowhere to stand."""

    def work(backend: Backend) -> Completed | None:
        return complete(backend, branch, job.stop.is_set)

    short = len(branch.bases[0].head) <= HEAD_TOKENS_SHORT
    future = worker.submit(work, priority if short else max(priority, Priority.TURN))
    result = asyncio.wrap_future(future)
    result.add_done_callback(seen)
    await job.until_done(result)
    if not result.done() and not future.cancel():
        await asyncio.wait({result})
    return result.result() if result.done() and not result.cancelled() else None


# --- a turn --------------------------------------------------------------------------------------------------------


async def _record(session: Session, prompt: Prompt, found: Completed, resumed: Resumed) -> None:
    """Put the turn down; the live state has read it."""
    services, codec = session.services, session.model.renderer.codec
    end, head = prompt.heads[0]
    said: list[Entry] = []
    for kind, asked, ids in head.said:
        said.append(Entry(kind, asked, ids, end))
        end = said[-1].end
    await services.on_log(services.log.append, session.conversation, said, {})
    session.transcript.extend(said)
    written_ids = (*prompt.text, *found.ids)
    reply = Entry(Kind.ASSISTANT, codec.decode(written_ids), (*head.reply, *written_ids), end, found.finish)
    opened = replace(reply, ids=head.reply, finish=Finish.OPEN, text="")
    turn = await services.on_log(services.log.begin_reply, session.conversation, opened)
    usage = _usage(found, resumed)
    session.unfinished = partial(services.log.finish_reply, turn, reply, usage.as_dict())
    session.transcript.extend([reply])
    session.settle(resumed.state, found.position)
    session.last_usage = usage
    await session.catch_up()


def _usage(found: Completed, resumed: Resumed) -> Usage:
    restored = resumed.plan.position if resumed.plan.start is Start.RESTORE else 0
    known = found.base.position + found.kept
    decoded = len(found.ids) - 1
    return Usage(
        context=known + found.prefilled,
        live=known - restored,
        restored=restored,
        prefilled=found.prefilled,
        generated=len(found.ids),
        restore_ms=round(resumed.restore_ms, 2),
        restore_bytes=resumed.restore_bytes,
        prefill_ms=round(found.prefill_ms, 2),
        ttft_ms=round(resumed.restore_ms + found.prefill_ms, 2),
        decode_tps=round(decoded / found.decode_ms * 1000, 2) if decoded > 0 and found.decode_ms else None,
        written_bytes=0,
        plan=resumed.plan.start.value,
        reason=resumed.reason,
    )
