"""``textDocument/codeAction``: what can be done here, in milliseconds and without the model.

One table of sources. Each gives commands, as such or in an action that says its kind: nothing is ever resolved, for
Helix blocks its whole screen while it is.

Invariant: nothing here fails. What cannot be offered is not offered; its command says why.
Invariant: of a private file nothing is offered but tools, which do not look at it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lsprotocol import types

from qmlx_lsp.errors import QmlxError
from qmlx_lsp.lsp.assist_params import TAKES_TEXT
from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.lsp.convert import file_path, lines_from
from qmlx_lsp.lsp.target import place, refuse_private
from qmlx_lsp.lsp.tools import RUN_TOOL
from qmlx_lsp.session.registry import root_for
from qmlx_lsp.workspace.instructions import Kind
from qmlx_lsp.workspace.positions import Encoding, column
from qmlx_lsp.workspace.tool_output import one_line
from qmlx_lsp.workspace.wishes import wishes

FIXES_MAX = 5
"""Diagnostics for which a fix is offered at most."""
TITLE_CHARS_MAX = 80
"""Characters of somebody else's text in a title at most."""


_ASKING = {f"qmlx.{kind.value}" for kind in TAKES_TEXT}
"""What needs a text of the user's."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One thing that can be done. ``kind`` is what editors choose by."""

    title: str
    command: str
    kind: str
    argument: dict[str, Any]
    fixes: types.Diagnostic | None = None
    by_model: bool = True


Source = Callable[[Connection, types.CodeActionParams], Awaitable[list[Offer]]]


async def actions(
    connection: Connection, params: types.CodeActionParams
) -> Sequence[types.Command | types.CodeAction]:
    """All that is offered for the document, less what the editor does not want (``context.only``)."""
    document = connection.registry.mirror.document(params.text_document.uri)
    if document is not None:
        connection.checked.see(params.text_document.uri, document.version, params.context.diagnostics)
    only = [str(getattr(kind, "value", kind)) for kind in params.context.only or ()]
    found: list[Offer] = []
    for kinds, source in SOURCES:
        if not only or any(_covers(wanted, kind) for wanted in only for kind in kinds):
            found += await source(connection, params)
    return [_sent(connection, offer) for offer in found if not only or any(_covers(one, offer.kind) for one in only)]


def _covers(wanted: str, kind: str) -> bool:
    """Whether ``kind`` is ``wanted`` or a kind of it."""
    return not wanted or kind == wanted or kind.startswith(f"{wanted}.")


def _sent(connection: Connection, offer: Offer) -> types.Command | types.CodeAction:
    command = types.Command(title=offer.title, command=offer.command, arguments=[offer.argument])
    client = connection.client
    if not client.literals:
        return command
    return types.CodeAction(
        title=offer.title,
        kind=offer.kind,
        command=command,
        diagnostics=[offer.fixes] if offer.fixes is not None else None,
        is_preferred=True if offer.fixes is not None and client.prefers else None,
        tags=[types.CodeActionTag.LlmGenerated] if offer.by_model and client.tags else None,
    )


def _automatic(params: types.CodeActionParams) -> bool:
    """Whether the editor asks by itself, at every move of the cursor: what fits any line is not offered then, or
    VS Code would show its light bulb everywhere."""
    return params.context.trigger_kind is types.CodeActionTriggerKind.Automatic


# --- what the model does -------------------------------------------------------------------------------------------


async def _assisting(connection: Connection, params: types.CodeActionParams) -> list[Offer]:
    """Of documents that this editor has open, and of which the text is certain."""
    uri, document = params.text_document.uri, connection.registry.mirror.copy(connection, params.text_document.uri)
    if document is None or not document.synced:
        return []
    span = connection.protocol._converter.unstructure(params.range)
    if connection.client.block_cursor and _one_character(document.lines, params.range, connection.encoding):
        span["end"] = span["start"]
    selected = lines_from(span)
    line = params.range.start.line + 1
    said = wishes(document.lines, selected or (line, line))
    if _automatic(params) and not said and not params.context.diagnostics:
        return []
    try:
        await refuse_private(connection, *place(connection, uri))
    except QmlxError:
        return []
    offers = [_fix(connection, uri, found) for found in params.context.diagnostics[:FIXES_MAX]]
    here = {"uri": uri, "range": span}
    if said:
        what = one_line("; ".join(wish.text for wish in said), TITLE_CHARS_MAX)
        offers.append(_offer(f"Do: {what}", Kind.DO_COMMENT, "refactor.rewrite", here))
    if _automatic(params):
        return offers
    offers += [
        _offer("Explain", Kind.EXPLAIN, "refactor.explain", here),
        _offer("Rewrite selection…" if selected else "Rewrite…", Kind.REWRITE, "refactor.rewrite", here),
        _offer("Document", Kind.DOCUMENT, "refactor.rewrite", here),
        _offer("Generate tests", Kind.TESTS, "refactor.tests", here),
        _offer("Ask…", Kind.ASK, "refactor.ask", here),
    ]
    return [one for one in offers if connection.client.asks or one.command not in _ASKING]


def _one_character(rows: Sequence[str], span: types.Range, encoding: Encoding) -> bool:
    """Whether ``span`` holds one character at most, which may be the end of a line."""
    start, end = span.start, span.end
    row = rows[start.line] if start.line < len(rows) else ""
    first = column(row, start.character, encoding)
    if start.line == end.line:
        return column(row, end.character, encoding) <= first + 1
    return (end.line, end.character) == (start.line + 1, 0) and first >= len(row.rstrip("\r\n"))


def _offer(title: str, what: Kind, kind: str, argument: dict[str, Any]) -> Offer:
    return Offer(title, f"qmlx.{what.value}", kind, argument)


def _fix(connection: Connection, uri: str, found: types.Diagnostic) -> Offer:
    plain = connection.protocol._converter.unstructure(found)
    argument = {"uri": uri, "range": plain["range"], "diagnostic": plain}
    message = one_line(str(getattr(found.message, "value", found.message)), TITLE_CHARS_MAX)
    return Offer(f"Fix: {message}", f"qmlx.{Kind.FIX.value}", "quickfix", argument, fixes=found)


# --- tools ---------------------------------------------------------------------------------------------------------


async def _tools(connection: Connection, params: types.CodeActionParams) -> list[Offer]:
    """Tools of the document's root; a tool is nothing that any line needs."""
    tools = connection.registry.tools
    if _automatic(params) or not connection.trusted or not tools.enabled:
        return []
    try:
        root = root_for(file_path(params.text_document.uri), connection.roots)
        offered = await tools.offered(root)
    except QmlxError:
        return []
    return [
        Offer(
            f"Run {tool.title} and tell qmlx", RUN_TOOL, "source.runTool",
            {"name": tool.name, "root": str(root)}, by_model=False,
        )
        for tool in offered.values()
    ]  # fmt: skip


# Which kinds come from where.
SOURCES: tuple[tuple[tuple[str, ...], Source], ...] = (
    (("quickfix", "refactor.rewrite", "refactor.explain", "refactor.tests", "refactor.ask"), _assisting),
    (("source.runTool",), _tools),
)
KINDS_OFFERED = (
    types.CodeActionKind.QuickFix,
    types.CodeActionKind.Refactor,
    types.CodeActionKind.RefactorRewrite,
    types.CodeActionKind.Source,
)
