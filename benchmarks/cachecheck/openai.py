"""Any server that speaks as OpenAI's ``/v1/chat/completions``: the client keeps the history and sends all of it.

A question goes to the server in one streaming request, with the usage asked for. What the server does not state stays
unknown. The server is restarted by a command of its user's, and waited for until it listens.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from benchmarks.cachecheck import messages
from benchmarks.cachecheck.conversation import (
    CUT,
    PREFILL_CUT,
    Change,
    CheckError,
    Context,
    Impossible,
    NotTested,
    Refused,
    Restart,
    Turn,
)
from benchmarks.cachecheck.stream import Reply, Wire

LISTEN_S = 180.0
"""Seconds a server has to listen again after a restart, its model's loading included."""
POLL_S = 0.5


class OpenAI:
    """A server at ``url``, with or without ``/v1``. ``extra`` goes into every request."""

    def __init__(
        self, url: str, *, model: str | None = None, key: str | None = None, timeout_s: float = 600.0,
        restart: str | None = None, extra: dict[str, Any] | None = None,
        clock: Callable[[], float] = time.perf_counter, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        base = urlsplit(url.rstrip("/"))
        if base.scheme not in ("http", "https") or not base.hostname:
            raise CheckError(f"{url} is no URL: give one such as http://127.0.0.1:8080, or qmlx.")
        if not base.path.endswith("/v1"):
            base = base._replace(path=f"{base.path}/v1")
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        self.wire = Wire(base, headers, timeout_s, clock)
        self.name = base.geturl()
        self._restart = restart
        self._sleep = sleep
        self._usage = True
        self._by: str | None = None
        self._fixed: dict[str, Any] = {"model": model or self._first_model(), "temperature": 0, **(extra or {})}

    def _first_model(self) -> str:
        listed = self.wire.get("/models")
        try:
            return str(listed["data"][0]["id"])
        except (LookupError, TypeError) as error:
            raise CheckError(f"{self.name} lists no model: name one with --model.") from error

    def about(self) -> dict[str, Any]:
        return {"kind": "openai", "url": self.name, "system_fingerprint": self._by, **self._fixed}

    def new(self, name: str, context: Context | None, *, tools: bool = False) -> Resent:
        return Resent(self, messages.opening(context, tools=tools))

    def request(self, body: dict[str, Any], max_tokens: int, **cut: Any) -> Reply:
        whole = {**self._fixed, **body, "stream": True, "max_tokens": max_tokens}
        if self._usage:
            whole["stream_options"] = {"include_usage": True}
        try:
            reply = self.wire.stream(whole, **cut)
        except Refused as error:
            if not self._usage or "stream_options" not in str(error):
                raise
            self._usage = False  # an older server: it states less
            return self.request(body, max_tokens, **cut)
        self._by = reply.by or self._by
        return reply

    def restart(self, how: Restart) -> None:
        if how is Restart.KILL:
            raise Impossible("the --restart command decides how the server is ended")
        if self._restart is None:
            raise NotTested("no --restart command was given")
        quiet = subprocess.DEVNULL  # a server that it leaves behind must not hold our pipes
        done = subprocess.run(self._restart, shell=True, check=False, stdin=quiet, stdout=quiet, stderr=quiet)
        if done.returncode:
            raise CheckError(f"The --restart command ended with {done.returncode}: {self._restart}")
        self._wait()

    def _wait(self) -> None:
        """Until somebody listens. Nothing is asked: some servers answer no other question than a chat."""
        deadline = self.wire.clock() + LISTEN_S
        while True:
            try:
                self.wire.connect().close()
            except CheckError:
                if self.wire.clock() > deadline:
                    raise
                self._sleep(POLL_S)
            else:
                return

    def limit_store(self, share: float) -> None:
        raise Impossible("a server's quota cannot be set from outside")

    def close(self) -> None:
        return None


class Resent:
    """A conversation whose client sends all of it each time."""

    def __init__(self, server: OpenAI, body: messages.Body) -> None:
        self._server = server
        self._body = body
        self._reasoning = ""
        self._cut: messages.Body | None = None
        self._last: messages.Body | None = None

    def turn(
        self, question: str, *, max_tokens: int, cut_after: int | None = None, cut_prefill_at: float | None = None
    ) -> Turn:
        body = messages.asked(self._body, question)
        turn = self._ask(body, max_tokens, cut_after=cut_after, cut_prefill_at=cut_prefill_at)
        self._last = body
        if turn.finish == PREFILL_CUT:
            return turn
        if turn.finish == CUT:
            self._cut = body
        self._body = messages.answered(body, turn.text)
        self._reasoning = turn.reasoning
        return turn

    def changed(self, question: str, change: Change, *, max_tokens: int) -> Turn:
        if change is Change.REPEAT:
            assert self._last is not None
            return self._ask(self._last, max_tokens)
        if change in (Change.REASONING_SENT, Change.REASONING_DROPPED) and not self._reasoning:
            raise NotTested("the model did not think")
        body = messages.changed(self._body, change, self._reasoning)
        return self._ask(messages.asked(body, question), max_tokens)

    def measured(self, cut: Turn, follow_up: Turn) -> Turn:
        if self._cut is None or follow_up.prompt is None:
            return cut
        size = self._ask(self._cut, 1).prompt
        assert self._last is not None
        bare = {**self._last, "messages": [dict(message) for message in self._last["messages"]]}
        at = len(self._cut["messages"])  # the cut reply is the message behind its question
        bare["messages"][at]["content"] = ""
        without = self._ask(bare, 1).prompt
        return replace(cut, prompt=size, tokens_out=None if without is None else follow_up.prompt - without)

    def _ask(self, body: messages.Body, max_tokens: int, **cut: Any) -> Turn:
        reply = self._server.request(body, max_tokens, **cut)
        stated = reply.stated
        return Turn(
            stated.prompt, stated.cached, reply.ttft_s, reply.total_s, reply.text, reply.finish, stated.out,
            reply.reasoning, messages.said(body),
        )  # fmt: skip
