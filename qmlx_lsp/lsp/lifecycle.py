"""From ``initialize`` to ``exit``: capabilities, folders, the model's progress, the dead parent.

Invariant: ``initialize`` is answered before the model is loaded; loading begins at ``initialized``, behind it.
"""

from __future__ import annotations

import asyncio
import os

from lsprotocol import types

from qmlx_lsp.lsp import configuration, status
from qmlx_lsp.lsp.actions import KINDS_OFFERED
from qmlx_lsp.lsp.client import Client
from qmlx_lsp.lsp.commands import COMMANDS
from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.lsp.convert import choose_encoding, folder_path, roots_from
from qmlx_lsp.lsp.methods import EXPERIMENTAL

# How often a client's process is looked at.
PARENT_POLL_S = 2.0


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
    if not connection.followed:
        notices = connection.registry.listen_notices(lambda text: notice(connection, text))
        connection.followed = [notices, status.follow(connection)]
    configuration.ask(connection, connection.roots)
    loader = connection.registry.loader
    if loader.loaded is None:
        loader.start()
        connection.run(status.show_loading(connection))


def did_change_folders(connection: Connection, params: types.DidChangeWorkspaceFoldersParams) -> None:
    removed = {folder_path(folder.uri) for folder in params.event.removed}
    added = [path for folder in params.event.added if (path := folder_path(folder.uri)) is not None]
    kept = [root for root in connection.roots if root not in removed]
    connection.set_roots([*kept, *(path for path in added if path not in kept)])
    configuration.added(connection, added)


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
