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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lsprotocol import types

from qmlx_lsp.errors import QmlxError, QuestionError, ToolError
from qmlx_lsp.lsp.ask import root_of
from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.lsp.convert import folder_path
from qmlx_lsp.lsp.methods import RunToolParams, tool_result_params
from qmlx_lsp.lsp.protocol import RequestFailedError
from qmlx_lsp.lsp.stream import Feed, create_progress
from qmlx_lsp.session.event import Job
from qmlx_lsp.session.registry import root_for
from qmlx_lsp.session.tools import Outcome, Watch
from qmlx_lsp.workspace.mirror import uri_to_path
from qmlx_lsp.workspace.tool_output import LINE_CHARS_MAX, NAME_CHARS_MAX, one_line
from qmlx_lsp.workspace.toolbox import chosen

RUN_TOOL = "qmlx.runTool"


@dataclass(frozen=True, slots=True)
class _Run:
    """A tool that runs for one editor."""

    name: str
    root: Path
    job: Job
    job_id: str
    feed: Feed
    task: asyncio.Task[Outcome]


async def run_tool(connection: Connection, wanted: RunToolParams, token: str | int | None) -> dict[str, Any]:
    """Start the tool that is ``wanted``, with its progress on ``token`` if the editor gave one.

    Raises:
        QmlxError: nothing runs.
    """
    job_id = connection.job_id
    if not connection.trusted:
        again = one_line(wanted.name or "the tool", NAME_CHARS_MAX)
        raise ToolError(
            f"This workspace is not trusted, so nothing is run: trust it in the editor, then run {again} again."
        )
    root = _root(connection, wanted)
    tools = connection.registry.tools
    tool = chosen(await tools.offered(root), wanted.name, str(root))
    token = token if token is not None else wanted.work_done_token
    job, feed = Job(), Feed(connection.protocol, job_id, token, None)
    watch = Watch(feed.show, lambda line: feed.say(one_line(f"{tool.name}: {line}", LINE_CHARS_MAX)))
    task = tools.begin(root, tool, job, watch)
    connection.own(job, job_id, token)
    feed.say(f"{tool.name}: running")
    connection.run(_follow(connection, _Run(tool.name, root, job, job_id, feed, task), shown=token is not None))
    return {"jobId": job_id}


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


async def _follow(connection: Connection, run: _Run, *, shown: bool) -> None:
    """See ``run`` through, tell its result, and say so: at the end of the progress, or else as a message. What went
    wrong is always a message, for the end of a progress is easily missed."""
    said, kind, heard = "failed", types.MessageType.Error, True
    try:
        if not shown and (token := await create_progress(connection)) is not None:
            connection.own(run.job, run.job_id, token)
            run.feed.attach(token)
        said, kind = await _end(connection, run)
    except asyncio.CancelledError:
        said, heard = "cancelled", False  # the connection ends
        run.job.cancel()
        if not run.task.done():
            await asyncio.wait({run.task})
        raise
    finally:
        connection.disown(run.job)
        message = f"{run.name}: {said}"
        ended = run.feed.end(message)
        if heard and (not ended or kind is types.MessageType.Error):
            params = types.ShowMessageParams(type=kind, message=message)
            connection.protocol.notify(types.WINDOW_SHOW_MESSAGE, params)


async def _end(connection: Connection, run: _Run) -> tuple[str, types.MessageType]:
    try:
        outcome = await connection.see_through(run.task, run.job)
    except QmlxError as error:
        return f"not run: {error}", types.MessageType.Error
    if outcome.text is None:
        return f"{outcome.end}, nothing told", types.MessageType.Info
    connection.disown(run.job)  # what is being told cannot be cancelled any more
    run.feed.say(f"{run.name}: {outcome.end}, telling it")
    try:
        tokens = await connection.registry.tell_result(run.root, outcome.text)
    except QmlxError as error:
        return f"{outcome.end}, not told: {error}", types.MessageType.Error
    return f"{outcome.end}, {tokens:,} tokens told", types.MessageType.Info


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
