"""What editors start: a pipe between the editor's stdio and the daemon. Standard library only.

Fd 1 belongs to the protocol alone: it is moved away at once, so that nothing else can write to it. The connector
ends when the editor closes its end, when its parent dies, and when the daemon closes the connection.

Invariant: bytes are relayed as they are, in both directions, without waiting for whole messages.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading

from qmlx_lsp.daemon.socket import connect, connect_or_start
from qmlx_lsp.errors import QmlxError
from qmlx_lsp.paths import Paths, check_socket_path

BLOCK_BYTES = 1 << 16
PARENT_POLL_S = 1.0
REQUEST_FAILED = -32803
_SHUTDOWN = re.compile(rb'"method"\s*:\s*"shutdown"')
_EXIT = re.compile(rb'"method"\s*:\s*"exit"')
_OVERLAP_BYTES = 64  # long enough for the pattern to be cut by two reads


def take_stdout() -> int:
    """Move fd 1 aside for the protocol; from now on fd 1 is stderr. Returns the new descriptor."""
    protocol = os.dup(1)
    os.set_inheritable(protocol, False)
    os.dup2(2, 1)
    return protocol


def run(paths: Paths) -> int:
    """Relay until one side ends; returns the exit code (0 after an orderly end, 1 otherwise, 2 for an error).

    An orderly end is ``shutdown``, or the end of the editor's bytes without an ``exit`` of its own accord.
    """
    parent = os.getppid()
    out = take_stdout()
    try:
        link = _connect(paths)
    except QmlxError as error:
        print(f"qmlx-lsp: {error}", file=sys.stderr)
        refuse(str(error), out)
        return 2
    return _Relay(link, out, parent).run()


def _connect(paths: Paths) -> socket.socket:
    """A connection to the daemon. Settings are read only when there may be one to start: editors start us all day."""
    check_socket_path(paths.socket)
    found = connect(paths, "lsp")
    if found is not None and found[1].get("ok"):
        return found[0]
    if found is not None:
        found[0].close()
    from qmlx_lsp.settings import load

    paths.prepare()
    load(paths.config_file)
    return connect_or_start(paths)


class _Relay:
    def __init__(self, link: socket.socket, out: int, parent: int) -> None:
        self._link = link
        self._out = out
        self._parent = parent
        self._shutdown = self._exit = self._ended = False

    def run(self) -> int:
        threading.Thread(target=self._upwards, daemon=True).start()
        threading.Thread(target=self._watch_parent, daemon=True).start()
        while True:
            try:
                data = self._link.recv(BLOCK_BYTES)
            except OSError:
                data = b""
            if not data or not _write_all(self._out, data):
                self._close()
                return 0 if self._shutdown or (self._ended and not self._exit) else 1

    def _upwards(self) -> None:
        """The editor's bytes to the daemon."""
        recent = b""
        while True:
            data = os.read(0, BLOCK_BYTES)
            if not data:
                self._ended = True
                break
            recent = recent[-_OVERLAP_BYTES:] + data
            self._shutdown = self._shutdown or _SHUTDOWN.search(recent) is not None
            self._exit = self._exit or _EXIT.search(recent) is not None
            recent = recent[-_OVERLAP_BYTES:]
            try:
                self._link.sendall(data)
            except OSError:
                return
        try:
            self._link.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def _watch_parent(self) -> None:
        waiting = threading.Event()
        while os.getppid() == self._parent:
            waiting.wait(PARENT_POLL_S)
        self._close()

    def _close(self) -> None:
        try:
            self._link.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


def _write_all(out: int, data: bytes) -> bool:
    """False when the editor no longer reads; nothing is said about it, for nobody would hear."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(out, view) :]
    except OSError:
        return False
    return True


def refuse(message: str, out: int) -> None:
    """Answer the editor's first request with the error, so that the editor can show it; then end."""
    identity = _first_request_id()
    if identity is None:
        return
    body = json.dumps({"jsonrpc": "2.0", "id": identity, "error": {"code": REQUEST_FAILED, "message": message}})
    data = body.encode()
    _write_all(out, b"Content-Length: %d\r\n\r\n%s" % (len(data), data))


def _first_request_id() -> int | str | None:
    """The id of the first request on stdin; None when there is none."""
    stream = os.fdopen(os.dup(0), "rb")
    with stream:
        while True:
            length = 0
            while (line := stream.readline()).strip():
                name, _, value = line.partition(b":")
                if name.strip().lower() == b"content-length" and value.strip().isdigit():
                    length = int(value)
            if not line or not length:
                return None
            try:
                message = json.loads(stream.read(length))
            except ValueError:
                return None
            identity = message.get("id") if isinstance(message, dict) else None
            if isinstance(identity, (int, str)):
                return identity
