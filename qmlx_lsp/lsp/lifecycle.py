"""From ``initialize`` to ``exit``: capabilities, folders, the model's progress, the dead parent.

Invariant: ``initialize`` is answered before the model is loaded; loading begins at ``initialized``, behind it.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from lsprotocol import types

from qmlx_lsp.lsp import configuration
from qmlx_lsp.lsp.actions import KINDS_OFFERED
from qmlx_lsp.lsp.client import Client
from qmlx_lsp.lsp.commands import COMMANDS
from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.lsp.convert import choose_encoding, folder_path, roots_from
from qmlx_lsp.lsp.methods import DID_CHANGE_STATUS, EXPERIMENTAL
from qmlx_lsp.lsp.stream import create_progress
from qmlx_lsp.session.loading import Phase, Progress

# How often a client's process is looked at.
PARENT_POLL_S = 2.0
KINDS = {Phase.FAILED: "Error"}


def initialize(connection: Connection, params: types.InitializeParams) -> None:
    connection.capabilities = params.capabilities
    connection.client = Client.of(params)
    connection.encoding = choose_encoding(params.capabilities)
    connection.set_roots(roots_from(params))
    connection.process_id = params.process_id
    configuration.begin(connection, params.initialization_options)


def complete(connection: Connection, capabilities: types.ServerCapabilities) -> None:
    """What pygls cannot know: our encoding is the connection's, our commands, all cells of all notebooks, and our own
    methods."""
    capabilities.position_encoding = types.PositionEncodingKind(connection.encoding.value)
    capabilities.execute_command_provider = types.ExecuteCommandOptions(commands=list(COMMANDS))
    capabilities.code_action_provider = types.CodeActionOptions(code_action_kinds=list(KINDS_OFFERED))
    if connection.knows_inline:
        capabilities.completion_provider = None
    if connection.capabilities is not None and connection.capabilities.notebook_document is not None:
        every = types.NotebookDocumentFilterWithNotebook(notebook="*")
        capabilities.notebook_document_sync = types.NotebookDocumentSyncOptions([every], save=True)
    capabilities.experimental = {"qmlx": EXPERIMENTAL}


def initialized(connection: Connection) -> None:
    """Say what is amiss; begin to load the model, unless it is there, and show how far it is."""
    if connection.stop_notices is None:
        connection.stop_notices = connection.registry.listen_notices(lambda text: notice(connection, text))
    configuration.ask(connection, connection.roots)
    loader = connection.registry.loader
    if loader.loaded is None:
        loader.start()
        connection.run(show_loading(connection))


def did_change_folders(connection: Connection, params: types.DidChangeWorkspaceFoldersParams) -> None:
    removed = {folder_path(folder.uri) for folder in params.event.removed}
    added = [path for folder in params.event.added if (path := folder_path(folder.uri)) is not None]
    kept = [root for root in connection.roots if root not in removed]
    connection.set_roots([*kept, *(path for path in added if path not in kept)])
    configuration.added(connection, added)


async def show_loading(connection: Connection) -> None:
    """The model's way to readiness as work-done progress and ``qmlx/didChangeStatus``, in this editor."""
    loader = connection.registry.loader
    changes: asyncio.Queue[Progress] = asyncio.Queue()
    stop = loader.listen(changes.put_nowait)
    token = await create_progress(connection)
    begun = False
    try:
        progress = loader.progress
        while True:
            _status(connection, progress)
            if token is not None:
                _report(connection, token, progress, begun=begun)
                begun = True
            if progress.phase in (Phase.READY, Phase.FAILED):
                return
            progress = await changes.get()
    finally:
        stop()
        if begun and token is not None and loader.progress.phase is Phase.LOADING:
            _notify(connection, token, types.WorkDoneProgressEnd())


def _report(connection: Connection, token: str, progress: Progress, *, begun: bool) -> None:
    message = progress.message
    if not begun:
        _notify(connection, token, types.WorkDoneProgressBegin(title="qmlx", message=message, percentage=0))
    if progress.phase is Phase.LOADING:
        _notify(connection, token, types.WorkDoneProgressReport(message=message, percentage=progress.percent))
    else:
        _notify(connection, token, types.WorkDoneProgressEnd(message=message))


def _notify(connection: Connection, token: str, value: Any) -> None:
    connection.protocol.notify(types.PROGRESS, types.ProgressParams(token=token, value=value))


def _status(connection: Connection, progress: Progress) -> None:
    busy = progress.phase is Phase.LOADING
    connection.protocol.notify(
        DID_CHANGE_STATUS,
        {
            "kind": KINDS.get(progress.phase, "Busy" if busy else "Normal"),
            "busy": busy,
            "message": progress.message,
            "model": connection.registry.loader.source,
            "root": str(connection.roots[0]) if connection.roots else None,
        },
    )


def notice(connection: Connection, text: str) -> None:
    """One line in the editor, once, for something that needs no action at once."""
    params = types.ShowMessageParams(type=types.MessageType.Warning, message=text)
    connection.protocol.notify(types.WINDOW_SHOW_MESSAGE, params)


async def parent_gone(connection: Connection) -> None:
    """Return when the process that the editor named as its own has ended."""
    while True:
        await asyncio.sleep(PARENT_POLL_S)
        if connection.process_id is not None and not _alive(connection.process_id):
            return


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
