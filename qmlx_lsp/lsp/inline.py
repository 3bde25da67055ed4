"""``textDocument/inlineCompletion``, and one item of ``textDocument/completion`` for editors that do not know it.

Invariant: an item is for the text that its request was sent for: the document is taken when the message arrives, and
if it has changed by the time there is an answer, the answer is empty.
Invariant: an item has a range in the request's line, from the beginning of the word at the cursor to the cursor; so
whatever was typed meanwhile is not inserted twice.
Invariant: a request that cannot be served is answered with nothing. Nothing pops up while somebody types.
"""

from __future__ import annotations

import asyncio
import re
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lsprotocol import types

from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.session.event import Job
from qmlx_lsp.session.inline import Request
from qmlx_lsp.session.sight import UNSAVED
from qmlx_lsp.session.window import Place
from qmlx_lsp.workspace.document import Document
from qmlx_lsp.workspace.fence import fenced
from qmlx_lsp.workspace.mirror import canonical_uri
from qmlx_lsp.workspace.positions import column, units

_WORD = re.compile(r"[\w$]*")
LABEL_CHARS_MAX = 60  # of an item in a list
LAST = "\U0010ffff"  # sorts behind whatever else an editor's list holds


_document: ContextVar[Document | None] = ContextVar("_document", default=None)


@dataclass(frozen=True, slots=True)
class _At:
    """A place in a document: ``line`` and columns in code points; what is before ``start`` stays as it is."""

    document: Document
    line: int
    start: int
    column: int
    selected: str


def arriving(connection: Connection, method: str, params: Any) -> None:
    """A request has come: what it is about is the text as it is now. Runs before the next message is taken."""
    if method in (types.TEXT_DOCUMENT_INLINE_COMPLETION, types.TEXT_DOCUMENT_COMPLETION):
        _document.set(connection.registry.mirror.copy(connection, params.text_document.uri))


async def inline_completion(connection: Connection, params: types.InlineCompletionParams) -> Any:
    """At most one item. Cancelled, it raises CancelledError once the model has stopped."""
    at = _at(connection, params.position, params.context.selected_completion_info)
    invoked = params.context.trigger_kind is types.InlineCompletionTriggerKind.Invoked
    text = await _completed(connection, at, invoked=invoked)
    if at is None or not text:
        return types.InlineCompletionList(items=[])
    insert = _given(at) + text
    item = types.InlineCompletionItem(insert_text=insert, filter_text=insert, range=_range(connection, at))
    return types.InlineCompletionList(items=[item])


async def completion(connection: Connection, params: types.CompletionParams) -> Any:
    """At most one item, behind all others, that nobody takes by accident."""
    if not connection.inline.in_list:
        return types.CompletionList(is_incomplete=True, items=[])
    at = _at(connection, params.position, None)
    text = await _completed(connection, at, invoked=False)
    if at is None or not text:
        return types.CompletionList(is_incomplete=True, items=[])
    insert = _given(at) + text
    label = insert.strip().splitlines()[0].rstrip()
    item = types.CompletionItem(
        label=label if len(label) <= LABEL_CHARS_MAX else f"{label[: LABEL_CHARS_MAX - 1]}…",
        kind=types.CompletionItemKind.Text,
        detail="qmlx",
        documentation=types.MarkupContent(types.MarkupKind.Markdown, fenced(insert, at.document.language)),
        preselect=False,
        sort_text=LAST,
        filter_text=label,
        insert_text_format=types.InsertTextFormat.PlainText,
        insert_text_mode=types.InsertTextMode.AsIs,
        text_edit=types.TextEdit(range=_range(connection, at), new_text=insert),
    )
    return types.CompletionList(is_incomplete=True, items=[item])


async def _completed(connection: Connection, at: _At | None, *, invoked: bool) -> str:
    """What to insert at the cursor; empty if that is nothing, or is for another text than there is now."""
    request = None if at is None else _request(connection, at, invoked=invoked)
    if at is None or request is None:
        return ""
    job = Job()
    connection.own(job, connection.job_id, None)
    try:
        work = asyncio.create_task(connection.registry.inline.complete(request, job))
        text = await connection.see_through(work, job)
    finally:
        connection.disown(job)
    return text if connection.registry.mirror.copy(connection, at.document.uri) is at.document else ""


def _at(connection: Connection, position: types.Position, selected: Any) -> _At | None:
    """Where that is in the document as it was when the request came; None where there is no such place."""
    document = _document.get()
    if document is None or not document.synced or position.line >= len(document.lines):
        return None
    whole, encoding = document.lines[position.line], connection.encoding
    line = whole.rstrip("\r\n")
    if position.character > units(line, encoding):
        return None
    at = column(whole, position.character, encoding)
    if selected is None:
        word = _WORD.match(line[:at][::-1])  # from its end: lines may be long
        return _At(document, position.line, at - (word.end() if word else 0), at, "")
    start, end = selected.range.start, selected.range.end
    if not start.line == end.line == position.line or not start.character <= end.character == position.character:
        return None
    return _At(document, position.line, column(whole, start.character, encoding), at, selected.text)


def _given(at: _At) -> str:
    """What of an item stands before the text that was completed."""
    return at.selected or at.document.lines[at.line][at.start : at.column]


def _range(connection: Connection, at: _At) -> types.Range:
    line = at.document.lines[at.line]
    start, end = (units(line[:place], connection.encoding) for place in (at.start, at.column))
    return types.Range(types.Position(at.line, start), types.Position(at.line, end))


def _request(connection: Connection, at: _At, *, invoked: bool) -> Request | None:
    """None where nothing is to be completed."""
    settings, document = connection.registry.services.settings.inline, at.document
    wanted = connection.inline
    where = _where(connection, document.uri)
    if where is None or not (settings.enabled if wanted.enable is None else wanted.enable):
        return None
    root, path = where
    place = Place(
        path=path,
        language=document.language,
        lines=document.lines,
        line=at.line,
        column=at.start if at.selected else at.column,
        invoked=invoked,
        selected=at.selected,
        covered=at.column - at.start if at.selected else 0,
    )
    key = canonical_uri(document.uri)
    return Request(connection, key, root, place, wanted.max_tokens, wanted.max_lines, wanted.debounce_ms)


def _where(connection: Connection, uri: str) -> tuple[Path, str] | None:
    """The folder that a document is worked on in, and its name there; a cell's are those of its notebook."""
    notebook = connection.registry.notebooks.of_cell(connection, uri)
    key = canonical_uri(uri if notebook is None else notebook.uri)
    if key.startswith(UNSAVED):
        return (connection.roots[0], key) if connection.roots else None
    return connection.place_of(key)
