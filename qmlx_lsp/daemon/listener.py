"""The daemon's side of the socket: greetings, one language server per connection, the end.

Invariant: only processes of the same user are served. The socket lies in a 0700 folder, has mode 0600, and the
peer's uid is checked.
Invariant: the daemon leaves only when nothing runs and nothing waits to be written, or when it is told to; then it
records what runs first.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from qmlx_lsp import __version__
from qmlx_lsp.errors import DaemonError
from qmlx_lsp.paths import Paths

logger = logging.getLogger(__name__)

GREETING_S = 10.0
IDLE_CHECKS = 20  # looks at the clock per idle period

# Serves one LSP connection to its end: reader, writer, first header line if it was read already, and the folder that
# the editor was started in if that is known.
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter, bytes, str | None], Awaitable[bool]]
STREAM_LIMIT_BYTES = 1 << 20


class Listener:
    """Accepts connections on ``paths.socket``; the caller holds the daemon's lock.

    ``describe()`` gives the answer to ``status``; ``busy()`` keeps an idle daemon from leaving.
    """

    def __init__(
        self,
        paths: Paths,
        serve: Serve,
        describe: Callable[[int], Awaitable[dict[str, Any]]],
        busy: Callable[[], bool],
        idle_minutes: float,
    ) -> None:
        self._paths = paths
        self._serve = serve
        self._describe = describe
        self._busy = busy
        self._idle_s = idle_minutes * 60
        self._stopping = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self._last_client = time.monotonic()
        self.clients = 0

    async def run(self) -> None:
        """Listen until told to stop or idle for long enough; then end every connection."""
        server = await self._listen()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        idle = asyncio.create_task(self._watch_idle())
        logger.info("listening on %s, pid %d, version %s", self._paths.socket, os.getpid(), __version__)
        try:
            await self._stopping.wait()
        finally:
            idle.cancel()
            server.close()
            with contextlib.suppress(FileNotFoundError):
                self._paths.socket.unlink()
            for task in tuple(self._connections):
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    def stop(self) -> None:
        self._stopping.set()

    async def _listen(self) -> asyncio.Server:
        """Bind the socket. A socket file that is there was left by a daemon that is gone: we hold the lock."""
        with contextlib.suppress(FileNotFoundError):
            self._paths.socket.unlink()
        before = os.umask(0o177)
        try:
            return await asyncio.start_unix_server(
                self._accept, path=str(self._paths.socket), limit=STREAM_LIMIT_BYTES
            )
        except OSError as error:
            raise DaemonError(
                f"The socket {self._paths.socket} cannot be made ({error.strerror or error})."
            ) from error
        finally:
            os.umask(before)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if _peer_is_us(writer.get_extra_info("socket")):
                await self._greet(reader, writer)
        except (ConnectionError, TimeoutError):
            logger.debug("a connection went away")
        except ValueError:
            logger.debug("a connection did not greet us")
        finally:
            self._connections.discard(task)
            writer.close()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await asyncio.wait_for(reader.readline(), GREETING_S)
        if not line.startswith(b"{"):  # plain LSP from the first byte on
            await self._serve_client(reader, writer, line, None)
            return
        greeting = json.loads(line)
        if not isinstance(greeting, dict):
            return
        op = greeting.get("op")
        answer: dict[str, Any] = {"ok": True, "version": __version__, "pid": os.getpid()}
        if op == "lsp":
            answer["ok"] = greeting.get("version") == __version__
        elif op == "status":
            answer |= await self._describe(self.clients)
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()
        if op == "stop":
            self.stop()
        elif op == "lsp" and answer["ok"]:
            folder = greeting.get("cwd")
            await self._serve_client(reader, writer, b"", folder if isinstance(folder, str) else None)

    async def _serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: bytes, folder: str | None
    ) -> None:
        self.clients += 1
        try:
            await self._serve(reader, writer, line, folder)
        finally:
            self.clients -= 1
            self._last_client = time.monotonic()

    async def _watch_idle(self) -> None:
        while True:
            await asyncio.sleep(self._idle_s / IDLE_CHECKS)
            if self.clients or self._busy():
                self._last_client = time.monotonic()
            elif time.monotonic() - self._last_client >= self._idle_s:
                logger.info("idle for %.1f minutes, leaving", self._idle_s / 60)
                self.stop()


def _peer_is_us(link: socket.socket) -> bool:
    """Whether the process at the other end belongs to this user."""
    if sys.platform == "linux":
        data = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", data)
    else:  # macOS: struct xucred, whose second field is the uid (sys/ucred.h, LOCAL_PEERCRED at level 0)
        data = link.getsockopt(0, 1, 76)
        _, uid = struct.unpack_from("=II", data)
    return bool(uid == os.getuid())
