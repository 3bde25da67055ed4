"""The folders in which the store's files lie: publishing, taking away, putting aside, counting.

It must never know what a file is good for. ``segments/`` and ``snapshots/`` hold the files of the index;
``quarantine/`` holds what was found damaged, for a while and within a cap, for whoever wants to look at it.

Invariant: ``quarantine/`` holds at most QUARANTINE_FILES files and at most 1/QUARANTINE_SHARE of the quota.
"""

from __future__ import annotations

import stat
from contextlib import suppress
from pathlib import Path

from qmlx_lsp.storage.files import TEMP_PREFIX, FileSystem, discard, publish, sweep_temp
from qmlx_lsp.storage.leases import FOLDER as OWNERS
from qmlx_lsp.storage.row import NAMED_AS, Kind
from qmlx_lsp.storage.segment import Encoded, FileRejected, Header, open_file, read_header

QUARANTINE_FILES = 8
QUARANTINE_SHARE = 16  # the quarantine gets a sixteenth of the quota
_FOLDERS = {Kind.SEGMENT: "segments", Kind.SNAPSHOT: "snapshots"}
_PLACES = {kind.suffix: name for kind, name in _FOLDERS.items()}
_QUARANTINE = "quarantine"


class Shelf:
    """Make or open the folders below ``folder``, and sweep what dead writers left. Raises OSError."""

    def __init__(self, fs: FileSystem, folder: Path, quota_bytes: int) -> None:
        self.fs = fs
        self._folder = folder
        self._cap_bytes = quota_bytes // QUARANTINE_SHARE
        self.prepare()
        self.set_aside = len(fs.listdir(folder / _QUARANTINE))  # files found damaged: then, and since
        self.aside_bytes = 0
        self._trim_aside()

    def prepare(self) -> None:
        """Make what is missing of the folders, and sweep what dead writers left. Raises OSError."""
        for part in (self._folder, *(self._folder / name for name in (*_FOLDERS.values(), _QUARANTINE))):
            self.fs.mkdir(part)
        for kind in Kind:
            sweep_temp(self.fs, self._folder / _FOLDERS[kind])

    def there(self) -> bool:
        """Whether the folders are where they were."""
        return all((self._folder / name).is_dir() for name in (*_FOLDERS.values(), _QUARANTINE))

    def stamp(self) -> tuple[int, ...]:
        """Changes when a file comes or goes. Raises OSError."""
        return tuple(self.fs.stat(self._folder / name).st_mtime_ns for name in _FOLDERS.values())

    def path(self, name: str) -> Path:
        """Where the file ``name`` (a name of ours) lies or would lie."""
        return file_path(self._folder, name)

    def sizes(self) -> dict[str, int]:
        """Every file that is named like one of ours and lies where it should, with its bytes. Raises OSError."""
        return file_sizes(self.fs, self._folder)

    def overhead(self) -> int:
        """Bytes of what is neither a checkpoint nor in the quarantine nor the index: owners and temporary files."""
        total = 0
        with suppress(FileNotFoundError):
            total += sum(self.fs.sizes(self._folder / OWNERS).values())
        for name in _FOLDERS.values():
            for entry in self.fs.listdir(self._folder / name):
                if entry.startswith(TEMP_PREFIX):
                    with suppress(FileNotFoundError):  # finished since it was listed
                        total += self.fs.stat(self._folder / name / entry).st_size
        return total

    def index_bytes(self) -> int:
        """Bytes of the index with its journals. Raises OSError."""
        return sum(self.fs.sizes(self._folder).values())

    def status(self, name: str) -> tuple[int, float] | None:
        """Bytes and time of writing of a file; None when it is no readable regular file."""
        try:
            status = self.fs.stat(self.path(name))
        except OSError:
            return None
        return (status.st_size, status.st_mtime) if stat.S_ISREG(status.st_mode) else None

    def header(self, name: str) -> Header:
        """The file's verified header. Raises FileRejected."""
        fd = open_file(self.fs, self.path(name))
        try:
            return read_header(self.fs, fd, name)
        finally:
            self.fs.close(fd)

    def publish(self, encoded: Encoded) -> int:
        """Write a file, whole or not at all; return its bytes. Raises OSError."""
        path = self.path(encoded.row.name)
        return publish(self.fs, path.parent, path.name, encoded.parts)

    def remove(self, name: str) -> bool:
        """Delete a file; whether it is gone now. One that cannot be deleted goes on counting."""
        try:
            self.fs.unlink(self.path(name))
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def put_aside(self, name: str) -> None:
        """Move a damaged file into the quarantine, or delete it if it cannot be moved."""
        path = self.path(name)
        try:
            self.fs.rename(path, self._folder / _QUARANTINE / name)
        except FileNotFoundError:
            return  # gone: there is nothing to look at
        except OSError:
            discard(self.fs, path)
        self.set_aside += 1
        self._trim_aside()

    def _trim_aside(self) -> None:
        """Delete the oldest of the quarantine until it is within its cap, and count the rest."""
        folder = self._folder / _QUARANTINE
        known: list[tuple[float, str, int]] = []
        try:
            for name in self.fs.listdir(folder):
                status = self.fs.stat(folder / name)
                known.append((status.st_mtime, name, status.st_size))
        except OSError:
            return  # another process tidies up at the same time; the next call counts again
        known.sort(reverse=True)
        total = 0
        for place, (_, name, size) in enumerate(known):
            if place >= QUARANTINE_FILES or total + size > self._cap_bytes:
                discard(self.fs, folder / name)
            else:
                total += size
        self.aside_bytes = total

    def forget(self) -> None:
        """Delete every file, the quarantine and temporary ones included. Raises OSError when one resists."""
        for name in _FOLDERS.values():
            self._empty(self._folder / name)
        self.forget_aside()

    def forget_aside(self) -> None:
        """Delete what lies in the quarantine. Raises OSError when a file resists."""
        self._empty(self._folder / _QUARANTINE)
        self.set_aside = 0
        self.aside_bytes = 0

    def _empty(self, folder: Path) -> None:
        for entry in self.fs.listdir(folder):
            try:
                self.fs.unlink(folder / entry)
            except FileNotFoundError:
                continue
        self.fs.fsync_dir(folder)


def file_path(folder: Path, name: str) -> Path:
    """Where the file ``name`` (a name of ours) of the store below ``folder`` lies or would lie."""
    return folder / _PLACES[name.rpartition(".")[2]] / name


def file_sizes(fs: FileSystem, folder: Path) -> dict[str, int]:
    """Every file that is named like one of ours and lies where it should, with its bytes. Raises OSError."""
    found: dict[str, int] = {}
    for kind in Kind:
        ours = NAMED_AS[kind].fullmatch
        found.update(item for item in fs.sizes(folder / _FOLDERS[kind]).items() if ours(item[0]))
    return found


def damage(error: FileRejected) -> bool:
    """Whether the file itself is bad, as opposed to a disk that does not answer just now."""
    return error.reason not in ("unreadable", "missing")


def reason_of(error: OSError) -> str:
    """One line for a user."""
    return error.strerror or str(error)
