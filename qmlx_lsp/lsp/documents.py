"""Document sync into our own mirror. Plain functions, in the order in which messages arrive.

Nothing raises, whatever a notification holds: what can be understood is done, and what cannot marks the document, so
that a text that may be wrong is never told.
"""

from __future__ import annotations

from typing import Any

from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.lsp.document_params import cells_of, changes_of, each, item_of, number, part, uri_of
from qmlx_lsp.workspace import cells
from qmlx_lsp.workspace.mirror import canonical_uri


def did_open(connection: Connection, params: Any) -> None:
    uri = _open(connection, part(params, "textDocument"))
    if uri is not None:
        _stirred(connection, uri)


def did_change(connection: Connection, params: Any) -> None:
    uri = _change(connection, part(params, "textDocument"), part(params, "contentChanges"))
    if uri is not None:
        _stirred(connection, uri, typing=True)


def did_close(connection: Connection, params: Any) -> None:
    uri = uri_of(params, "textDocument")
    if uri is not None:
        _close(connection, uri)
        _stirred(connection, uri)


def did_save(connection: Connection, params: Any) -> None:
    did_focus(connection, uri_of(params, "textDocument"))


def did_focus(connection: Connection, uri: str | None) -> None:
    """The user looks at a document."""
    if uri is not None:
        connection.registry.mirror.touch(connection, uri)
        _stirred(connection, uri)


def _open(connection: Connection, given: Any) -> str | None:
    """Open a text document; returns its URI."""
    item, mirror = item_of(given), connection.registry.mirror
    if item is None:
        return None
    if item.text is None:
        mirror.missed(connection, item.uri, item.version)
    else:
        mirror.open(connection, item.uri, item.language, item.version, item.text)
    connection.changed(item.uri)
    return item.uri


def _close(connection: Connection, uri: str) -> None:
    connection.registry.mirror.close(connection, uri)
    connection.registry.inline.closed(connection, canonical_uri(uri))
    connection.checked.forget(uri)
    connection.changed(uri)


def _change(connection: Connection, document: Any, events: Any) -> str | None:
    """Change a text document; returns its URI."""
    uri, version = uri_of(document), number(part(document, "version"))
    if uri is None:
        return None
    changes = changes_of(events)
    if changes is None:
        connection.registry.mirror.missed(connection, uri, version)
    else:
        mirror = connection.registry.mirror
        mirror.change(connection, uri, version, changes, connection.encoding)
        if (document := mirror.copy(connection, uri)) is not None:
            connection.registry.inline.changed(connection, canonical_uri(uri), document)
    connection.changed(uri)
    return uri


# --- notebooks -----------------------------------------------------------------------------------------------------


def did_open_notebook(connection: Connection, params: Any) -> None:
    document = part(params, "notebookDocument")
    uri = uri_of(document)
    if uri is None:
        return
    version, held = number(part(document, "version")), cells_of(part(document, "cells"))
    notebook = connection.registry.notebooks.open(connection, uri, version, held)
    for item in each(part(params, "cellTextDocuments")):
        _open_cell(connection, notebook, item)
    _stirred(connection, uri)


def did_change_notebook(connection: Connection, params: Any) -> None:
    """First which cells there are, then their kinds, then their texts: as the protocol lists them."""
    uri = uri_of(params, "notebookDocument")
    if uri is None:
        return
    version, change = number(part(params, "notebookDocument", "version")), part(params, "change", "cells")
    notebook = connection.registry.notebooks.change(connection, uri, version)
    if notebook is None:
        return
    structure = part(change, "structure")
    if structure is not None:
        array = part(structure, "array")
        given = part(array, "cells")
        start, delete = number(part(array, "start")), number(part(array, "deleteCount"))
        cells.splice(notebook, start, delete, [] if given is None else cells_of(given))
        for item in each(part(structure, "didOpen")):
            _open_cell(connection, notebook, item)
        for closed in each(part(structure, "didClose")):
            if (cell := uri_of(closed)) is not None:
                _close(connection, cell)
    if part(change, "data") is not None:
        cells.recast(notebook, cells_of(part(change, "data")))
    for one in each(part(change, "textContent")):
        if (cell := _change(connection, part(one, "document"), part(one, "changes"))) is not None:
            notebook.name(cell)
        else:
            notebook.synced = False
    _stirred(connection, uri, typing=True)


def did_save_notebook(connection: Connection, params: Any) -> None:
    if (uri := uri_of(params, "notebookDocument")) is not None:
        _stirred(connection, uri)


def did_close_notebook(connection: Connection, params: Any) -> None:
    if (uri := uri_of(params, "notebookDocument")) is not None:
        connection.registry.notebooks.close(connection, uri)
        for closed in each(part(params, "cellTextDocuments")):
            if (cell := uri_of(closed)) is not None:
                _close(connection, cell)
        _stirred(connection, uri)


def _open_cell(connection: Connection, notebook: cells.Notebook, given: Any) -> None:
    if (cell := _open(connection, given)) is not None:
        notebook.name(cell)


def _stirred(connection: Connection, uri: str, *, typing: bool = False) -> None:
    notebook = connection.registry.notebooks.of_cell(connection, uri)
    root = connection.root_of(uri if notebook is None else notebook.uri)
    if root is not None:
        connection.registry.stirred(connection, root, typing=typing)
