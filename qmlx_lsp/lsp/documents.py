"""Document sync into our own mirror. Plain functions, in the order in which messages arrive."""

from __future__ import annotations

from lsprotocol import types

from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.lsp.convert import changes_from


def did_open(connection: Connection, params: types.DidOpenTextDocumentParams) -> None:
    document = params.text_document
    connection.registry.mirror.open(
        connection, document.uri, str(document.language_id), document.version, document.text
    )


def did_change(connection: Connection, params: types.DidChangeTextDocumentParams) -> None:
    document = params.text_document
    changes = changes_from(params.content_changes)
    connection.registry.mirror.change(connection, document.uri, document.version, changes, connection.encoding)


def did_close(connection: Connection, params: types.DidCloseTextDocumentParams) -> None:
    connection.registry.mirror.close(connection, params.text_document.uri)


def did_save(connection: Connection, params: types.DidSaveTextDocumentParams) -> None:
    connection.registry.mirror.touch(connection, params.text_document.uri)
