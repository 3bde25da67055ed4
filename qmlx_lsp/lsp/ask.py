"""``qmlx/ask``: a question, streamed; and the other requests about conversations."""

from __future__ import annotations

import asyncio
import reprlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from qmlx_lsp.errors import QmlxError, QuestionError
from qmlx_lsp.lsp.answers import root_of_answer
from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.lsp.convert import cursor_from, diagnostics_from, file_path, folder_path, lines_from
from qmlx_lsp.lsp.methods import ask_params, context_params, conversation_params
from qmlx_lsp.lsp.protocol import RequestFailedError
from qmlx_lsp.lsp.stream import Feed
from qmlx_lsp.session.event import Answer, Ask, Job
from qmlx_lsp.session.registry import root_for
from qmlx_lsp.session.sight import UNSAVED
from qmlx_lsp.workspace.diagnostics import Diagnostic
from qmlx_lsp.workspace.mirror import canonical_uri
from qmlx_lsp.workspace.notebook import is_notebook
from qmlx_lsp.workspace.uris import is_path


async def ask(connection: Connection, params: Any) -> dict[str, Any]:
    """Answer the question. Cancelled, it raises CancelledError after the partial turn has been recorded."""
    job: Job | None = None
    feed: Feed | None = None
    try:
        wanted = ask_params(params)
        if wanted.uri is not None and (answered := root_of_answer(connection, wanted.uri)) is not None:
            wanted = replace(wanted, uri=None, range=None, root=str(answered))
        path = None if wanted.uri is None else document_path(connection, wanted.uri)
        root = root_of(connection, wanted.root, path)
        lines, at = told_lines(connection, wanted.uri, lines_from(wanted.range), cursor_from(wanted.range))
        found = diagnostics_of(connection, wanted.uri, wanted.diagnostics)
        question = Ask(wanted.text, path, lines, wanted.max_tokens, at, found)
        if wanted.uri is not None:
            connection.registry.mirror.touch(connection, wanted.uri)
        feed = Feed(connection.protocol, connection.job_id, wanted.work_done_token, wanted.partial_result_token)
        job = Job(on_text=feed.text, on_progress=feed.progress)
        connection.own(job, connection.job_id, wanted.work_done_token)
        turn = asyncio.create_task(connection.registry.ask(root, question, job))
        answer = await connection.see_through(turn, job)
        feed.end(_summary(answer))
        return _result(answer)
    except asyncio.CancelledError:
        if feed is not None:
            feed.end("cancelled")
        raise
    except QmlxError as error:
        if feed is not None:
            feed.end("failed")
        raise RequestFailedError.of_error(error) from error
    finally:
        if job is not None:
            connection.disown(job)


def document_path(connection: Connection, uri: str) -> str:
    """The document's file, or its URI if it is open and has no file yet; of a cell those of its notebook. Raises
    QuestionError."""
    notebook = connection.registry.notebooks.of_cell(connection, uri)
    uri = uri if notebook is None else notebook.uri
    key = canonical_uri(uri)
    if key.startswith(UNSAVED) and (notebook or connection.registry.mirror.document(key)) is not None:
        return key
    return file_path(uri)


def diagnostics_of(connection: Connection, uri: str | None, given: Any = None) -> tuple[Diagnostic, ...] | None:
    """What checkers say of the document, as the editor says now or has let us see. Raises QuestionError."""
    if uri is None:
        return None
    registry = connection.registry
    document = registry.mirror.document(uri)
    found = None if document is None else connection.checked.of(document.uri, document.version)
    if given is not None:
        found = diagnostics_from(given)
    notebook = registry.notebooks.of_cell(connection, uri)
    if not found or notebook is None:
        return found
    before, total = registry.notebooks.lines(notebook, uri) or (0, 0)
    return tuple(replace(one, line=before + min(one.line, total)) for one in found)


def told_lines(
    connection: Connection, uri: str | None, lines: tuple[int, int] | None, at: int | None
) -> tuple[tuple[int, int] | None, int | None]:
    """The lines that are pointed at, where the text that is told has them: a cell's in the script of its notebook.
    None for those of the JSON that an editor shows of a notebook, which is not told."""
    if uri is None:
        return lines, at
    notebooks, mirror = connection.registry.notebooks, connection.registry.mirror
    notebook = notebooks.of_cell(connection, uri)
    if notebook is None:
        as_json = is_notebook(uri) and mirror.copy(connection, uri) is not None
        return (None, None) if as_json else (lines, at)
    place = notebooks.lines(notebook, uri)
    if place is None or not place[1]:
        return None, None
    before, total = place
    shifted = None if lines is None else (before + min(lines[0], total), before + min(lines[1], total))
    return shifted, None if at is None else before + min(at, total)


def root_of(connection: Connection, given: str | None, path: str | None = None) -> Path:
    """The root that ``given`` names; without it that of ``path``, or the first there is. Raises QuestionError."""
    in_folder = path is not None and not path.startswith(UNSAVED)
    if given is not None:
        folder = folder_path(given)
        if folder is None or not folder.is_dir():
            raise QuestionError(f"root {given} is not a folder: give the path or file URI of one.")
        connection.adopt(folder)
        return root_for(path, [folder]) if path is not None and in_folder else folder
    if path is not None and in_folder:
        return root_for(path, connection.roots)
    if not connection.roots:
        raise QuestionError("No workspace folder is open: open one, or give root.")
    return connection.roots[0]


def _result(answer: Answer) -> dict[str, Any]:
    result: dict[str, Any] = {
        "turnId": answer.turn_id,
        "text": answer.text,
        "finish": answer.finish.value,
        "usage": answer.usage.as_dict(),
    }
    return result if answer.error is None else {**result, "error": answer.error}


def _summary(answer: Answer) -> str:
    usage = answer.usage
    return f"{answer.finish.value}: {usage.prefilled:,} tokens read, {usage.live + usage.restored:,} kept"


async def conversation(connection: Connection, params: Any) -> dict[str, Any]:
    """The turns of a root's conversation."""
    try:
        given, limit = conversation_params(params)
        return await connection.registry.conversation(root_of(connection, given), limit)
    except QmlxError as error:
        raise RequestFailedError.of_error(error) from error


async def context(connection: Connection, params: Any) -> dict[str, Any]:
    """What the conversation of a root knows of its files, or the text that is held for one of them."""
    try:
        given, file = context_params(params)
        if file is not None and not is_path(file):
            raise QuestionError(f"{reprlib.repr(file)} can be no file's name: check it.")
        return await connection.registry.context(root_of(connection, given, None), file)
    except QmlxError as error:
        raise RequestFailedError.of_error(error) from error


async def status(connection: Connection, _params: Any) -> dict[str, Any]:
    """Model, conversations, store, queue, last usage."""
    return await connection.registry.status(connection.clients())
