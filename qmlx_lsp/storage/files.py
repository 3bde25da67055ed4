"""The one door to the file system: a seam for fault tests, atomic publishing, private modes.

It must never leave a file under its final name that is not whole and on the disk, and it must never decide what
to store. Every other module of the checkpoint store does its I/O through a ``FileSystem``.

Invariant (payload order): temporary file → write → fsync → rename → fsync of the folder.
Invariant (private): files are created with mode 0600, folders with 0700.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

FILE_MODE = 0o600
FOLDER_MODE = 0o700
MAX_PIECES = 512  # pieces in one preadv or pwritev; IOV_MAX is 1,024
MAX_CALL_BYTES = 1 << 30  # bytes in one call: Linux caps at 2 GiB - 4 KiB, macOS refuses 2 GiB
WRITE_SLICE_BYTES = 4 << 20  # bytes in one pwritev: a cancelled process never sits long in one call

_PROCESS = secrets.token_hex(4)  # tells this process from a dead one whose pid it has got
TEMP_PREFIX = ".tmp-"
_TEMP = re.compile(r"\.tmp-(\d{1,10})-([0-9a-f]{8})-[0-9a-f]{8}")

# Ordering is what the store needs and a barrier gives it; a plain fsync on macOS gives neither.
_SYNC_COMMAND: int | None = getattr(fcntl, "F_BARRIERFSYNC", None) or getattr(fcntl, "F_FULLFSYNC", None)

Piece = bytes | memoryview


class FileSystem(Protocol):
    """The calls that the store makes. Every one may raise OSError."""

    def open(self, path: Path, flags: int) -> int: ...
    def close(self, fd: int) -> None: ...
    def preadv(self, fd: int, pieces: Sequence[memoryview], offset: int) -> int: ...
    def pwritev(self, fd: int, pieces: Sequence[Piece], offset: int) -> int: ...
    def fsync(self, fd: int) -> None: ...
    def size(self, fd: int) -> int: ...
    def will_need(self, fd: int) -> None: ...
    def stat(self, path: Path) -> os.stat_result: ...
    def listdir(self, folder: Path) -> list[str]: ...
    def sizes(self, folder: Path) -> dict[str, int]: ...
    def mkdir(self, folder: Path) -> None: ...
    def rename(self, old: Path, new: Path) -> None: ...
    def unlink(self, path: Path) -> None: ...
    def fsync_dir(self, folder: Path) -> None: ...
    def free_bytes(self, folder: Path) -> int: ...


class OsFiles:
    """The real file system."""

    def open(self, path: Path, flags: int) -> int:
        return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)

    def close(self, fd: int) -> None:
        os.close(fd)

    def preadv(self, fd: int, pieces: Sequence[memoryview], offset: int) -> int:
        return os.preadv(fd, pieces, offset)

    def pwritev(self, fd: int, pieces: Sequence[Piece], offset: int) -> int:
        return os.pwritev(fd, pieces, offset)

    def fsync(self, fd: int) -> None:
        if _SYNC_COMMAND is not None:
            with contextlib.suppress(OSError):  # some volumes know only the plain call
                fcntl.fcntl(fd, _SYNC_COMMAND)
                return
        os.fsync(fd)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def will_need(self, fd: int) -> None:
        """Ask the kernel to read ahead; a hint, so a refusal is nothing."""
        if hasattr(os, "posix_fadvise"):
            with contextlib.suppress(OSError):
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)

    def stat(self, path: Path) -> os.stat_result:
        return path.stat()

    def listdir(self, folder: Path) -> list[str]:
        return os.listdir(folder)

    def sizes(self, folder: Path) -> dict[str, int]:
        """Every regular file in ``folder`` with its size in bytes."""
        found: dict[str, int] = {}
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # gone since it was listed
                    continue
                if stat.S_ISREG(status.st_mode):
                    found[entry.name] = status.st_size
        return found

    def mkdir(self, folder: Path) -> None:
        """Make ``folder`` and its parents; an existing one is made private."""
        folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        if folder.stat().st_mode & 0o077:
            folder.chmod(FOLDER_MODE)

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def fsync_dir(self, folder: Path) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, folder: Path) -> int:
        """Bytes that this user may still write to the volume of ``folder``."""
        numbers = os.statvfs(folder)
        return numbers.f_bavail * numbers.f_frsize


def publish(fs: FileSystem, folder: Path, name: str, parts: Iterable[Piece]) -> int:
    """Write ``parts`` one after another as ``folder/name``, whole or not at all; return the bytes written.

    Raises:
        OSError: nothing is left under ``name``, nor (if the volume still answers) under a temporary name.
    """
    temp, final = folder / _temp_name(), folder / name
    left = temp
    done = False
    try:
        fd = fs.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            written = write_all(fs, fd, parts)
            fs.fsync(fd)
        finally:
            fs.close(fd)
        fs.rename(temp, final)
        left = final  # a name that may not survive a power cut must not be reported, so it goes as well
        fs.fsync_dir(folder)
        done = True
    finally:
        if not done:
            discard(fs, left)
    return written


def discard(fs: FileSystem, path: Path) -> None:
    """Remove ``path`` if that is possible."""
    with contextlib.suppress(OSError):
        fs.unlink(path)


def write_all(fs: FileSystem, fd: int, parts: Iterable[Piece]) -> int:
    """Write ``parts`` to ``fd`` from byte 0 on, whatever the kernel takes at a time; return the bytes."""
    offset = 0
    for group in _calls((as_bytes_view(part) for part in parts), WRITE_SLICE_BYTES):
        while group:
            done = fs.pwritev(fd, group, offset)
            offset += done
            group = _behind(group, done)
    return offset


def read_into(fs: FileSystem, fd: int, pieces: Iterable[memoryview], offset: int) -> int:
    """Fill ``pieces`` (flat, of bytes) one after another from ``offset`` on; return the bytes read.

    Raises:
        EOFError: the file ends before the last piece is full.
    """
    start = offset
    for group in _calls(pieces, MAX_CALL_BYTES):
        while group:
            done = fs.preadv(fd, group, offset)
            if done == 0:
                raise EOFError(f"the file ends at byte {offset}")
            offset += done
            group = _behind(group, done)
    return offset - start


def as_bytes_view(data: Piece) -> memoryview:
    """``data`` as a flat view of bytes, without a copy. ``data`` is C-contiguous."""
    view = memoryview(data)
    if view.format == "B" and view.ndim == 1:
        return view
    return view.cast("B") if view.nbytes else memoryview(b"")  # a view with a zero in its shape cannot be cast


def _calls(pieces: Iterable[memoryview], max_bytes: int) -> Iterator[list[memoryview]]:
    """Group ``pieces`` for single calls of at most MAX_PIECES pieces and ``max_bytes`` bytes."""
    group: list[memoryview] = []
    size = 0
    for piece in pieces:
        while piece:
            fits = size + len(piece) <= max_bytes  # as nearly all do: then no slice is made
            part = piece if fits else piece[: max_bytes - size]
            group.append(part)
            size += len(part)
            piece = memoryview(b"") if fits else piece[len(part) :]
            if size == max_bytes or len(group) == MAX_PIECES:
                yield group
                group, size = [], 0
    if group:
        yield group


def _behind(pieces: list[memoryview], done: int) -> list[memoryview]:
    """What is left of ``pieces`` after ``done`` bytes."""
    for index, piece in enumerate(pieces):
        if done < len(piece):
            return [piece[done:], *pieces[index + 1 :]]
        done -= len(piece)
    return []


def sweep_temp(fs: FileSystem, folder: Path) -> int:
    """Remove the temporary files of dead processes from ``folder``; return how many. Living writers keep theirs."""
    swept = abandoned_temp(fs.listdir(folder))
    for name in swept:
        discard(fs, folder / name)
    return len(swept)


def abandoned_temp(names: Iterable[str]) -> list[str]:
    """Those of ``names`` that are temporary files of dead processes."""
    found: list[str] = []
    for name in names:
        match = _TEMP.fullmatch(name)
        if match is None or match[2] == _PROCESS:
            continue
        pid = int(match[1])
        if pid == os.getpid() or not _alive(pid):  # our pid and not our mark: its owner died before we were born
            found.append(name)
    return found


def _temp_name() -> str:
    return f".tmp-{os.getpid()}-{_PROCESS}-{secrets.token_hex(4)}"


def _alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True
