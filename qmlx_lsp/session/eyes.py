"""The system's events about a set of folders, asked for now and then: many small watchers behind one.

A watcher of watchfiles cannot be given another folder; while one is made nothing else runs in this process, for 30 µs
a folder; and every watcher that is asked costs a wake. So folders are spread over a few, new ones get one of their
own, and small ones are put together again. What the events mean is not decided here.

Invariant: a folder that was given stays watched: what takes a watcher's place is there before the watcher goes, and
the last events of the old one are kept.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path

Event = tuple[int, str]
"""1 (there now), 2 (changed) or 3 (gone), and the absolute path, as watchfiles has them."""

Look = Callable[..., Generator[set[Event], None, None]]
"""``look(*folders, recursive=…)``: a watcher, made at the first ``next`` and gone at ``close``; every ``next`` gives
at once what has happened since the last one. It raises OSError or RuntimeError when it cannot go on."""

FOLDERS_MAX = 500  # folders of one watcher, while there are few watchers
WATCHERS_MAX = 10  # large watchers; above that they grow. A user has 128 for all programs on most systems
SMALL_MAX = 3  # small watchers that are not put together yet
_VANISHED_TRIES = 5


class Eyes:
    """``close`` it. ``recursive``: one watcher sees all below its folders (FSEvents), so that one is enough."""

    def __init__(self, look: Look, *, recursive: bool) -> None:
        self._look = look
        self._recursive = recursive
        self._large: list[Generator[set[Event], None, None]] = []
        self._small: list[tuple[list[str], Generator[set[Event], None, None]]] = []
        self._kept: set[Event] = set()

    def open(self, folders: Sequence[str]) -> None:
        """Watch these folders and nothing else.

        Raises:
            OSError, RuntimeError: a limit of the system, or no events here. What was watched still is.
        """
        size = max(FOLDERS_MAX, -(-len(folders) // WATCHERS_MAX))
        made: list[Generator[set[Event], None, None]] = []
        try:
            # One after the other, so that those made before one fails can be closed.
            for start in range(0, len(folders), size):
                made += [self._made(folders[start : start + size])]
        except BaseException:
            _close(made)
            raise
        old = [*self._large, *(watcher for _, watcher in self._small)]
        self._large, self._small = made, []
        self._drain(old)

    def also(self, folders: Sequence[str]) -> None:
        """Watch these folders as well.

        Raises:
            OSError, RuntimeError: as ``open``.
        """
        if self._recursive or not folders:
            return
        old: list[tuple[list[str], Generator[set[Event], None, None]]] = []
        if len(self._small) >= SMALL_MAX:
            old, self._small = self._small, []
        together = [*folders, *(folder for small, _ in old for folder in small)]
        try:
            for start in range(0, len(together), FOLDERS_MAX):
                part = together[start : start + FOLDERS_MAX]
                watcher = self._made(part)
                if len(part) == FOLDERS_MAX:
                    self._large.append(watcher)
                else:
                    self._small.append((part, watcher))
        finally:
            self._drain(watcher for _, watcher in old)

    def events(self) -> set[Event]:
        """What has happened since the last call.

        Raises:
            OSError, RuntimeError: a watcher has broken; events may be lost.
        """
        found, self._kept = self._kept, set()
        for watcher in (*self._large, *(watcher for _, watcher in self._small)):
            found |= _next(watcher)
        return found

    def close(self) -> None:
        _close([*self._large, *(watcher for _, watcher in self._small)])
        self._large, self._small, self._kept = [], [], set()

    def __len__(self) -> int:
        """Watchers in use."""
        return len(self._large) + len(self._small)

    def _made(self, folders: Sequence[str]) -> Generator[set[Event], None, None]:
        """A watcher that watches already. Folders that have gone or were closed meanwhile are left out."""
        for _ in range(_VANISHED_TRIES):
            watcher = self._look(*folders, recursive=self._recursive)
            try:
                self._kept |= _next(watcher)
                return watcher
            except (FileNotFoundError, PermissionError, NotADirectoryError):
                folders = [folder for folder in folders if Path(folder).is_dir() and os.access(folder, os.R_OK)]
        raise OSError(errno.EAGAIN, "folders come and go too fast to be watched")

    def _drain(self, old: Iterable[Generator[set[Event], None, None]]) -> None:
        old = list(old)
        try:
            for watcher in old:
                self._kept |= _next(watcher)
        finally:
            _close(old)


def _next(watcher: Generator[set[Event], None, None]) -> set[Event]:
    try:
        return next(watcher)
    except StopIteration:
        raise RuntimeError("the watcher has ended") from None


def _close(watchers: Iterable[Generator[set[Event], None, None]]) -> None:
    for watcher in watchers:
        watcher.close()


def remedy(error: Exception) -> str:
    """Why there is no watcher, and what to do about it. watchfiles gives most errors as text alone."""
    number = error.errno if isinstance(error, OSError) else None
    text = str(error).lower()
    if number == errno.ENOSPC or "watch limit" in text or "os error 28" in text:
        return "the system's limit of watched folders is reached; raise fs.inotify.max_user_watches"
    if number == errno.EMFILE or "os error 24" in text:
        return "the system's limit of watchers is reached; raise fs.inotify.max_user_instances"
    return f"{' '.join(str(error).split()).rstrip('.') or type(error).__name__}"
