"""Locks between processes, made of ``flock``: the kernel lets go of them when their holder dies, however it dies.

It must never wait for ever: a holder that was stopped would stop everybody.

Invariant: a lock is held on the file that has its name now; one that was deleted meanwhile locks nobody out.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from qmlx_lsp.storage.files import FILE_MODE, FOLDER_MODE

POLL_S = 0.005  # seconds between two tries


def open_lock(path: Path) -> int:
    """Open (or make) a file to lock. Raises OSError."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)


def try_flock(fd: int, how: int) -> bool:
    """Lock (``LOCK_EX`` or ``LOCK_SH``) without waiting; whether it worked."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def flock(fd: int, how: int, wait_s: float) -> bool:
    """Lock within ``wait_s`` seconds; whether it worked."""
    deadline = time.monotonic() + wait_s
    while not try_flock(fd, how):
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def unlock(fd: int) -> None:
    fcntl.flock(fd, fcntl.LOCK_UN)


class FileLock:
    """One holder at a time over all threads and processes; a thread that holds it may take it again.

    Who waits stands in a second lock, so that whoever lets go cannot take it again before those who wait.

    Raises, when entered:
        TimeoutError (an OSError): another process has held it for ``wait_s`` seconds.
        OSError: the file cannot be opened, nor its folder made.
    """

    def __init__(self, path: Path, wait_s: float) -> None:
        self._path = path
        self._wait_s = wait_s
        self._inside = threading.RLock()
        self._depth = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._inside:
            if self._depth:
                yield
                return
            self._path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            next_in_line = self._take(self._path.with_name(self._path.name + ".next"))
            try:
                fd = self._take(self._path)
            finally:
                os.close(next_in_line)
            self._depth = 1
            try:
                yield
            finally:
                self._depth = 0
                os.close(fd)

    def _take(self, path: Path) -> int:
        while True:
            fd = open_lock(path)
            kept = False
            try:
                if not flock(fd, fcntl.LOCK_EX, self._wait_s):
                    raise TimeoutError(f"another process has been using {path.parent} for {self._wait_s:g} s")
                kept = _is(fd, path)
                if kept:
                    return fd
            finally:
                if not kept:
                    os.close(fd)


def _is(fd: int, path: Path) -> bool:
    """Whether ``fd`` is the file that is called ``path`` now."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
