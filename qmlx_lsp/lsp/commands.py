"""``workspace/executeCommand``: one table of commands, by the names that editors' packages and scripts rely on.

Arguments are nothing, one plain text (Helix has no more), or one object.
"""

from __future__ import annotations

import reprlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from lsprotocol import types

from qmlx_lsp.errors import QmlxError, QuestionError
from qmlx_lsp.lsp import tools
from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.lsp.convert import folder_path
from qmlx_lsp.lsp.methods import cancel_params, run_tool_params
from qmlx_lsp.lsp.protocol import RequestFailedError

# A command's arguments, and the token of the progress that the editor shows for it.
Token = str | int | None
Command = Callable[[Connection, list[Any], Token], Awaitable[Any]]


async def execute(connection: Connection, params: types.ExecuteCommandParams) -> Any:
    """The command's answer. Raises RequestFailedError."""
    try:
        command = COMMANDS.get(params.command)
        if command is None:
            raise QuestionError(f"There is no command {params.command}; there are: {', '.join(COMMANDS)}.")
        return await command(connection, list(params.arguments or ()), params.work_done_token)
    except QmlxError as error:
        raise RequestFailedError.of_error(error) from error


async def _new_conversation(connection: Connection, arguments: list[Any], _token: Token) -> dict[str, Any]:
    return await connection.registry.new_conversation(_root(connection, arguments))


async def _forget_conversation(connection: Connection, arguments: list[Any], _token: Token) -> dict[str, Any]:
    if not arguments:
        raise QuestionError("Say which conversation is to be forgotten: {root}, the path or file URI of its folder.")
    return await connection.registry.forget(_root(connection, arguments))


async def _run_tool(connection: Connection, arguments: list[Any], token: Token) -> dict[str, Any]:
    return await tools.run_tool(connection, run_tool_params(arguments), token)


async def _cancel(connection: Connection, arguments: list[Any], _token: Token) -> dict[str, Any]:
    return {"cancelled": connection.cancel_jobs(cancel_params(arguments))}


COMMANDS: dict[str, Command] = {
    "qmlx.newConversation": _new_conversation,
    "qmlx.forgetConversation": _forget_conversation,
    tools.RUN_TOOL: _run_tool,
    "qmlx.cancel": _cancel,
}


def _root(connection: Connection, arguments: list[Any]) -> Path:
    """The folder that is meant, which need not be there any more; the first workspace folder when none is named.

    Raises:
        QuestionError: the arguments name no folder.
    """
    given = arguments[0] if arguments else None
    if isinstance(given, Mapping):
        given = given.get("root")
    if given is None and connection.roots:
        return connection.roots[0]
    if given is None:
        raise QuestionError("No workspace folder is open: open one, or give root.")
    folder = folder_path(given) if isinstance(given, str) else None
    if folder is None or len(arguments) > 1:
        shown = reprlib.repr(arguments[1] if len(arguments) > 1 and folder is not None else given)
        raise QuestionError(f"{shown} is no root: give one path or file URI of a folder, or {{root}}.")
    return folder
