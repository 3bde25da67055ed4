"""Commands that run as jobs: acknowledged at once, seen through in the background, with one line at the end.

Invariant: a job's end is said once: at the end of its progress, or else as one message. What went wrong, and what the
user has to look for, is always a message, for the end of a progress is easily missed.
Invariant: a connection's jobs end with it; nothing is said then, for nobody would hear.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from lsprotocol import types

from qmlx_lsp.errors import QmlxError
from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.lsp.stream import Feed, create_progress
from qmlx_lsp.session.event import Job

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EditorJob:
    """A job that an editor has begun. ``name`` is what its user knows it by."""

    name: str
    job: Job
    job_id: str
    feed: Feed
    token: str | int | None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended, in one line; ``loud`` is what the user must not miss."""

    said: str
    kind: types.MessageType = types.MessageType.Info
    loud: bool = False


@contextmanager
def prepared(connection: Connection, name: str, token: str | int | None) -> Iterator[EditorJob]:
    """A job for the request that is handled now: it can be cancelled from here on, whatever is looked at before it
    begins, and is none if that raises. Nothing is sent yet. ``token`` is the editor's for its progress."""
    job_id = connection.job_id
    running = EditorJob(name, Job(), job_id, Feed(connection.protocol, job_id, token, None), token)
    connection.own(running.job, job_id, token)
    try:
        yield running
    except BaseException:
        connection.disown(running.job)
        raise


def begin(
    connection: Connection, running: EditorJob, task: asyncio.Task[T], end: Callable[[T], Awaitable[Ending]]
) -> dict[str, Any]:
    """The answer to the command; ``task`` is seen through in the background, and then ``end`` of its outcome."""
    running.feed.say(f"{running.name}: running")
    connection.run(_follow(connection, running, task, end))
    return {"jobId": running.job_id}


async def _follow(
    connection: Connection, running: EditorJob, task: asyncio.Task[T], end: Callable[[T], Awaitable[Ending]]
) -> None:
    ending, heard = Ending("failed", types.MessageType.Error, loud=True), True
    try:
        if running.token is None and (token := await create_progress(connection)) is not None:
            connection.own(running.job, running.job_id, token)
            running.feed.attach(token)
        ending = await _ended(connection, running, task, end)
    except asyncio.CancelledError:
        ending, heard = Ending("cancelled"), False  # the connection ends
        running.job.cancel()
        if not task.done():
            await asyncio.wait({task})
        raise
    finally:
        connection.disown(running.job)
        message = f"{running.name}: {ending.said}"
        shown = running.feed.end(message)
        if heard and (ending.loud or not shown):
            params = types.ShowMessageParams(type=ending.kind, message=message)
            connection.protocol.notify(types.WINDOW_SHOW_MESSAGE, params)


async def _ended(
    connection: Connection, running: EditorJob, task: asyncio.Task[T], end: Callable[[T], Awaitable[Ending]]
) -> Ending:
    try:
        return await end(await connection.see_through(task, running.job))
    except QmlxError as error:
        return Ending(f"not run: {error}", types.MessageType.Error, loud=True)
