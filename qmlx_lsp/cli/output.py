"""How verbs print: JSON lines for programs, short lines for people, a progress bar on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import orjson


def json_lines(objects: Iterable[Any]) -> None:
    """One object per line."""
    for value in objects:
        sys.stdout.buffer.write(orjson.dumps(value) + b"\n")
    sys.stdout.buffer.flush()


class Bar:
    """Shows where long work is: a bar on a terminal, a line per new message elsewhere. On stderr."""

    def __init__(self) -> None:
        self._progress: Any = None
        self._task: Any = None
        self._message = ""

    def update(self, done: int, total: int, message: str) -> None:
        if not sys.stderr.isatty():
            if message != self._message:
                print(f"{message} …", file=sys.stderr, flush=True)
        else:
            self._draw(done, total, message)
        self._message = message

    def _draw(self, done: int, total: int, message: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        if self._progress is None or message != self._message:
            self.close()
            large = total > 1 << 20
            columns = [DownloadColumn(), TimeRemainingColumn()] if large else []
            self._progress = Progress(
                TextColumn("{task.description}"), BarColumn(), *columns, console=Console(stderr=True), transient=True
            )
            self._progress.start()
            self._task = self._progress.add_task(message, total=total or None)
        self._progress.update(self._task, completed=done, total=total or None)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


@contextmanager
def bar() -> Iterator[Bar]:
    shown = Bar()
    try:
        yield shown
    finally:
        shown.close()


def size(count: int) -> str:
    """Bytes for people."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("unreachable")
