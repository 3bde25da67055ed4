"""``textDocument/codeAction``: what can be done here, in milliseconds and without the model.

One table of sources. Each gives bare commands: Helix blocks its whole screen while an action is resolved, and a
command is all that every editor can run.

Invariant: nothing here fails. What cannot be offered is not offered; its command says why.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from lsprotocol import types

from qmlx_lsp.errors import QmlxError
from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.lsp.convert import file_path
from qmlx_lsp.lsp.tools import RUN_TOOL
from qmlx_lsp.session.registry import root_for

Source = Callable[[Connection, types.CodeActionParams], Awaitable[list[types.Command]]]


async def actions(connection: Connection, params: types.CodeActionParams) -> list[types.Command]:
    """All that is offered for the document, less what the editor does not want (``context.only``)."""
    document = connection.registry.mirror.document(params.text_document.uri)
    if document is not None:
        connection.checked.see(params.text_document.uri, document.version, params.context.diagnostics)
    only = [str(getattr(kind, "value", kind)) for kind in params.context.only or ()]
    found: list[types.Command] = []
    for kind, source in ACTIONS:
        if not only or any(_covers(wanted, kind) for wanted in only):
            found += await source(connection, params)
    return found


def _covers(wanted: str, kind: str) -> bool:
    """Whether ``kind`` is ``wanted`` or a kind of it."""
    return not wanted or kind == wanted or kind.startswith(f"{wanted}.")


async def _tools(connection: Connection, params: types.CodeActionParams) -> list[types.Command]:
    """Tools of the document's root. Not when the editor asks by itself, at every move of the cursor: a tool is
    nothing that any line needs, and VS Code would show its light bulb everywhere."""
    tools = connection.registry.tools
    automatic = params.context.trigger_kind is types.CodeActionTriggerKind.Automatic
    if automatic or not connection.trusted or not tools.enabled:
        return []
    try:
        root = root_for(file_path(params.text_document.uri), connection.roots)
        offered = await tools.offered(root)
    except QmlxError:
        return []
    return [
        types.Command(f"Run {tool.title} and tell qmlx", RUN_TOOL, arguments=[{"name": tool.name, "root": str(root)}])
        for tool in offered.values()
    ]


# Kinds by which editors choose. A bare command has none, so that they are looked at here only.
ACTIONS: tuple[tuple[str, Source], ...] = (("source.runTool", _tools),)
KINDS_OFFERED = (types.CodeActionKind.Source,)
