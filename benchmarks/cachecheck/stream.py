"""One streaming request to a server that speaks as OpenAI's: sent, read piece by piece, cut if wanted.

Cutting is what clients do: the connection is closed. Nothing is retried.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult

from benchmarks.cachecheck.conversation import CUT, PREFILL_CUT, CheckError, Refused
from benchmarks.cachecheck.dialects import Stated, read

ERROR_CHARS = 300
"""Characters of a server's error that are shown."""


@dataclass
class Reply:
    """What came of a request. ``finish`` is the server's word, or that the client cut it; ``by`` is what the server
    calls itself and its versions, where it does."""

    text: str = ""
    reasoning: str = ""
    pieces: int = 0
    finish: str = ""
    stated: Stated = field(default_factory=Stated)
    ttft_s: float | None = None
    total_s: float = 0.0
    by: str | None = None


@dataclass(frozen=True)
class Wire:
    """How a server is reached: ``base`` is its URL, up to ``/v1``; a request may be silent for ``timeout_s``."""

    base: SplitResult
    headers: dict[str, str]
    timeout_s: float
    clock: Callable[[], float]

    def connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self.base.scheme == "https" else http.client.HTTPConnection
        link = kind(self.base.hostname or "", self.base.port, timeout=self.timeout_s)
        try:
            link.connect()
        except OSError as error:
            raise CheckError(f"Nothing answers at {self.base.geturl()}: {error}. Start the server first.") from error
        return link

    def get(self, path: str) -> Any:
        """The JSON at ``path``. Raises CheckError."""
        with contextlib.closing(self.connect()) as link:
            try:
                link.request("GET", self.base.path + path, headers=self.headers)
                answer = link.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException) as error:
                raise CheckError(f"{self.base.geturl()}{path} does not answer: {error!r}.") from error
            return _json(answer.status, body)

    def stream(
        self, body: dict[str, Any], *, cut_after: int | None = None, cut_prefill_at: float | None = None
    ) -> Reply:
        """Raises Refused when the server says no, CheckError when it says nothing."""
        began = self.clock()
        reply = Reply()
        link = self.connect()
        wire = link.sock
        closing = contextlib.ExitStack()
        closing.callback(_hang_up, link, wire)
        try:
            if cut_prefill_at is not None:
                wire.settimeout(max(cut_prefill_at, 1e-3))
            link.request("POST", f"{self.base.path}/chat/completions", json.dumps(body), self.headers)
            answer = link.getresponse()
            closing.enter_context(answer)
            if answer.status != http.client.OK:
                raise Refused(f"The server refused a request: {_json_error(answer.status, answer.read())}")
            for chunk in _chunks(answer):
                if _take(chunk, reply) and reply.ttft_s is None:
                    reply.ttft_s = self.clock() - began
                    wire.settimeout(self.timeout_s)
                if cut_prefill_at is not None and reply.ttft_s is None:
                    left = began + cut_prefill_at - self.clock()
                    if left <= 0:
                        raise TimeoutError
                    wire.settimeout(left)
                if cut_after is not None and reply.pieces >= cut_after:
                    reply.finish = CUT
                    break
        except TimeoutError as error:
            if cut_prefill_at is None or reply.ttft_s is not None:
                raise CheckError(
                    f"The server said nothing for {self.timeout_s:g} s: raise --timeout if it is only slow."
                ) from error
            reply.finish = PREFILL_CUT
        except (OSError, http.client.HTTPException) as error:
            raise CheckError(f"The server broke off a request: {error!r}.") from error
        finally:
            closing.close()
        reply.total_s = self.clock() - began
        return reply


def _hang_up(link: http.client.HTTPConnection, wire: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the server has closed it already
        wire.shutdown(socket.SHUT_RDWR)
    wire.close()
    link.close()


def _chunks(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """The objects of a stream of events. Other lines (comments, its end) are an empty one: they are a sign of life,
    and nothing more, so whoever waits must look at the clock."""
    while line := answer.readline():
        name, _, value = line.strip().partition(b":")
        value = value.strip()
        if name != b"data" or value == b"[DONE]":
            yield {}
            continue
        try:
            chunk = json.loads(value)
        except ValueError as error:
            raise CheckError(f"The server's stream is no JSON: {value[:80]!r}.") from error
        if isinstance(chunk, dict):
            if chunk.get("error"):
                raise Refused(f"The server refused a request: {_said(chunk)}")
            yield chunk


def _take(chunk: dict[str, Any], reply: Reply) -> bool:
    """Add ``chunk``; whether it was a piece of the reply."""
    reply.stated = read(chunk, reply.stated)
    reply.by = chunk.get("system_fingerprint") or reply.by
    choices = chunk.get("choices") or [{}]
    delta = choices[0].get("delta") or {}
    text = delta.get("content") or ""
    reasoning = delta.get("reasoning_content") or delta.get("reasoning") or ""
    reply.text += text
    reply.reasoning += reasoning
    reply.finish = choices[0].get("finish_reason") or reply.finish
    piece = bool(text or reasoning or delta.get("tool_calls"))
    reply.pieces += piece
    return piece


def _json(status: int, body: bytes) -> Any:
    if status != http.client.OK:
        raise Refused(f"The server refused a request: {_json_error(status, body)}")
    try:
        return json.loads(body)
    except ValueError as error:
        raise CheckError(f"The server's answer is no JSON: {body[:80]!r}.") from error


def _json_error(status: int, body: bytes) -> str:
    try:
        return f"{status}, {_said(json.loads(body))}"
    except ValueError:
        return f"{status}, {body.decode('utf-8', 'replace')[:ERROR_CHARS]}"


def _said(answer: Any) -> str:
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    return str(error.get("message", error) if isinstance(error, dict) else error)[:ERROR_CHARS]
