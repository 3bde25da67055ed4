"""Real connectors and daemons on the scripted model, each with a home of its own, ended by pid at the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from qmlx_lsp import paths
from qmlx_lsp.daemon.socket import ask_daemon, running
from qmlx_lsp.paths import Paths
from tests.support.fake_editor import FakeEditor, initialize_params
from tests.support.waiting import until

WORKTREE = Path(paths.__file__).parents[1]
WAIT_S = 20.0


class Home:
    """One ``QMLX_HOME`` with a project beside it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.home = base / "h"
        self.project = base / "project"
        self.project.mkdir()
        self.paths = Paths(*(self.home / name for name in ("config", "data", "cache", "run", "log")))
        self.environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith("QMLX_")},
            "QMLX_HOME": str(self.home), "QMLX_MODEL": "scripted", "QMLX_FREE_FLOOR_GIB": "0",
            "QMLX_JOURNAL_MS": "10", "PYTHONPATH": str(WORKTREE), "PYTHONWARNINGS": "error",
        }  # fmt: skip
        self.started: list[asyncio.subprocess.Process] = []

    async def start(self, *arguments: str, program: tuple[str, ...] = ("-m", "qmlx_lsp"), **options: Any) -> Any:
        pipe = asyncio.subprocess.PIPE
        options = {"stdin": pipe, "stdout": pipe, "stderr": pipe, **options}
        process = await asyncio.create_subprocess_exec(
            sys.executable, *program, *arguments, env=self.environ, cwd=self.project, **options
        )
        self.started.append(process)
        return process

    async def run(self, *arguments: str, given: bytes = b"") -> tuple[int, str, str]:
        """Exit code, stdout and stderr of one command."""
        process = await self.start(*arguments)
        out, err = await asyncio.wait_for(process.communicate(given), WAIT_S)
        return process.returncode, out.decode(), err.decode()

    async def connect(self, *arguments: str, client: str = "vscode-1.139", **changes: Any) -> Editor:
        """An editor behind a connector of its own, initialized."""
        editor = Editor(await self.start(*arguments))
        await editor.initialize(initialize_params(client, self.project, **changes))
        return editor

    @property
    def pid(self) -> int | None:
        """The daemon's pid, if one listens."""
        found = ask_daemon(self.paths, "status")
        return None if found is None else int(found["pid"])

    async def gone(self, pid: int) -> None:
        """Until the daemon ``pid`` has ended and its lock is free."""
        await until(lambda: not (alive(pid) or running(self.paths)))

    async def clean(self) -> None:
        for process in self.started:
            if process.returncode is None:
                process.kill()
            await process.wait()
            process._transport.close()
        lock = self.paths.lock
        if lock.exists() and running(self.paths):
            pid = int(lock.read_text())
            os.kill(pid, signal.SIGKILL)
            await self.gone(pid)


@asynccontextmanager
async def home() -> AsyncIterator[Home]:
    # A short path, for sockets; what is being ended may still write while it is removed.
    with tempfile.TemporaryDirectory(prefix="q", ignore_cleanup_errors=True) as base:
        made = Home(Path(base))
        try:
            yield made
        finally:
            await made.clean()


class Editor(FakeEditor):
    """An editor on the pipes of a connector process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        super().__init__(process.stdin.write)  # type: ignore[union-attr]
        self.reading = asyncio.ensure_future(self._pump())

    async def _pump(self) -> None:
        while data := await self.process.stdout.read(1 << 16):  # type: ignore[union-attr]
            self.received(data)

    async def ended(self, within_s: float = 5.0) -> int:
        """The connector's exit code."""
        code = await asyncio.wait_for(self.process.wait(), within_s)
        await self.reading
        return code

    async def leave(self) -> int:
        await self.request("shutdown")
        self.notify("exit", None)
        code = await self.ended()
        self.check()
        return code

    def hang_up(self) -> None:
        self.process.stdin.close()  # type: ignore[union-attr]


def alive(pid: int) -> bool:
    """Whether ``pid`` runs; a zombie that nobody has reaped yet does not."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


class OldDaemon:
    """Holds the lock and the socket, greets as another version, ends when asked to stop."""

    PROGRAM = """
import json, socket, sys
from pathlib import Path
from qmlx_lsp.daemon.socket import daemon_lock
from qmlx_lsp.paths import find
from tests.support.waiting import until
where = find(); where.prepare(); lock = daemon_lock(where)
server = socket.socket(socket.AF_UNIX); server.bind(str(where.socket)); server.listen()
print("ready", flush=True)
ops = []
while "stop" not in ops:
    link, _ = server.accept()
    line = link.makefile("rb").readline()
    ops.append(json.loads(line)["op"])
    link.sendall(json.dumps({"ok": ops[-1] != "lsp", "version": "0.0.1", "pid": 1}).encode() + b"\\n")
    link.close()
server.close()
print(json.dumps(ops), flush=True)
"""


def connect(where: Paths) -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(WAIT_S)
    link.connect(str(where.socket))
    return link


def json_line(text: str) -> Any:
    (line,) = text.splitlines()
    return json.loads(line)
