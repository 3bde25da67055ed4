"""Looking through a project's folders: which files there are, and which are none of our business. No contents.

Blocking, for a thread of its own. It gives way by itself: the interpreter is let go of at every look at an entry.

Invariant: an excluded folder is not entered, a symbolic link is not followed. What is no ordinary file is not there.
Invariant: a folder that cannot be looked at for a passing reason (too many open files, a network that is down) is
reported as unknown, never as empty: what was known of it stays.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from qmlx_lsp.errors import QmlxError
from qmlx_lsp.workspace.changes import in_flight
from qmlx_lsp.workspace.ignore import Ignore
from qmlx_lsp.workspace.index import Seen, pack

EXCLUDED_MAX = 1_000  # excluded paths that are kept for showing
_GONE = {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ELOOP, errno.ENAMETOOLONG}


class TooManyFiles(QmlxError):
    """A project has more files than are watched."""


class Stopped(Exception):
    """Whoever asked for the scan does not want it any more."""


@dataclass(slots=True)
class Excluded:
    """Top-most excluded paths, folders with a slash at their end, and why; the first ones found."""

    paths: dict[str, str] = field(default_factory=dict)

    def note(self, path: str, reason: str) -> None:
        if len(self.paths) < EXCLUDED_MAX:
            self.paths[path] = reason

    def forget(self, folder: str) -> None:
        """What is at or below ``folder`` will be noted anew."""
        self.paths = {path: why for path, why in self.paths.items() if folder and not path.startswith(f"{folder}/")}


class Scanner:
    """``root`` is a real path. ``ignore`` belongs to the thread that scans."""

    def __init__(
        self,
        root: Path,
        ignore: Ignore,
        max_files: int,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self._root = os.fspath(root)
        self._ignore = ignore
        self._max_files = max_files
        self._stopped = stopped
        self.excluded = Excluded()

    def scan(self, top: str = "") -> Iterator[tuple[str, dict[str, bytes] | None]]:
        """Every folder at or below ``top``, parents first: its relative path, and what files it has (``Seen.pack``);
        None when that cannot be known now, and then nothing is said of the folders below it either.

        Raises:
            TooManyFiles: more than ``max_files``.
            Stopped: ``stopped()``.
        """
        self.excluded.forget(top)
        waiting, count = [top], 0
        while waiting:
            if self._stopped():
                raise Stopped
            folder = waiting.pop()
            try:
                files, below = self._look(folder)
            except OSError as error:
                if error.errno not in _GONE:
                    yield folder, None
                continue
            count += len(files)
            self.check(count)
            waiting += below
            yield folder, files

    def check(self, count: int) -> None:
        """
        Raises:
            TooManyFiles: a project of ``count`` files has too many.
        """
        if count > self._max_files:
            raise TooManyFiles(
                f"{self._root} has more than {self._max_files:,} files, so that only files in use are looked at: "
                "exclude folders in .qmlxignore or raise watch.max_files."
            )

    def _look(self, folder: str) -> tuple[dict[str, bytes], list[str]]:
        """The files and the subfolders of one folder."""
        prefix = f"{folder}/" if folder else ""
        with os.scandir(f"{self._root}/{folder}" if folder else self._root) as found:
            entries = list(found)
        rules = self._ignore.inside(folder, {entry.name.lower() for entry in entries if entry.name.startswith(".")})
        files, below = {}, []
        for entry in entries:
            name = entry.name
            try:
                is_folder = entry.is_dir(follow_symlinks=False)
                if not is_folder and (in_flight(name) or not entry.is_file(follow_symlinks=False)):
                    continue
                reason = rules.reason(name, folder=is_folder)
                if reason:
                    self.excluded.note(f"{prefix}{name}/" if is_folder else prefix + name, reason)
                elif is_folder:
                    below.append(prefix + name)
                else:
                    about = entry.stat(follow_symlinks=False)
                    files[name] = pack(about.st_size, about.st_mtime_ns, about.st_ino)
            except OSError:
                continue  # it went while we looked
        return files, below


def kind_of(path: str) -> tuple[str, Seen | None]:
    """``"file"`` with what is seen of it, ``"folder"``, ``"gone"``, ``"other"`` or ``"unknown"``."""
    try:
        about = os.lstat(path)
    except OSError as error:
        return ("gone" if error.errno in _GONE else "unknown"), None
    if stat.S_ISREG(about.st_mode):
        return "file", Seen(about.st_size, about.st_mtime_ns, about.st_ino)
    return ("folder" if stat.S_ISDIR(about.st_mode) else "other"), None


# --- git ------------------------------------------------------------------------------------------------------------


def git_folder(root: Path) -> Path | None:
    """Where git keeps the HEAD of the work tree that ``root`` lies in, a linked one included; None without git."""
    for folder in (root, *root.parents):
        sign = folder / ".git"
        if (sign / "HEAD").is_file():
            return sign
        text = _first_line(sign)
        if text is not None and text.startswith("gitdir: "):
            linked = folder / text.removeprefix("gitdir: ")
            return linked if (linked / "HEAD").is_file() else None
    return None


def branch_of(git: Path | None) -> str | None:
    """The branch that is checked out; None without one (a detached HEAD, no repository)."""
    head = None if git is None else _first_line(git / "HEAD")
    return head.removeprefix("ref: refs/heads/") if head is not None and head.startswith("ref: refs/heads/") else None


def _first_line(file: Path) -> str | None:
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:
            return opened.readline(4_096).rstrip("\r\n")
    except OSError:
        return None
