"""The socket between connector and daemon: finding it, the greeting, starting the daemon. Standard library only.

A connection begins with one line of JSON from the client (``{"op": "lsp", "version": …}``) and one from the daemon
(``{"ok": …, "version": …, "pid": …}``). After ``op`` ``lsp`` and ``ok`` the stream is plain LSP.

Invariant: at most one daemon per runtime folder. It holds a lock for as long as it lives; whoever starts one holds
another lock meanwhile, so that of many editors that open at once, one starts it and the others wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from qmlx_lsp import __version__
from qmlx_lsp.errors import DaemonError
from qmlx_lsp.paths import Paths, check_socket_path

CONNECT_S = 5.0
START_S = 60.0
STOP_S = 30.0
POLL_S = 0.02
LOCK_S = 0.3  # whoever looks whether a daemon runs holds its lock for a moment
GREETING_BYTES_MAX = 1 << 20  # the answer to `status` lists every conversation


def connect(paths: Paths, op: str) -> tuple[socket.socket, dict[str, Any]] | None:
    """A connection that has been greeted, and the daemon's greeting; None when no daemon listens.

    Raises:
        DaemonError: something listens that is no daemon of ours.
        PathError: no socket can have this path.
    """
    check_socket_path(paths.socket)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(CONNECT_S)
        link.connect(str(paths.socket))
        link.sendall(json.dumps({"op": op, "version": __version__, "cwd": _folder()}).encode() + b"\n")
        greeting = _read_greeting(link)
        link.settimeout(None)
    except (FileNotFoundError, NotADirectoryError, PermissionError, ConnectionError):
        link.close()
        return None  # nothing listens there; whoever starts a daemon finds out whether the folder can be used
    except (OSError, ValueError) as error:
        link.close()
        raise DaemonError(
            f"The daemon at {paths.socket} does not answer ({error}): stop it with `qmlx-lsp daemon stop --force`."
        ) from error
    return link, greeting


def _folder() -> str | None:
    """The one that the editor was started in, as it starts us."""
    try:
        return str(Path.cwd())
    except OSError:
        return None  # it has been removed


def _read_greeting(link: socket.socket) -> dict[str, Any]:
    """One line, byte by byte: what follows it belongs to the protocol."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = link.recv(1)
        if not byte:
            raise ConnectionResetError("closed before the greeting")
        line += byte
        if len(line) > GREETING_BYTES_MAX:
            raise ValueError("the greeting is too long")
    greeting: dict[str, Any] = json.loads(line)
    if isinstance(greeting, dict):
        return greeting
    raise ValueError("the greeting is no object")


def connect_or_start(paths: Paths) -> socket.socket:
    """A connection to a daemon of our own version; one is started, or replaced, if need be.

    Raises:
        DaemonError: it cannot be started; says why in one line.
    """
    found = connect(paths, "lsp")
    if found is None:
        with start_lock(paths):
            found = connect(paths, "lsp") or _start(paths)
    link, greeting = found
    if greeting.get("ok"):
        return link
    link.close()
    with start_lock(paths):
        found = connect(paths, "lsp")
        if found is not None and not found[1].get("ok"):
            found[0].close()
            stop(paths)
            found = None
        link, greeting = found or _start(paths)
    if not greeting.get("ok"):
        raise DaemonError(f"The daemon is of version {greeting.get('version')}, this is {__version__}: restart it.")
    return link


def _start(paths: Paths) -> tuple[socket.socket, dict[str, Any]]:
    """Start a daemon and connect to it; the caller holds the start lock."""
    if found := _wait_for_another(paths):
        return found
    paths.log.mkdir(parents=True, exist_ok=True, mode=0o700)
    with paths.log_file.open("ab") as log:
        begin = log.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "qmlx_lsp", "daemon", "run"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        found = connect(paths, "lsp")
        if found is not None:
            process.returncode = 0  # it outlives us on purpose; no warning about a child left behind
            return found
        if process.poll() is not None:
            raise DaemonError(_last_words(paths.log_file, begin) or f"The daemon ended with {process.returncode}.")
        time.sleep(POLL_S)
    process.kill()
    raise DaemonError(f"The daemon did not listen within {START_S:.0f} s; see {paths.log_file}.")


def _wait_for_another(paths: Paths) -> tuple[socket.socket, dict[str, Any]] | None:
    """A daemon that holds the lock and does not listen is about to listen, or about to end: wait for either."""
    deadline = time.monotonic() + STOP_S
    while running(paths) and time.monotonic() < deadline:
        if found := connect(paths, "lsp"):
            return found
        time.sleep(POLL_S)
    return None


def _last_words(log_file: Path, begin: int) -> str:
    """The last line that the daemon wrote, without its prefix."""
    with log_file.open("rb") as log:
        log.seek(begin)
        lines = [line for line in log.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1].removeprefix("qmlx-lsp: ") if lines else ""


def ask_daemon(paths: Paths, op: str) -> dict[str, Any] | None:
    """The daemon's answer to ``op`` (``status``, ``stop``), or None when none runs."""
    found = connect(paths, op)
    if found is None:
        return None
    found[0].close()
    return found[1]


def stop(paths: Paths, timeout_s: float = STOP_S) -> bool:
    """Ask the daemon to finish and wait until it has. False when none runs.

    Raises:
        DaemonError: it still runs after ``timeout_s``.
    """
    if ask_daemon(paths, "stop") is None:
        return False
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if not running(paths):
            return True
        time.sleep(POLL_S)
    raise DaemonError(f"The daemon did not finish within {timeout_s:.0f} s: see {paths.log_file}.")


def running(paths: Paths) -> bool:
    """Whether a daemon holds the lock of this runtime folder."""
    try:
        handle = os.open(paths.lock, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(handle)
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def daemon_lock(paths: Paths) -> int:
    """Take the daemon's lock for the life of this process; returns the descriptor to keep open.

    Raises:
        DaemonError: another daemon holds it.
    """
    handle = os.open(paths.lock, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + LOCK_S
    while not _try_lock(handle) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    if not _try_lock(handle):
        pid = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise DaemonError(
            f"A daemon is running already (pid {pid}, {paths.socket}): "
            "use it, or stop it with `qmlx-lsp daemon stop`."
        )
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


@contextlib.contextmanager
def start_lock(paths: Paths) -> Iterator[None]:
    """Held while a daemon is being started, by whoever starts it."""
    handle = os.open(paths.runtime / "start.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + START_S
        while not _try_lock(handle):
            if time.monotonic() > deadline:
                raise DaemonError("Another process has been starting the daemon for a minute: try again.")
            time.sleep(POLL_S)
        yield
    finally:
        os.close(handle)
