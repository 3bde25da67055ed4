"""``log --follow``: goes on printing what is added to a conversation, until Ctrl-C or until nobody reads any more.

It must never hold up the writer: it asks the database whether anything has changed, and reads what is new.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from qmlx_lsp.cli.log_show import Show
from qmlx_lsp.storage.history import History, Told
from qmlx_lsp.storage.records import NothingYet

FOLLOW_POLL_S = 0.2  # seconds between two looks at whether anything has changed


def follow(
    path: Path,
    root: str,
    show: Show,
    *,
    epoch: int | None,
    limit: int | None,
    pause: Callable[[], None] | None = None,
) -> int:
    """Show what is there (the newest ``limit``; None: all) and what comes; only of ``epoch``, unless it is None."""
    follower, pause = Follower(root, show, epoch, limit), pause or pauses()
    try:
        while True:
            if (file := _file(path)) is not None:
                _follow_file(path, file, follower, pause)
                follower.begin_again()
            pause()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more can be said on it
        return 0


def _follow_file(path: Path, file: tuple[int, int], follower: Follower, pause: Callable[[], None]) -> None:
    """Until another file has the name."""
    try:
        history = History(path)
    except NothingYet:
        return
    with closing(history):
        seen: int | None = None
        while _file(path) == file:
            version = history.version()
            if version != seen:
                follower.look(history)
                seen = version
            pause()


def _file(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


class Follower:
    """What has been shown of a conversation. ``look`` shows what has come since."""

    def __init__(self, root: str, show: Show, epoch: int | None, limit: int | None) -> None:
        self._root, self._show, self._epoch, self._limit = root, show, epoch, limit
        self._conversation: int | None = None
        self._last: Told | None = None
        self._growing: Told | None = None

    def begin_again(self) -> None:
        """The database is another one from now on."""
        self._conversation = self._last = None

    def look(self, history: History) -> None:
        conversation = history.find(self._root)
        if conversation != self._conversation:  # forgotten, or begun
            self._conversation, self._last = conversation, None
        found = [] if conversation is None else history.entries(conversation, self._last)
        if self._growing is not None and all(told.row != self._growing.row for told in found):
            self._show.withdrawn()
            self._growing = None
        if conversation is None or not found:
            return
        epochs = history.epochs(conversation)
        self._show.epochs(epochs, headings=len(epochs) > 1)
        skipped = max(0, len(found) - self._limit) if self._limit is not None else 0
        self._limit = None
        for told in found:
            growing = told.open and told is found[-1]
            if skipped:
                skipped -= 1
            elif self._epoch in (None, told.epoch):
                (self._show.growing if growing else self._show.entry)(told)
            if growing:
                self._growing = told
            else:
                self._last, self._growing = told, None


def pauses() -> Callable[[], None]:
    """What waits until the next look is due. It raises BrokenPipeError as soon as nobody reads our output."""
    fd = sys.stdout.fileno()
    mode = os.fstat(fd).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return lambda: time.sleep(FOLLOW_POLL_S)
    poll = select.poll()
    poll.register(fd, 0)  # errors are always told

    def pause() -> None:
        if poll.poll(FOLLOW_POLL_S * 1000):
            raise BrokenPipeError

    return pause
