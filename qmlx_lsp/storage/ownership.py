"""Who may write the conversation log: one process, for as long as it has it open.

The lock lies beside the database, not in a runtime folder: two daemons that know nothing of each other may share a
data folder, and each would append to a token log that the other one has in memory.

Invariant: a file's owner is whoever holds the ``flock`` on the file beside it. The kernel lets go of it when the
owner dies; what stands in the file (the pid) is for people only.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from qmlx_lsp.errors import StoreError
from qmlx_lsp.storage.locks import flock, open_lock

OWNER_WAIT_S = 2.0  # seconds; a command that writes for a moment, or a daemon that is about to end, lets go by then
PID_BYTES_MAX = 32


def lock_path(database: Path) -> Path:
    return database.with_name(database.name + ".lock")


def take(database: Path) -> int:
    """Become the one writer of ``database``; the descriptor returned is to be kept open for as long.

    Raises:
        StoreError: another process is; names it and what to do.
        OSError: the lock file cannot be opened.
    """
    path = lock_path(database)
    fd = open_lock(path)
    held = False
    try:
        held = flock(fd, fcntl.LOCK_EX, OWNER_WAIT_S)
        if not held:
            raise StoreError(
                f"the conversation log {database} is in use by another process (pid {_pid(fd)}, {path}): use the "
                "daemon that runs, or end that process; a second daemon needs a data folder of its own (QMLX_HOME)"
            )
        os.ftruncate(fd, 0)
        os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    finally:
        if not held:
            os.close(fd)
    return fd


def give_up(fd: int) -> None:
    """Let others write. A child that was forked meanwhile has the descriptor too, and must not keep the lock."""
    fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def _pid(fd: int) -> str:
    return os.pread(fd, PID_BYTES_MAX, 0).decode("ascii", "replace").strip() or "unknown"
