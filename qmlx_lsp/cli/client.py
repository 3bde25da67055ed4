"""A small LSP client that talks to the daemon, for the command line.

Blocking and single-threaded: a request is sent, and messages are handled until its answer arrives.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from qmlx_lsp.daemon.socket import connect_or_start
from qmlx_lsp.errors import DaemonError, QmlxError
from qmlx_lsp.paths import Paths
from qmlx_lsp.settings import load

REQUEST_CANCELLED = -32800

Notify = Callable[[str, Any], None]


class RequestError(QmlxError):
    """The daemon's error answer; ``code`` is the JSON-RPC code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Client:
    """One connection. ``on_notify(method, params)`` gets every notification."""

    def __init__(
        self, stream: IO[bytes], send: Callable[[bytes], Any], close: Callable[[], None], on_notify: Notify
    ) -> None:
        self._stream = stream
        self._send_bytes = send
        self._close = close
        self.on_notify = on_notify
        self._number = 0
        self._interrupted = self._sending = False

    @classmethod
    def over_socket(cls, link: socket.socket, on_notify: Notify) -> Client:
        return cls(link.makefile("rb"), link.sendall, link.close, on_notify)

    @classmethod
    def over_stdio(cls, server: subprocess.Popen[bytes]) -> Client:
        """A client of a process that was started with pipes; notifications are ignored until ``on_notify`` is set."""
        assert server.stdin is not None
        assert server.stdout is not None
        sink = server.stdin

        def send(data: bytes) -> None:
            sink.write(data)
            sink.flush()

        return cls(server.stdout, send, sink.close, lambda _method, _params: None)

    def initialize(self, roots: list[Path], *, load: bool = True) -> dict[str, Any]:
        """The handshake; returns the daemon's answer to ``initialize``. Without ``load`` no model is loaded."""
        folders = [{"uri": root.as_uri(), "name": root.name} for root in roots]
        result: dict[str, Any] = self.request("initialize", {
            "processId": os.getpid(), "rootUri": folders[0]["uri"] if folders else None, "workspaceFolders": folders,
            "capabilities": {
                "window": {"workDoneProgress": True}, "general": {"positionEncodings": ["utf-32"]},
                "workspace": {"workspaceFolders": True},
            },
            "clientInfo": {"name": "qmlx-lsp"},
        })  # fmt: skip
        if load:
            self.notify("initialized", {})
        return result

    def request(self, method: str, params: Any) -> Any:
        """Send and wait for the answer. Ctrl-C cancels the request and waits for its (cancelled) answer; a second
        one does not wait.

        Raises:
            RequestError: the daemon answered with an error.
            DaemonError: the connection was lost.
            KeyboardInterrupt: after the answer to the cancelled request has arrived.
        """
        self._number += 1
        number = self._number
        self._interrupted = False
        with self._cancelled_by_ctrl_c():
            self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
            while True:
                message = self._receive()
                if message.get("id") == number and "method" not in message:
                    break
                self._handle(message)
        if self._interrupted:
            raise KeyboardInterrupt
        return _result(message)

    @contextlib.contextmanager
    def _cancelled_by_ctrl_c(self) -> Iterator[None]:
        """An exception in the middle of a read would lose what was read of a message, so Ctrl-C raises none."""

        def interrupt(_number: int, _frame: object) -> None:
            if self._interrupted:
                raise KeyboardInterrupt
            self._interrupted = True
            if not self._sending:  # else whoever sends does it behind that message
                self.cancel()

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def cancel(self) -> None:
        """Ask for the running request to be cancelled; for use in ``on_notify``."""
        self.notify("$/cancelRequest", {"id": self._number})

    def notify(self, method: str, params: Any) -> None:
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    def close(self) -> None:
        """An orderly end."""
        try:
            self.request("shutdown", None)
            self.notify("exit", None)
        finally:
            self._stream.close()
            self._close()

    def _handle(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            return
        if "id" in message:  # the daemon asks us to create a progress: fine
            self._send({"jsonrpc": "2.0", "id": message["id"], "result": None})
        else:
            self.on_notify(message["method"], message.get("params"))

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps(message).encode()
        interrupted = self._interrupted
        self._sending = True
        try:
            self._send_bytes(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        except OSError as error:
            raise DaemonError(f"The connection to the daemon was lost ({error}); see its log.") from error
        finally:
            self._sending = False
        if self._interrupted and not interrupted:
            self.cancel()

    def _receive(self) -> dict[str, Any]:
        length = 0
        while (line := self._stream.readline()).strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if not line:
            raise DaemonError("The daemon closed the connection; see its log.")
        message: dict[str, Any] = json.loads(self._stream.read(length))
        return message


def _result(message: dict[str, Any]) -> Any:
    error = message.get("error")
    if error is not None:
        raise RequestError(int(error["code"]), str(error["message"]))
    return message.get("result")


def connect(paths: Paths, roots: list[Path], on_notify: Notify, *, wants_model: bool = True) -> Client:
    """A client of the daemon, which is started if need be, ready for requests; the model may be loaded for it
    already (``wants_model``)."""
    paths.prepare()
    load(paths.config_file)
    client = Client.over_socket(connect_or_start(paths), on_notify)
    client.initialize(roots, load=wants_model)
    return client
