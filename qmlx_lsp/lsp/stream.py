"""Text and progress of a running request or command, to the one editor that asked.

Text goes out as ``qmlx/stream`` and, when a partial-result token came with the request, as ``$/progress`` on it.
Progress goes out on the work-done token that came with the request, or on one of ours that the editor has accepted.

Invariant: every begun progress is ended, and every stream says ``done`` once.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.lsp.methods import STREAM
from qmlx_lsp.session.event import Step

TITLE = "qmlx"
# How long an editor may take to create a progress.
CREATE_PROGRESS_S = 2.0


async def create_progress(connection: Connection) -> str | None:
    """A token of ours that the editor has accepted, or None: not every client answers."""
    if not connection.shows_progress:
        return None
    token = f"qmlx-{uuid.uuid4()}"
    request = connection.protocol.send_request_async(
        types.WINDOW_WORK_DONE_PROGRESS_CREATE, types.WorkDoneProgressCreateParams(token=token)
    )
    try:
        await asyncio.wait_for(request, CREATE_PROGRESS_S)
    except (TimeoutError, JsonRpcException):  # no answer, or an error as the answer
        return None
    return token


class Feed:
    """What one request sends while it runs. ``job_id`` names it in ``qmlx/stream``."""

    def __init__(
        self,
        protocol: Any,
        job_id: str,
        work_done_token: str | int | None,
        partial_result_token: str | int | None,
    ) -> None:
        self._protocol = protocol
        self._job_id = job_id
        self._work_done = work_done_token
        self._partial = partial_result_token
        self._seq = 0
        self._begun = False
        self._said = ""
        self._step: Step | None = None

    def attach(self, work_done_token: str | int) -> None:
        """Progress goes out on this token from now on, beginning with what was said last."""
        self._work_done = work_done_token
        if self._said:
            self.say(self._said)

    def text(self, delta: str) -> None:
        self.show(delta)
        if self._partial is not None:
            self._progress(self._partial, {"delta": delta, "seq": self._seq - 1})
        self.progress(Step.ANSWERING, 0, 0)

    def show(self, delta: str) -> None:
        """Text that is no part of the request's result."""
        self._stream(delta, done=False)

    def progress(self, step: Step, done: int, total: int) -> None:
        if self._work_done is None or (step is self._step and not total):
            return
        self._step = step
        message = f"{step.value} {done:,} of {total:,} tokens" if step is Step.READING else step.value
        self._report(message, done * 100 // total if total else None, first=0)

    def say(self, message: str) -> None:
        """Where it is, when nobody knows how far that is."""
        self._said = message
        self._report(message, None, first=None)

    def _report(self, message: str, percent: int | None, *, first: int | None) -> None:
        """``first`` is the percentage to begin with, when ``percent`` is not known."""
        if self._work_done is None:
            return
        if not self._begun:
            self._begun = True
            begin = types.WorkDoneProgressBegin(
                title=TITLE, cancellable=True, message=message, percentage=percent or first
            )
            self._progress(self._work_done, begin)
        else:
            self._progress(self._work_done, types.WorkDoneProgressReport(message=message, percentage=percent))

    def end(self, message: str) -> bool:
        """The last of it; whether ``message`` went out as the end of a progress."""
        self._stream("", done=True)
        if self._begun and self._work_done is not None:
            self._progress(self._work_done, types.WorkDoneProgressEnd(message=message))
            self._begun = False
            return True
        return False

    def _stream(self, delta: str, *, done: bool) -> None:
        params = {"jobId": self._job_id, "seq": self._seq, "delta": delta, "done": done}
        self._seq += 1
        self._protocol.notify(STREAM, params)

    def _progress(self, token: str | int, value: Any) -> None:
        self._protocol.notify(types.PROGRESS, types.ProgressParams(token=token, value=value))
