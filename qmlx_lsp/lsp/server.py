"""One language server per connection, and the table of what it serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import cache
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInternalError
from pygls.lsp.server import LanguageServer
from pygls.protocol import default_converter

from qmlx_lsp import __version__
from qmlx_lsp.lsp import actions, ask, commands, configuration, documents, inline, lifecycle, methods, tools
from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.lsp.protocol import QmlxProtocol, Reader, read_messages
from qmlx_lsp.session.registry import Registry

logger = logging.getLogger(__name__)


class QmlxServer(LanguageServer):
    """pygls's server object for one connection; it serves nothing by itself."""

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Errors are answers to requests; no window pops up for them. What nobody has foreseen is a fault of ours."""
        if isinstance(error, JsonRpcException) and not isinstance(error, JsonRpcInternalError):
            logger.debug("%s: %s", source, error)
        else:
            logger.error("a message could not be handled: %s", error)


@cache
def shared_converter() -> Any:
    """One converter for all connections: it learns each type once, which takes 60 ms of
    the event loop for ``initialize``, and holds no state of any."""
    return default_converter()  # type: ignore[no-untyped-call]


def warm_up() -> None:
    """Make the converter compile what every connection needs first, before anyone waits for it."""
    params: dict[str, Any] = {"processId": None, "rootUri": None, "capabilities": {}}
    message = {"jsonrpc": "2.0", "id": 0, "method": types.INITIALIZE, "params": params}
    converter = shared_converter()
    converter.structure(message, types.InitializeRequest)
    converter.unstructure(types.InitializeResponse(0, types.InitializeResult(types.ServerCapabilities())))


def build(registry: Registry, clients: Callable[[], int]) -> tuple[QmlxServer, Connection]:
    """A server with every feature registered, and the state of its connection."""
    server = QmlxServer(
        "qmlx-lsp",
        __version__,
        protocol_cls=QmlxProtocol,
        converter_factory=shared_converter,
        text_document_sync_kind=types.TextDocumentSyncKind.Incremental,
    )
    connection = Connection(registry, server.protocol, clients)
    plain: dict[str, Callable[[Any], None]] = {
        types.INITIALIZE: lambda params: lifecycle.initialize(connection, params),
        types.INITIALIZED: lambda _params: lifecycle.initialized(connection),
        types.TEXT_DOCUMENT_DID_OPEN: lambda params: documents.did_open(connection, params),
        types.TEXT_DOCUMENT_DID_CHANGE: lambda params: documents.did_change(connection, params),
        types.TEXT_DOCUMENT_DID_CLOSE: lambda params: documents.did_close(connection, params),
        types.TEXT_DOCUMENT_DID_SAVE: lambda params: documents.did_save(connection, params),
        types.WORKSPACE_DID_CHANGE_CONFIGURATION: lambda params: configuration.did_change(connection, params),
        types.NOTEBOOK_DOCUMENT_DID_OPEN: lambda params: documents.did_open_notebook(connection, params),
        types.NOTEBOOK_DOCUMENT_DID_CHANGE: lambda params: documents.did_change_notebook(connection, params),
        types.NOTEBOOK_DOCUMENT_DID_CLOSE: lambda params: documents.did_close_notebook(connection, params),
        types.NOTEBOOK_DOCUMENT_DID_SAVE: lambda params: documents.did_save_notebook(connection, params),
        types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS: lambda p: lifecycle.did_change_folders(connection, p),
        types.WINDOW_WORK_DONE_PROGRESS_CANCEL: lambda params: connection.cancel_by_token(params.token),
    }
    plain[methods.DID_FOCUS] = lambda params: documents.did_focus(connection, methods.focused(params))
    plain |= {hint: lambda _params: None for hint in methods.HINTS}
    for method, handler in plain.items():
        server.feature(method)(handler)

    _serve_requests(server, connection)
    return server, connection


def _serve_requests(server: QmlxServer, connection: Connection) -> None:
    @server.feature(methods.ASK)
    async def _ask(params: Any) -> Any:
        return await ask.ask(connection, params)

    @server.feature(methods.CONVERSATION)
    async def _conversation(params: Any) -> Any:
        return await ask.conversation(connection, params)

    @server.feature(methods.STATUS)
    async def _status(params: Any) -> Any:
        return await ask.status(connection, params)

    @server.feature(methods.CONTEXT)
    async def _context(params: Any) -> Any:
        return await ask.context(connection, params)

    @server.feature(methods.TOOL_RESULT)
    async def _tool_result(params: Any) -> Any:
        return await tools.tool_result(connection, params)

    @server.feature(types.TEXT_DOCUMENT_CODE_ACTION)
    async def _code_action(params: types.CodeActionParams) -> Any:
        return await actions.actions(connection, params)

    @server.feature(types.TEXT_DOCUMENT_INLINE_COMPLETION, types.InlineCompletionOptions())
    async def _inline_completion(params: types.InlineCompletionParams) -> Any:
        return await inline.inline_completion(connection, params)

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions())
    async def _completion(params: types.CompletionParams) -> Any:
        return await inline.completion(connection, params)

    @server.feature(types.WORKSPACE_EXECUTE_COMMAND)
    async def _execute_command(params: Any) -> Any:
        return await commands.execute(connection, params)


def _arriving(connection: Connection, method: str, params: Any) -> None:
    commands.arriving(connection, method, params)
    inline.arriving(connection, method, params)


async def serve(
    registry: Registry,
    reader: Reader,
    writer: Any,
    clients: Callable[[], int],
    first_line: bytes = b"",
    folder: str | None = None,
) -> bool:
    """Serve one connection until it ends; True if it ended well: by ``exit`` after ``shutdown``, or because the
    editor closed its end between two messages.

    ``writer`` has ``write(bytes)`` and ``close()``; the editor was started in ``folder``.
    """
    server, connection = build(registry, clients)
    connection.folder = folder
    protocol = server.protocol
    assert isinstance(protocol, QmlxProtocol)
    ended = asyncio.Event()
    protocol.on_exit = ended.set
    protocol.complete = lambda capabilities: lifecycle.complete(connection, capabilities)
    protocol.arriving = lambda method, params: _arriving(connection, method, params)
    protocol.set_writer(writer)
    reading = asyncio.ensure_future(read_messages(reader, server, first_line))
    waits: list[asyncio.Future[Any]] = [
        reading,
        asyncio.ensure_future(ended.wait()),
        asyncio.ensure_future(lifecycle.parent_gone(connection)),
    ]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        results = await asyncio.gather(*waits, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, (ConnectionError, asyncio.CancelledError)):
                logger.error("connection failed: %s", result, exc_info=result)
        await connection.close()
    if ended.is_set():
        return protocol.orderly
    return not reading.cancelled() and reading.exception() is None and reading.result()
