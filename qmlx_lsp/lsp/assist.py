"""The commands that ask the model: explain, fix, rewrite, document, tests, doComment, ask.

command → target (while its message is handled) → job, acknowledged at once → a turn like any other → an answer that
is shown, or edits of the text as it is by then.

Invariant: only a whole reply changes anything: one that was cancelled or cut off is shown as far as it goes.
Invariant: what is not applied is not lost: the answer is shown, and one line says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lsprotocol import types

from qmlx_lsp.lsp import answers, apply, jobs
from qmlx_lsp.lsp.assist_params import assist_params
from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.lsp.create import create
from qmlx_lsp.lsp.jobs import EditorJob, Ending
from qmlx_lsp.lsp.target import Target, refuse_private, take
from qmlx_lsp.session.event import Answer, Ask
from qmlx_lsp.session.sight import UNSAVED
from qmlx_lsp.workspace.blocks import answered, fences
from qmlx_lsp.workspace.instructions import EDITING, Kind, block, place_of, question, test_file
from qmlx_lsp.workspace.proposals import Proposal, plan, proposal
from qmlx_lsp.workspace.tool_output import LINE_CHARS_MAX, one_line
from qmlx_lsp.workspace.wishes import unsaid

TITLES = {
    Kind.ASK: "Answer",
    Kind.EXPLAIN: "Explanation",
    Kind.FIX: "Fix",
    Kind.REWRITE: "Rewrite",
    Kind.DOCUMENT: "Documentation",
    Kind.TESTS: "Tests",
    Kind.DO_COMMENT: "What the comment says",
}
_TESTS_FOLDERS = ("tests", "test")
_WHOLE = "complete"
_CUT = {
    "cancelled": "cancelled",
    "length": "cut off at the longest reply that is allowed",
    "error": "broken off by an error",
}


About = tuple[Target, str, str | int | None]
"""What a command is about, its question, and the token of its progress."""


def arrived(connection: Connection, kind: Kind, arguments: Sequence[Any]) -> About:
    """What the command is about, its question, and the token of its progress. Plain, for its message is being
    handled. Raises QuestionError."""
    wanted = assist_params(kind, arguments)
    target = take(connection, kind, wanted)
    target = replace(target, age=answers.age(connection, target.root))
    asked = (wanted.text or "").strip()
    if kind is Kind.ASK:
        return target, asked, wanted.work_done_token
    if kind is Kind.DO_COMMENT:
        asked = "; ".join([wish.text for wish in target.said] + [asked] * bool(asked))
    elif kind is Kind.FIX and wanted.diagnostic is not None:
        source = f" ({wanted.diagnostic.source})" if wanted.diagnostic.source else ""
        what = f"line {wanted.diagnostic.line}: {' '.join(wanted.diagnostic.message.split())}{source}"
        asked = f"{what}; {asked}" if asked else what
    return target, question(kind, _place(target), target.code, target.language, asked), wanted.work_done_token


def _place(target: Target) -> str:
    if target.document is not None:
        return place_of(target.shown, target.lines, cell=target.cell)
    if target.pointed is not None:
        return place_of(target.shown, target.pointed)
    return f"the code around line {target.at} of {target.shown}" if target.at else target.shown


async def assist(connection: Connection, kind: Kind, about: About, token: str | int | None) -> dict[str, Any]:
    """Begin the job. Raises QmlxError: nothing runs."""
    target, asked, own_token = about
    with jobs.prepared(connection, kind.value, own_token if token is None else token) as running:
        if target.path is not None:
            await connection.registry.project(target.root).configured()  # the editor may say that it is private
            await refuse_private(connection, target.root, target.path, target.shown)
        running.job.on_text, running.job.on_progress = running.feed.text, running.feed.progress
        if target.uri:
            connection.registry.mirror.touch(connection, target.uri)
        turn = asyncio.create_task(connection.registry.ask(target.root, _ask(kind, target, asked), running.job))
        return jobs.begin(connection, running, turn, partial(_end, connection, running, kind, target))


def _ask(kind: Kind, target: Target, asked: str) -> Ask:
    # The lines stand in the question itself, unless only the conversation has them.
    told = kind is Kind.ASK or target.document is None
    at = target.at if told or target.cell else target.lines[0]
    return Ask(
        asked, target.path, target.pointed if told else None, None, at, target.found,
        source=block(target.code, target.language) if kind in EDITING and target.code else "",
    )  # fmt: skip


async def _end(connection: Connection, running: EditorJob, kind: Kind, target: Target, answer: Answer) -> Ending:
    text = answered(answer.text).strip()
    if answer.finish.value != _WHOLE:
        cut = _CUT.get(answer.finish.value, answer.finish.value)
        cut += f" ({one_line(answer.error, LINE_CHARS_MAX)})" if answer.error else ""
        changing = kind in EDITING or kind is Kind.TESTS
        return await _shown(connection, kind, target, text, f"{cut}, nothing was changed" if changing else cut)
    if kind in EDITING:
        return await _edit(connection, running, kind, target, answer.text)
    if kind is Kind.TESTS:
        return await _tests(connection, running, target, answer.text)
    return await _shown(connection, kind, target, text, "")


async def _edit(connection: Connection, running: EditorJob, kind: Kind, target: Target, reply: str) -> Ending:
    document = target.document
    if document is None or target.code is None:
        return await _shown(connection, kind, target, answered(reply), f"not applied: {apply.GONE}")
    proposed = proposal(reply, target.code, target.names)
    reason = proposed.reason
    if not reason:
        if target.said and proposed.code is not None:
            proposed = Proposal(unsaid(proposed.code, target.said))
        running.feed.say(f"{kind.value}: applying")
        label = f"qmlx: {TITLES[kind].lower()}"
        outcome = await apply.edit(
            connection, document.uri, running.job, label,
            lambda now: plan(proposed, document.text, target.lines, now),
        )  # fmt: skip
        if outcome.applied:
            return Ending("applied")
        reason = outcome.reason
    why = reason if reason == apply.CANCELLED else f"not applied: {reason}"
    return await _shown(connection, kind, target, answered(reply), why)


async def _tests(connection: Connection, running: EditorJob, target: Target, reply: str) -> Ending:
    found = fences(answered(reply))
    if found.cut or len(found.codes) != 1:
        return await _shown(
            connection, Kind.TESTS, target, answered(reply), "no file made: the answer is not one block of code"
        )
    if target.path is None or target.path.startswith(UNSAVED):
        return await _shown(connection, Kind.TESTS, target, answered(reply), "no file made: save the code first")
    running.feed.say("tests: making the file")
    outcome, file = await create(
        connection, target.root, running.job, "qmlx: tests", found.codes[0].text,
        lambda taken: test_file(target.shown, target.language, _tests_folder(target.root), taken),
    )  # fmt: skip
    if outcome.applied and file is not None:
        await answers.show_file(connection, file)
        return Ending(f"{file.relative_to(target.root)} made")
    why = outcome.reason if outcome.reason == apply.CANCELLED else f"no file made: {outcome.reason}"
    return await _shown(connection, Kind.TESTS, target, answered(reply), why)


def _tests_folder(root: Path) -> str | None:
    """Blocking."""
    return next((name for name in _TESTS_FOLDERS if (root / name).is_dir()), None)


async def _shown(connection: Connection, kind: Kind, target: Target, text: str, why: str) -> Ending:
    """Show the answer; how the job ends is ``why`` it is no more than that, or that it has been answered."""
    where = ""
    if text.strip():
        about = f" of {_place(target)}" if target.path is not None else ""
        note = f"*{why[:1].upper()}{why[1:]}.*\n\n" if why else ""
        where = await answers.show(
            connection, target.root, kind.value, f"# {TITLES[kind]}{about}\n\n{note}{text}\n", target.age
        )
    said = "; ".join(part for part in (why or "answered", where) if part)
    warning = bool(why) and not why.startswith("cancelled")
    level = types.MessageType.Warning if warning else types.MessageType.Info
    return Ending(said, level, loud=warning or bool(where))
