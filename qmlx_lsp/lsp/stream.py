"""Text and progress of a running request, to the one editor that asked.

Text goes out as ``qmlx/stream`` and, when a partial-result token came with the request, as ``$/progress`` on it.
Progress goes out on the work-done token that came with the request.

Invariant: every begun progress is ended, and every stream says ``done`` once.
"""

from __future__ import annotations

from typing import Any

from lsprotocol import types

from qmlx_lsp.lsp.methods import STREAM
from qmlx_lsp.session.event import Step

TITLE = "qmlx"


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
        self._step: Step | None = None

    def text(self, delta: str) -> None:
        self._stream(delta, done=False)
        if self._partial is not None:
            self._progress(self._partial, {"delta": delta, "seq": self._seq - 1})
        self.progress(Step.ANSWERING, 0, 0)

    def progress(self, step: Step, done: int, total: int) -> None:
        if self._work_done is None or (step is self._step and not total):
            return
        self._step = step
        percent = done * 100 // total if total else None
        message = f"{step.value} {done:,} of {total:,} tokens" if step is Step.READING else step.value
        if not self._begun:
            self._begun = True
            begin = types.WorkDoneProgressBegin(
                title=TITLE, cancellable=True, message=message, percentage=percent or 0
            )
            self._progress(self._work_done, begin)
        else:
            self._progress(self._work_done, types.WorkDoneProgressReport(message=message, percentage=percent))

    def end(self, message: str) -> None:
        self._stream("", done=True)
        if self._begun and self._work_done is not None:
            self._progress(self._work_done, types.WorkDoneProgressEnd(message=message))
            self._begun = False

    def _stream(self, delta: str, *, done: bool) -> None:
        params = {"jobId": self._job_id, "seq": self._seq, "delta": delta, "done": done}
        self._seq += 1
        self._protocol.notify(STREAM, params)

    def _progress(self, token: str | int, value: Any) -> None:
        self._protocol.notify(types.PROGRESS, types.ProgressParams(token=token, value=value))
