"""What the disk below a folder does: writing until it is really there, and reading what no cache holds.

Reading is measured on files that were taken out of the system's cache: on Linux the system is told to drop them; on
macOS, which has no call for that, they are written anew around the cache.

Invariant: both stop within a slice of their deadline, and say over how many bytes they were measured.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import sys
from pathlib import Path

from qmlx_lsp.measure.figures import BYTES_S, CLOCK_S, Deadline, Figure, gigabytes

SLICE_BYTES = 4 << 20
NOCACHE = 48  # F_NOCACHE of macOS, which Python's fcntl does not name before 3.13
UNCACHED = "F_NOCACHE" if sys.platform == "darwin" else "posix_fadvise"
SYNCED = "F_FULLFSYNC" if hasattr(fcntl, "F_FULLFSYNC") else "fsync"
NOT_UNCACHED = "this system has no call to read past its cache"


def writing(file: Path, nbytes: int, deadline: Deadline) -> Figure:
    """Write noise to ``file``, up to ``nbytes``, and wait until the disk has it. Raises OSError."""
    noise = _aligned(os.urandom(SLICE_BYTES))
    done, began = 0, deadline.clock()
    fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        _around_cache(fd)
        while done < nbytes and not (done and deadline.over):
            done += _write(fd, noise)
        _sync(fd)
    finally:
        os.close(fd)
    seconds = max(deadline.clock() - began, CLOCK_S)
    return Figure("ssd_write", done / seconds, BYTES_S, gigabytes(done), f"with {SYNCED}")


def reading(file: Path, deadline: Deadline) -> Figure:
    """Read ``file``, which no cache holds. Raises OSError."""
    if not uncache(file):
        return Figure("ssd_read", None, BYTES_S, note=NOT_UNCACHED)
    done, seconds = plain([file], deadline)
    return Figure("ssd_read", done / seconds, BYTES_S, gigabytes(done), f"uncached by {UNCACHED}")


def plain(files: list[Path], deadline: Deadline) -> tuple[int, float]:
    """Bytes and seconds of reading ``files`` into memory that nobody has touched. Raises OSError."""
    done, began = 0, deadline.clock()
    with contextlib.ExitStack() as held:
        for file in files:
            fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
            held.callback(os.close, fd)
            size = os.fstat(fd).st_size
            if not size:
                continue
            memory = held.enter_context(mmap.mmap(-1, size))
            done += _read(fd, memory, deadline)
        seconds = deadline.clock() - began
    return done, max(seconds, CLOCK_S)


def _read(fd: int, memory: mmap.mmap, deadline: Deadline) -> int:
    done = 0
    with memoryview(memory) as view:
        while done < len(view) and not (done and deadline.over):
            with view[done : done + SLICE_BYTES] as piece:
                read = os.preadv(fd, [piece], done)
            if not read:
                break
            done += read
    return done


def uncache(file: Path) -> bool:
    """Take ``file`` out of the system's cache; whether this system can. Raises OSError."""
    if sys.platform == "darwin":
        _write_anew(file)
        return True
    if not hasattr(os, "posix_fadvise"):
        return False
    fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)  # what has not been written stays
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
    return True


def _write_anew(file: Path) -> None:
    """Put a copy in the place of ``file`` that was written around the cache."""
    copy = file.with_name(f"{file.name}.uncached")
    memory = mmap.mmap(-1, SLICE_BYTES)  # whose address is a page's, without which the cache is not left out
    source = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        target = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _around_cache(source)
            _around_cache(target)
            with memoryview(memory) as view:
                while read := os.readv(source, [view]):
                    _write(target, view[:read])
            _sync(target)
        finally:
            os.close(target)
    finally:
        os.close(source)
    copy.rename(file)


def _write(fd: int, piece: memoryview) -> int:
    done = 0
    while done < len(piece):
        done += os.write(fd, piece[done:])
    return done


def _aligned(content: bytes) -> memoryview:
    memory = mmap.mmap(-1, len(content))
    memory[:] = content
    return memoryview(memory)


def _around_cache(fd: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(fd, NOCACHE, 1)


def _sync(fd: int) -> None:
    """Until the disk has it: a plain fsync of macOS only hands it to the disk, which has a cache of its own."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with contextlib.suppress(OSError):  # some volumes know only the plain call
            fcntl.fcntl(fd, full)
            return
    os.fsync(fd)
