"""Tools that a user runs (``qmlx.runTool``), and results that an editor has itself (``qmlx/toolResult``).

``qmlx.runTool`` is answered at once with the id of a job. What the tool prints is streamed, its last line is the
progress's message, and when it has ended its result is told to the conversation.

Invariant: in an untrusted workspace nothing runs, not even a look into ``.qmlx.toml`` is taken.
Invariant: a connection's tools end with it. What they have printed is then not told, for nobody is there to ask about
it; a result whose telling had begun is told all the same.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from lsprotocol import types

from qmlx_lsp.errors import QmlxError, QuestionError, ToolError
from qmlx_lsp.lsp import jobs
from qmlx_lsp.lsp.ask import root_of
from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.lsp.convert import folder_path
from qmlx_lsp.lsp.jobs import EditorJob, Ending
from qmlx_lsp.lsp.methods import RunToolParams, tool_result_params
from qmlx_lsp.lsp.protocol import RequestFailedError
from qmlx_lsp.session.registry import root_for
from qmlx_lsp.session.tools import Outcome, Watch
from qmlx_lsp.workspace.mirror import uri_to_path
from qmlx_lsp.workspace.tool_output import LINE_CHARS_MAX, NAME_CHARS_MAX, one_line
from qmlx_lsp.workspace.toolbox import chosen

RUN_TOOL = "qmlx.runTool"


async def run_tool(connection: Connection, wanted: RunToolParams, token: str | int | None) -> dict[str, Any]:
    """Start the tool that is ``wanted``, with its progress on ``token`` if the editor gave one.

    Raises:
        QmlxError: nothing runs.
    """
    if not connection.trusted:
        again = one_line(wanted.name or "the tool", NAME_CHARS_MAX)
        raise ToolError(
            f"This workspace is not trusted, so nothing is run: trust it in the editor, then run {again} again."
        )
    root = _root(connection, wanted)
    tools = connection.registry.tools
    token = token if token is not None else wanted.work_done_token
    with jobs.prepared(connection, wanted.name or "tool", token) as prepared:
        tool = chosen(await tools.offered(root), wanted.name, str(root))
        running = replace(prepared, name=tool.name)
        feed = running.feed
        watch = Watch(feed.show, lambda line: feed.say(one_line(f"{tool.name}: {line}", LINE_CHARS_MAX)))
        task = tools.begin(root, tool, running.job, watch)
        return jobs.begin(connection, running, task, lambda outcome: _end(connection, running, root, outcome))


def _root(connection: Connection, wanted: RunToolParams) -> Path:
    """Raises QuestionError when nothing, or nothing there is, is named."""
    if wanted.place is None:
        return root_of(connection, wanted.root)
    path = wanted.place if wanted.place.startswith("/") else uri_to_path(wanted.place)
    folder = folder_path(wanted.place)
    if path is None or folder is None:
        raise QuestionError(f"{wanted.place!r} is no path: give the path or file URI of a file or folder.")
    try:
        return root_for(os.path.normpath(path), connection.roots)
    except QuestionError:
        if folder.is_dir():
            return folder
        raise


async def _end(connection: Connection, running: EditorJob, root: Path, outcome: Outcome) -> Ending:
    """Tell the result."""
    if outcome.text is None:
        return Ending(f"{outcome.end}, nothing told")
    connection.disown(running.job)  # what is being told cannot be cancelled any more
    running.feed.say(f"{running.name}: {outcome.end}, telling it")
    try:
        tokens = await connection.registry.tell_result(root, outcome.text)
    except QmlxError as error:
        return Ending(f"{outcome.end}, not told: {error}", types.MessageType.Error, loud=True)
    return Ending(f"{outcome.end}, {tokens:,} tokens told")


async def tool_result(connection: Connection, params: Any) -> dict[str, Any]:
    """``qmlx/toolResult``: nothing is run, so that trust does not matter. Answered when it has been told."""
    try:
        given = tool_result_params(params)
        name = one_line(given.name, NAME_CHARS_MAX)
        if not name:
            raise QuestionError("name shows nothing: say which tool the result is from.")
        root, registry = root_of(connection, given.root), connection.registry
        text = await asyncio.to_thread(
            registry.tools.told_by_editor, name, given.command, given.exit_code, given.output
        )
        return {"tokens": await registry.tell_result(root, text)}
    except QmlxError as error:
        raise RequestFailedError.of_error(error) from error
