"""A file system that fails on request, dies on request, and forgets what was not fsynced."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from qmlx_lsp.storage.files import OsFiles, Piece


class PowerCut(BaseException):
    """The process ended here. Not an Exception: no handler may go on as if something could still be done."""


class FaultyFiles(OsFiles):
    """Counts its calls (``count``); call number ``fail_at`` raises OSError, call number ``die_at`` is the last one.

    ``lose_unsynced`` brings the folders into the worst state that a power cut at this moment may leave: files whose
    data was not fsynced are empty, names that the folder's fsync did not confirm are as they were before.
    ``max_bytes``: bytes that one read or write takes at most (short reads and writes).
    """

    def __init__(self, *, fail_at: int = 0, die_at: int = 0, code: int = errno.ENOSPC, max_bytes: int = 0) -> None:
        self.fail_at, self.die_at, self.code, self.max_bytes = fail_at, die_at, code, max_bytes
        self.count = 0
        self.calls: list[str] = []
        self._dead = False
        self._names: dict[int, Path] = {}
        self._unsynced: set[Path] = set()
        self._undo: list[tuple[Path, Callable[[], None]]] = []

    def _step(self, call: str) -> None:
        self.count += 1
        self.calls.append(call)
        if self._dead or self.count == self.die_at:
            self._dead = True
            raise PowerCut(call)
        if self.count == self.fail_at:
            raise OSError(self.code, os.strerror(self.code), call)

    def open(self, path: Path, flags: int) -> int:
        self._step("open")
        fd = super().open(path, flags)
        self._names[fd] = path
        if flags & os.O_CREAT:
            self._unsynced.add(path)
            self._undo.append((path.parent, lambda: path.unlink(missing_ok=True)))
        return fd

    def close(self, fd: int) -> None:
        self._names.pop(fd, None)
        super().close(fd)  # even the dead give back their descriptors

    def preadv(self, fd: int, pieces: Sequence[memoryview], offset: int) -> int:
        self._step("preadv")
        return super().preadv(fd, _at_most(pieces, self.max_bytes), offset)

    def pwritev(self, fd: int, pieces: Sequence[Piece], offset: int) -> int:
        if self.count + 1 in (self.fail_at, self.die_at):  # a disk that fills up takes a part first
            super().pwritev(fd, _at_most([memoryview(p) for p in pieces], 5_000), offset)
        self._step("pwritev")
        return super().pwritev(fd, _at_most([memoryview(p) for p in pieces], self.max_bytes), offset)

    def fsync(self, fd: int) -> None:
        self._step("fsync")
        self._unsynced.discard(self._names[fd])

    def rename(self, old: Path, new: Path) -> None:
        self._step("rename")
        was = new.read_bytes() if new.exists() else None
        super().rename(old, new)
        if old in self._unsynced:
            self._unsynced.discard(old)
            self._unsynced.add(new)

        def undo() -> None:
            if new.exists():
                new.rename(old)
            if was is not None:
                new.write_bytes(was)

        self._undo.append((new.parent, undo))

    def unlink(self, path: Path) -> None:
        self._step("unlink")
        was = path.read_bytes()
        super().unlink(path)
        self._undo.append((path.parent, lambda: None if path.exists() else path.write_bytes(was) and None))

    def listdir(self, folder: Path) -> list[str]:
        self._step("listdir")
        return super().listdir(folder)

    def sizes(self, folder: Path) -> dict[str, int]:
        self._step("sizes")
        return super().sizes(folder)

    def stat(self, path: Path) -> os.stat_result:
        self._step("stat")
        return super().stat(path)

    def fsync_dir(self, folder: Path) -> None:
        self._step("fsync_dir")
        self._undo = [(place, undo) for place, undo in self._undo if place != folder]

    def lose_unsynced(self) -> None:
        for path in self._unsynced:
            if path.exists():
                path.write_bytes(b"")
        for _, undo in reversed(self._undo):
            undo()


class Full(FaultyFiles):
    """A disk without space for as long as ``full``."""

    full = True

    def pwritev(self, fd: int, pieces: Sequence[Piece], offset: int) -> int:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().pwritev(fd, pieces, offset)


def _at_most(pieces: Sequence[memoryview], limit: int) -> list[memoryview]:
    if not limit:
        return list(pieces)
    taken: list[memoryview] = []
    for piece in pieces:
        taken.append(piece[:limit])
        limit -= len(taken[-1])
        if not limit:
            break
    return taken
