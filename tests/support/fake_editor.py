"""A small editor: speaks the protocol's frames, keeps every message, answers the server's requests.

``FakeEditor`` knows bytes only; ``InMemory`` puts it in front of a real ``serve``, ``processes.Editor`` on the pipes
of a real connector. At its end it asserts that every request got exactly one answer, that no answer came unasked, and
that nothing a user would see (errors for nobody, messages on the screen) was left unread.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qmlx_lsp.app import App
from qmlx_lsp.lsp.server import serve

WAIT_S = 20.0
CLIENTS = Path(__file__).parent / "clients"
CLIENT_NAMES = sorted(file.name.removesuffix(".initialize.json") for file in CLIENTS.iterdir())
QUIET = {"$/progress", "qmlx/stream", "qmlx/didChangeStatus"}  # nobody need look at these

Message = dict[str, Any]


def initialize_params(client: str, root: Path, **changes: Any) -> Message:
    """What the real ``client`` sends, with ``root`` as its project and no process of its own."""
    text = (CLIENTS / f"{client}.initialize.json").read_text(encoding="utf-8")
    params: Message = json.loads(text.replace("/PROJECT", str(root)))
    return {**params, "processId": None, **changes}


def frame(message: Any) -> bytes:
    body = json.dumps(message, ensure_ascii=False).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


class FakeEditor:
    """``send_bytes`` carries bytes to the server; whatever comes back goes to ``received``."""

    def __init__(self, send_bytes: Callable[[bytes], None], *, answers: bool = True) -> None:
        self.send_bytes = send_bytes
        self.answers = answers
        self.results: dict[str, Any] = {}  # what the server's requests are answered with, by method; else null
        self.messages: list[Message] = []
        self.raw = b""
        self._buffer = b""
        self._read: set[int] = set()
        self._asked: list[Any] = []
        self._numbers = itertools.count(1)
        self._news = asyncio.Event()

    # --- sending --------------------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        self.send_bytes(frame(message))

    def notify(self, method: str, params: Any) -> None:
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    def begin(self, method: str, params: Any, number: Any = None) -> Any:
        """Send a request; returns its id."""
        number = next(self._numbers) if number is None else number
        self._asked.append(number)
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return number

    def cancel(self, number: Any) -> None:
        self.notify("$/cancelRequest", {"id": number})

    # --- receiving ------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        """Every byte belongs to a frame: what does not parse is a fault."""
        self.raw += data
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, rest = self._buffer.split(b"\r\n\r\n", 1)
            headers = dict(line.split(b": ", 1) for line in head.split(b"\r\n"))
            assert set(headers) <= {b"Content-Length", b"Content-Type"}, head
            length = int(headers[b"Content-Length"])
            if len(rest) < length:
                return
            self._buffer = rest[length:]
            self._take(json.loads(rest[:length]))

    def _take(self, message: Message) -> None:
        assert message["jsonrpc"] == "2.0"
        self.messages.append(message)
        if "method" in message and "id" in message and self.answers:
            self.send({"jsonrpc": "2.0", "id": message["id"], "result": self.results.get(message["method"])})
        self._news.set()

    async def until(self, found: Callable[[Message], bool], start: int = 0) -> Message:
        """The first message from number ``start`` on that is ``found``, awaited if need be, and read thereby."""
        async with asyncio.timeout(WAIT_S):
            while True:
                for at in range(start, len(self.messages)):
                    if found(self.messages[at]):
                        self._read.add(at)
                        return self.messages[at]
                start = len(self.messages)
                self._news.clear()
                await self._news.wait()

    async def response(self, number: Any) -> Message:
        return await self.until(lambda m: "method" not in m and m["id"] == number)

    async def result(self, number: Any) -> Any:
        message = await self.response(number)
        assert "error" not in message, message["error"]
        return message["result"]

    async def error(self, number: Any) -> tuple[int, str]:
        message = await self.response(number)
        error = message["error"]
        assert "\n" not in error["message"]
        assert "Traceback" not in error["message"]
        return error["code"], error["message"]

    async def request(self, method: str, params: Any = None) -> Any:
        return await self.result(self.begin(method, params))

    async def refused(self, method: str, params: Any = None) -> tuple[int, str]:
        return await self.error(self.begin(method, params))

    async def initialize(self, params: Message) -> Message:
        result: Message = await self.request("initialize", params)
        self.notify("initialized", {})
        return result

    def of(self, method: str, start: int = 0) -> list[Any]:
        """Parameters of all messages of ``method`` so far, which are read thereby."""
        found = [at for at, m in enumerate(self.messages) if at >= start and m.get("method") == method]
        self._read |= set(found)
        return [self.messages[at].get("params") for at in found]

    def check(self) -> None:
        """See the module's docstring."""
        assert not self._buffer, f"half a frame at the end: {self._buffer[:200]!r}"
        answered = [m["id"] for m in self.messages if "method" not in m]
        mine = [number for number in answered if number is not None]
        assert sorted(map(repr, mine)) == sorted(map(repr, self._asked)), "one answer for each request"
        unread = [
            message
            for at, message in enumerate(self.messages)
            if at not in self._read and message.get("method") not in QUIET and "id" not in message
        ]
        unread += [m for at, m in enumerate(self.messages) if m.get("id", 0) is None and at not in self._read]
        assert not unread, f"nobody read {unread}"

    # --- documents ------------------------------------------------------------------------------------------------

    def open(self, file: Path, text: str, version: int = 1) -> None:
        document = {"uri": file.as_uri(), "languageId": "python", "version": version, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": document})

    def change(self, file: Path, version: int, *changes: Message) -> None:
        document = {"uri": file.as_uri(), "version": version}
        self.notify("textDocument/didChange", {"textDocument": document, "contentChanges": list(changes)})

    def close_file(self, file: Path) -> None:
        self.notify("textDocument/didClose", {"textDocument": {"uri": file.as_uri()}})


def edit(line: int, start: int, end: int, text: str) -> Message:
    """A change within one line."""
    places = {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}
    return {"range": places, "text": text}


class InMemory(FakeEditor):
    """In front of ``serve`` in this process. ``ended`` is serve's own verdict once it has returned."""

    def __init__(self, app: App, *, answers: bool = True, folder: str | None = None) -> None:
        self.reader = asyncio.StreamReader(limit=1 << 20)
        super().__init__(self.reader.feed_data, answers=answers)
        self.serving = asyncio.ensure_future(serve(app.registry, self.reader, self, lambda: 1, folder=folder))

    def write(self, data: bytes) -> None:
        self.received(data)

    async def drop(self) -> bool:
        """The connection breaks: no answer can be expected any more."""
        self.reader.feed_eof()
        return await asyncio.wait_for(self.serving, WAIT_S)

    async def leave(self) -> bool:
        """``shutdown`` and ``exit``; then the checks."""
        await self.request("shutdown")
        self.notify("exit", None)
        ended = await asyncio.wait_for(self.serving, WAIT_S)
        self.check()
        return ended

    def close(self) -> None:
        return None
