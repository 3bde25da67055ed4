"""Saying things to a conversation: gathered, rendered, made durable, and only then part of its transcript.

Three things are said this way: a question with what it needs, what a tool has returned, and, while nobody waits, what
has changed (reading ahead).

Invariant: what is said is durable before the transcript grows, and what was told of files is remembered in the same
transaction.
Invariant: only a question or a result may begin a new epoch; what nobody asked for waits until there is room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from qmlx_lsp.errors import QmlxError, QuestionError, ToolError
from qmlx_lsp.session.event import Ask
from qmlx_lsp.session.gather import Budget, Gathered, choose
from qmlx_lsp.session.model import SYSTEM_TEXT
from qmlx_lsp.session.opening import due_at, forced, step_into
from qmlx_lsp.session.session import News, Session
from qmlx_lsp.session.sight import Workspace, look
from qmlx_lsp.transcript.entry import Entry, Kind
from qmlx_lsp.transcript.suffix import Place
from qmlx_lsp.transcript.transcript import Draft, Transcript
from qmlx_lsp.workspace.diagnostics import is_block, is_clean
from qmlx_lsp.workspace.shown import shown
from qmlx_lsp.workspace.told import Limits

# Tokens that must be left for a reply; a turn that leaves fewer opens a new epoch.
REPLY_TOKENS_MIN = 128
EPOCH = "a new epoch"  # what a notice of ours is about

Told = Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Drafted:
    """Entries that are to be said, and what each file will have been told by them."""

    entries: Sequence[Entry]
    told: Told


# What is to be said behind a transcript, given what was told. Blocking (reads files, encodes): for a thread.
Make = Callable[[Transcript, Mapping[str, str]], Drafted]


async def say_question(session: Session, ask: Ask) -> None:
    """Say what has changed and the question; in a new epoch if this one has no room.

    Raises:
        QuestionError: the question cannot be asked; nothing was recorded.
        StoreError: the log cannot be written; nothing was recorded.
    """
    news = session.news()
    workspace = _workspace(session, news)

    def make(transcript: Transcript, told: Mapping[str, str]) -> Drafted:
        gathered = _gather(session, replace(workspace, told=told), ask, told, _budget(session, transcript))
        drafts = [draft for draft in (*_news(news, gathered), *gathered.drafts) if not _known(transcript, draft)]
        drafts += [*_about(transcript, drafts, gathered.asked), (Kind.QUESTION, ask.text.strip(), gathered.asked)]
        if transcript.ends_unanswered_with(drafts):  # asked again after a cancel: it stands there already
            drafts = []
        return _drafted(transcript, drafts, gathered.told)

    await _say(session, make, _question_too_long)
    news.told()


async def say_result(session: Session, text: str) -> int:
    """Say what a tool has returned; returns its tokens. The caller holds ``session.lock``.

    Raises:
        ToolError: it has no room in any epoch.
        StoreError: the log cannot be written; nothing was recorded.
    """
    await session.catch_up()

    def make(transcript: Transcript, _told: Mapping[str, str]) -> Drafted:
        return _drafted(transcript, [(Kind.CONTEXT, text, None)], {})

    await _say(session, make, _result_too_long)
    return len(session.transcript.entries[-1].ids)


async def say_ahead(session: Session, cancelled: Callable[[], bool]) -> bool:
    """Say what the next question would have to say about files, as far as there is room, unless it is ``cancelled``
    before it is written; returns whether there was anything. The caller holds ``session.lock``.

    Raises:
        StoreError: the log cannot be written; nothing was recorded.
    """
    if session.transcript.tail.place in (Place.ASKED, Place.TOLD):
        return False  # whatever comes behind an open question would withdraw it
    await session.catch_up()
    nothing_asked, news = Ask(""), session.news()
    workspace = _workspace(session, news)

    def make(transcript: Transcript, told: Mapping[str, str]) -> Drafted:
        room = _room_ahead(session, transcript)
        budget = _budget(session, transcript)
        budget = replace(budget, tokens=min(budget.tokens, room), patient=True)
        gathered = _gather(session, replace(workspace, told=told), nothing_asked, told, budget)
        drafts = [*_news(news, gathered), *gathered.drafts]
        drafted = _drafted(transcript, drafts, gathered.told)
        return drafted if sum(len(entry.ids) for entry in drafted.entries) <= room else Drafted((), {})

    drafted = await asyncio.to_thread(make, session.transcript, session.told)
    if not drafted.entries or cancelled():
        return False
    await _record(session, drafted)
    news.told()
    return True


# --- gathering -----------------------------------------------------------------------------------------------------


def _workspace(session: Session, news: News) -> Workspace:
    return Workspace(
        session.root, session.rules(), session.open_texts(), session.services.settings.context.max_file_kb * 1024,
        homes=news.homes, named=news.named,
    )  # fmt: skip


def _gather(session: Session, workspace: Workspace, ask: Ask, told: Mapping[str, str], budget: Budget) -> Gathered:
    return choose(ask, look(workspace, ask), told, limits_of(session), budget)


def limits_of(session: Session) -> Limits:
    context = session.services.settings.context
    return Limits(context.max_file_kb * 1024, context.max_diff_share)


def _budget(session: Session, transcript: Transcript) -> Budget:
    """What may be said of files now; what was read ahead for this question counts already."""
    context, tokens = session.services.settings.context, session.context_tokens
    file_tokens = int(tokens * context.file_share)
    left = int(tokens * context.share) - _told_since_the_last_turn(transcript)
    codec = session.model.renderer.codec
    count = cache(lambda text: len(codec.encode_data(text)))  # large texts are asked about more than once
    return Budget(max(left, file_tokens), file_tokens, context.changes_max, count)


def _told_since_the_last_turn(transcript: Transcript) -> int:
    tokens = 0
    for entry in reversed(transcript.entries):
        if entry.kind is not Kind.CONTEXT:
            break
        tokens += len(entry.ids)
    return tokens


def _room_ahead(session: Session, transcript: Transcript) -> int:
    """Tokens that may be read ahead: never so many that the next question finds no room, or an epoch is due."""
    context = session.services.settings.context
    most = due_at(session) or session.context_tokens - REPLY_TOKENS_MIN
    share = int(session.context_tokens * context.share) - _told_since_the_last_turn(transcript)
    return max(0, min(share, most - len(transcript.log)))


def _news(news: News, gathered: Gathered) -> list[Draft]:
    """What is to be said of the disk as a whole, if it is too much to be said one by one."""
    text = news.summary(gathered.stale, gathered.lost, gathered.told)
    return [(Kind.CONTEXT, text, None)] if text else []


def _about(transcript: Transcript, drafts: Sequence[Draft], asked: str | None) -> list[Draft]:
    """A line that says which file a question is about, unless that is the one spoken of last."""
    spoken = [path for _, _, path in drafts if path is not None]
    spoken = spoken or [e.path for e in transcript.entries if e.kind is Kind.CONTEXT and e.path is not None][-1:]
    if asked is None or spoken[-1:] == [asked]:
        return []
    return [(Kind.CONTEXT, f"The question is about {shown(asked)}.\n", asked)]


def _known(transcript: Transcript, draft: Draft) -> bool:
    """Whether this is what checkers said of the file when they were last heard, or all is well as it was."""
    _, text, path = draft
    if not is_block(text):
        return False
    last = next((e.text for e in reversed(transcript.entries) if e.path == path and is_block(e.text)), None)
    return last == text or (last is None and is_clean(text))


def _drafted(transcript: Transcript, drafts: Sequence[Draft], told: Told) -> Drafted:
    if drafts and not transcript.entries:
        drafts = [(Kind.SYSTEM, SYSTEM_TEXT, None), *drafts]
    return Drafted(transcript.draft(drafts), told)


# --- saying --------------------------------------------------------------------------------------------------------


async def _say(session: Session, make: Make, too_long: Callable[[Session, int], QmlxError]) -> None:
    """Say what ``make`` makes, in a new epoch if need be; ``too_long`` says that it has no room in any."""
    drafted = await asyncio.to_thread(make, session.transcript, session.told)
    if not _fits(session, session.transcript, drafted.entries):
        anew = await _begin_anew(session, make)
        if anew is None:
            raise too_long(session, sum(len(entry.ids) for entry in drafted.entries))
        drafted = anew
    await _record(session, drafted)


async def _record(session: Session, drafted: Drafted) -> None:
    services = session.services
    await services.on_log(services.log.append, session.conversation, drafted.entries, drafted.told)
    session.transcript.extend(drafted.entries)
    for path, text in drafted.told.items():
        if text is None:
            session.told.pop(path, None)
        else:
            session.told[path] = text


async def _begin_anew(session: Session, make: Make) -> Drafted | None:
    """Step into a new epoch; returns what there is to say there, None if it would not fit there either."""
    limit = session.context_tokens
    for begin in forced(session) if session.transcript.entries else ():
        ahead = await asyncio.to_thread(begin)
        drafted = await asyncio.to_thread(partial(make, ahead.transcript, ahead.told))
        if _fits(session, ahead.transcript, drafted.entries):
            await step_into(session, ahead)
            session.services.notice(
                EPOCH,
                f"The conversation about {session.root.name} had come to its limit of {limit:,} tokens, so a new "
                "part of it has begun. Nothing is lost: `qmlx-lsp log` shows all of it.",
            )
            session.services.notice(EPOCH, None)  # it is over, and the next time it is said again
            return drafted
    return None


def _result_too_long(session: Session, tokens: int) -> QmlxError:
    return ToolError(
        f"The result has {tokens:,} tokens, too many for the {session.context_tokens:,} that are read at most: lower "
        "tools.output_kb."
    )


def _question_too_long(session: Session, tokens: int) -> QmlxError:
    name, limit = session.model.info.name, session.context_tokens
    reads = f"{name} reads" if limit == session.model.info.context_tokens else f"{name} may read here"
    return QuestionError(
        f"The question with its files has {tokens:,} tokens; {reads} {limit:,}: ask about a smaller part."
    )


def _fits(session: Session, transcript: Transcript, entries: Sequence[Entry]) -> bool:
    header = len(session.model.renderer.fragments.prompt)
    needed = len(transcript.log) + sum(len(entry.ids) for entry in entries) + header + REPLY_TOKENS_MIN
    return needed <= session.context_tokens
