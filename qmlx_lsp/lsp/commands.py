"""``workspace/executeCommand``: one table of commands, by the names that editors' packages and scripts rely on.

Arguments are nothing, plain texts and numbers (Helix has no more), or one object.

Invariant: what a command is about is taken while its message is handled (``arriving``), in the order in which
messages come; the command itself runs a moment later, when other messages may have been handled.
"""

from __future__ import annotations

import asyncio
import os
import reprlib
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

from lsprotocol import types

from qmlx_lsp.errors import QmlxError, QuestionError
from qmlx_lsp.lsp import answers, assist, status, tools
from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.lsp.convert import folder_path
from qmlx_lsp.lsp.methods import cancel_params, forced, run_tool_params
from qmlx_lsp.lsp.protocol import RequestFailedError
from qmlx_lsp.workspace.instructions import Kind

# A command's arguments, and the token of the progress that the editor shows for it.
Token = str | int | None
Command = Callable[[Connection, list[Any], Token], Awaitable[Any]]

# What the command of the message that is handled is about, or why it cannot be.
_about: ContextVar[tuple[assist.About | Exception | None]] = ContextVar("_about", default=(None,))


def arriving(connection: Connection, method: Any, params: Any) -> None:
    """A request has come and is about to be handled; see the module's invariant."""
    if method != types.WORKSPACE_EXECUTE_COMMAND:
        return
    kind = ASSISTING.get(params.command)
    if kind is None:
        return
    try:
        _about.set((assist.arrived(connection, kind, list(params.arguments or ())),))
    except Exception as error:  # noqa: BLE001 - the handler raises it; here it would end the connection
        _about.set((error,))


async def execute(connection: Connection, params: types.ExecuteCommandParams) -> Any:
    """The command's answer. Raises RequestFailedError."""
    try:
        command = COMMANDS.get(params.command)
        if command is None:
            raise QuestionError(f"There is no command {params.command}; there are: {', '.join(COMMANDS)}.")
        return await command(connection, list(params.arguments or ()), params.work_done_token)
    except QmlxError as error:
        if connection.client.silent:
            _say(connection, str(error), types.MessageType.Error)
        raise RequestFailedError.of_error(error) from error


def _say(connection: Connection, text: str, kind: types.MessageType = types.MessageType.Info) -> None:
    connection.protocol.notify(types.WINDOW_SHOW_MESSAGE, types.ShowMessageParams(type=kind, message=text))


async def _new_conversation(connection: Connection, arguments: list[Any], _token: Token) -> dict[str, Any]:
    return await connection.registry.new_conversation(_root(connection, arguments))


async def _forget_conversation(connection: Connection, arguments: list[Any], _token: Token) -> dict[str, Any]:
    if not arguments:
        raise QuestionError("Say which conversation is to be forgotten: {root}, the path or file URI of its folder.")
    root, shown = _root(connection, arguments), connection.registry.answers
    forgotten = await connection.registry.forget(root)
    if shown is not None:
        await asyncio.to_thread(shown.forget, root)
    return forgotten


async def _run_tool(connection: Connection, arguments: list[Any], token: Token) -> dict[str, Any]:
    return await tools.run_tool(connection, run_tool_params(arguments), token)


async def _cancel(connection: Connection, arguments: list[Any], _token: Token) -> dict[str, Any]:
    return {"cancelled": connection.cancel_jobs(cancel_params(arguments))}


async def _assist(kind: Kind, connection: Connection, _arguments: list[Any], token: Token) -> dict[str, Any]:
    (about,) = _about.get()
    assert about is not None, "the message has come by"
    if isinstance(about, Exception):
        raise about
    return await assist.assist(connection, kind, about, token)


async def _status(connection: Connection, _arguments: list[Any], _token: Token) -> dict[str, Any]:
    """The status, and a line of it for editors that show no answers of commands."""
    found = await connection.registry.status(connection.clients())
    if not connection.client.panel:
        _say(connection, status.line(found, connection.roots))
    return found


async def _show_conversation(connection: Connection, arguments: list[Any], _token: Token) -> dict[str, str | None]:
    return await answers.show_conversation(connection, _root(connection, arguments))


async def _restart(connection: Connection, arguments: list[Any], _token: Token) -> dict[str, int]:
    """The daemon records what runs, saves, and leaves; the next connection begins another one. Other editors are cut
    off from it, and not all of them connect again by themselves: so only ``force`` does that to them."""
    others, force = connection.clients() - 1, forced(arguments)
    if others > 0 and not force:
        raise QuestionError(
            f"{others} more connected to this daemon would be cut off: close what they are, or give {{force: true}}."
        )
    asyncio.get_running_loop().call_soon(connection.registry.leave)  # behind the answer
    return {"pid": os.getpid(), "clients": others + 1}


ASSISTING = {f"qmlx.{kind.value}": kind for kind in Kind}
COMMANDS: dict[str, Command] = {
    "qmlx.newConversation": _new_conversation,
    "qmlx.forgetConversation": _forget_conversation,
    tools.RUN_TOOL: _run_tool,
    "qmlx.cancel": _cancel,
    "qmlx.status": _status,
    "qmlx.showConversation": _show_conversation,
    "qmlx.restart": _restart,
    **{name: partial(_assist, kind) for name, kind in ASSISTING.items()},
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
