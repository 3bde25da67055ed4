"""A program in a real terminal: tmux, on a server of its own that ends with the test."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.editors.picture import Screen, svg
from tests.support.waiting import until

WAIT_S = 60.0
"""Until something is given up that should be there: a loaded machine takes long to start an editor and a daemon."""
LOOK_S = 0.03
"""Between two looks at a screen. Each starts a program, and what is waited for needs the processor more."""
_numbers = itertools.count(1)


class Terminal:
    """``argv`` in a window of ``columns`` and ``rows``. Use it as a context: at its end everything in it is ended."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        columns: int = 100,
        rows: int = 28,
        tmux: str = "tmux",
    ) -> None:
        self._argv, self._cwd, self._size = argv, cwd, (columns, rows)
        self._env = {
            **env,
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
        }
        self._tmux = (tmux, "-L", f"qmlx-{os.getpid()}-{next(_numbers)}", "-f", os.devnull)

    def _run(self, *arguments: str) -> str:
        done = subprocess.run([*self._tmux, *arguments], env=self._env, capture_output=True, text=True, check=True)
        return done.stdout

    async def __aenter__(self) -> Self:
        columns, rows = map(str, self._size)
        options = (
            "set -g default-terminal tmux-256color ; set -ga terminal-features *:RGB ; set -g status off ; "
            "set -g escape-time 0 ; set -g remain-on-exit on ; set -g history-limit 0"
        )
        size = ["-d", "-x", columns, "-y", rows, "-c", str(self._cwd)]
        self._run(*options.split(), ";", "new-session", *size, shlex.join(self._argv))
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._end()

    def _end(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], env=self._env, capture_output=True, check=False)

    async def type(self, text: str) -> None:
        """As from the keyboard, all at once."""
        self._run("send-keys", "-l", "--", text)

    async def keys(self, *names: str) -> None:
        """Keys by tmux's names: Enter, Escape, C-c, M-q, Tab, Up."""
        self._run("send-keys", "--", *names)

    def screen(self) -> str:
        return self._run("capture-pane", "-p")

    async def shows(self, what: str | re.Pattern[str], within_s: float = WAIT_S) -> str:
        """Wait until ``what`` is on the screen; returns the screen."""
        found = (lambda now: what.search(now)) if isinstance(what, re.Pattern) else (lambda now: what in now)
        return await self._seen(found, f"{what!r} never came", within_s)

    async def hides(self, what: str, within_s: float = WAIT_S) -> str:
        """Wait until ``what`` is not on the screen any more; returns the screen."""
        return await self._seen(lambda now: what not in now, f"{what!r} never went", within_s)

    async def _seen(self, fits: Callable[[str], object], complaint: str, within_s: float) -> str:
        now = ""

        def looked() -> bool:
            nonlocal now
            now = self.screen()
            return bool(fits(now))

        try:
            await until(looked, within_s, LOOK_S)
        except TimeoutError:
            raise AssertionError(f"{complaint} in {within_s:g} s. The screen:\n{now}") from None
        return now

    async def ended(self, within_s: float = WAIT_S) -> int:
        """The exit code of the program."""
        await until(lambda: self._run("display-message", "-p", "#{pane_dead}").strip() == "1", within_s, LOOK_S)
        return int(self._run("display-message", "-p", "#{pane_dead_status}").strip() or 0)

    def picture(self, path: Path, title: str) -> None:
        """Write what is on the screen now as SVG."""
        lines = self._run("capture-pane", "-p", "-e", "-N").split("\n")[: self._size[1]]
        column, row, shown = self._run("display-message", "-p", "#{cursor_x} #{cursor_y} #{cursor_flag}").split()
        cursor = (int(column), int(row)) if shown == "1" else None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(svg(Screen(tuple(lines), self._size[0], cursor), title), encoding="utf-8")


async def settled(terminal: Terminal, quiet: int = 5) -> str:
    """The screen, once it has been the same ``quiet`` times in a row: nothing is being drawn any more."""
    same, before = 0, ""
    while same < quiet:
        await asyncio.sleep(0.05)
        now = terminal.screen()
        same, before = (same + 1, before) if now == before else (0, now)
    return before
