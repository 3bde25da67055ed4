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
    _stirred(connection, document.uri)


def did_change(connection: Connection, params: types.DidChangeTextDocumentParams) -> None:
    document = params.text_document
    changes = changes_from(params.content_changes)
    connection.registry.mirror.change(connection, document.uri, document.version, changes, connection.encoding)
    _stirred(connection, document.uri, typing=True)


def did_close(connection: Connection, params: types.DidCloseTextDocumentParams) -> None:
    connection.registry.mirror.close(connection, params.text_document.uri)
    connection.checked.forget(params.text_document.uri)
    _stirred(connection, params.text_document.uri)


def did_save(connection: Connection, params: types.DidSaveTextDocumentParams) -> None:
    did_focus(connection, params.text_document.uri)


def did_focus(connection: Connection, uri: str) -> None:
    """The user looks at a document."""
    connection.registry.mirror.touch(connection, uri)
    _stirred(connection, uri)


def _stirred(connection: Connection, uri: str, *, typing: bool = False) -> None:
    root = connection.root_of(uri)
    if root is not None:
        connection.registry.stirred(connection, root, typing=typing)
