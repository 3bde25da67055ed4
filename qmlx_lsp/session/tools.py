"""The tools that run: which there are, which may run now, and what each one's end is told as.

A tool runs when a user asks for it by its name, never by itself, and never because a model wants it. Whoever asks
decides first whether the workspace is trusted (``lsp/tools.py``).

Invariant: a tool runs once at a time in one root, and ``RUNS_MAX`` of them at a time in all.
Invariant: ``.qmlx.toml`` is read anew at every request, so that what runs is what the file says now.
Invariant: nothing that a tool prints is logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qmlx_lsp import settings
from qmlx_lsp.errors import ToolError
from qmlx_lsp.session.event import Job
from qmlx_lsp.session.loading import seen
from qmlx_lsp.session.process import CANCELLED, End, Start, run
from qmlx_lsp.workspace.tool_output import Capture, Shown, block
from qmlx_lsp.workspace.toolbox import FILE, FILE_BYTES_MAX, Tool, parse

RUNS_MAX = 4
# Output travels to whoever watches in batches, this far apart.
BATCH_S = 0.05


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a tool ended, and the block to be told. ``text`` is None when there is nothing to tell: a run that was
    cancelled before it printed anything has said nothing about the project, and an entry cannot be taken back. One
    that had printed something is told with what it printed, for the user saw it and may ask about it."""

    end: End
    text: str | None


@dataclass(frozen=True, slots=True)
class Watch:
    """Whoever watches a run: ``on_text(delta)`` gets the output, ``on_line(line)`` its last line, shortened. Both
    are called on the event loop and must not block."""

    on_text: Callable[[str], None] = lambda _delta: None
    on_line: Callable[[str], None] = lambda _line: None


class Tools:
    """All runs of the daemon. Used on the event loop only."""

    def __init__(self, limits: settings.Tools) -> None:
        self._limits = limits
        self._running: dict[tuple[Path, str], Job] = {}
        self._none_run = asyncio.Event()
        self._none_run.set()
        self._closed = False

    @property
    def enabled(self) -> bool:
        return self._limits.enabled

    async def offered(self, root: Path) -> dict[str, Tool]:
        """The tools of ``root`` by name; none when it has no ``.qmlx.toml``.

        Raises:
            ToolError: the file cannot be read, or says something that is not allowed.
        """
        return parse(await asyncio.to_thread(_read, root / FILE))

    def begin(self, root: Path, tool: Tool, job: Job, watch: Watch | None = None) -> asyncio.Task[Outcome]:
        """Start ``tool``; cancelling ``job`` ends it. The task ends by itself, and is never to be cancelled.

        Raises:
            ToolError: it cannot run now; by the task, that it cannot be started.
        """
        if not self._limits.enabled:
            raise ToolError(f"Tools are turned off by tools.enabled: turn them on, then run {tool.name} again.")
        if (root, tool.name) in self._running:
            raise ToolError(f"{tool.name} is running already: wait for its end, or cancel it with qmlx.cancel.")
        if len(self._running) >= RUNS_MAX:
            raise ToolError(f"{len(self._running)} tools are running already: wait for one, or cancel it.")
        if self._closed:
            raise ToolError(f"The daemon is stopping: run {tool.name} again in a moment.")
        self._running[root, tool.name] = job
        self._none_run.clear()
        task = asyncio.create_task(self._run(root, tool, job, watch or Watch()))
        task.add_done_callback(lambda _task: self._over(root, tool.name))
        task.add_done_callback(seen)
        return task

    def _over(self, root: Path, name: str) -> None:
        del self._running[root, name]
        if not self._running:
            self._none_run.set()

    async def _run(self, root: Path, tool: Tool, job: Job, watch: Watch) -> Outcome:
        if job.cancelled:
            return Outcome(CANCELLED, None)
        start = Start(tool.argv, await asyncio.to_thread(_folder, root, tool), tool.env)
        capture, shown = Capture((tool.output_kb or self._limits.output_kb) * 1024), Shown()
        news = asyncio.Event()

        def on_data(data: bytes) -> None:
            capture.feed(data)
            shown.feed(data)
            news.set()

        watching = asyncio.create_task(_show(news, capture, shown, watch))
        try:
            end = await run(start, job, tool.timeout_s or self._limits.timeout_s, self._limits.kill_s, on_data)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        if rest := await asyncio.to_thread(lambda: shown.take(last=True)):
            watch.on_text(rest)
        output = await asyncio.to_thread(capture.text)
        if end == CANCELLED and not output.strip():
            return Outcome(end, None)
        return Outcome(end, block(tool.name, tool.shown, str(end), output))

    def told_by_editor(self, name: str, command: str, exit_code: int | None, output: str) -> str:
        """The block about a result that comes from an editor, of whatever length: call it on a thread."""
        ending = "" if exit_code is None else str(End(exit_code))
        capture = Capture(self._limits.output_kb * 1024)
        capture.feed_text(output)
        return block(name, command, ending, capture.text())

    async def stop(self, timeout_s: float) -> None:
        """Begin nothing more; end what runs, and wait for it, at most ``timeout_s`` seconds."""
        self._closed = True
        for job in self._running.values():
            job.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._none_run.wait(), timeout_s)


async def _show(news: asyncio.Event, capture: Capture, shown: Shown, watch: Watch) -> None:
    """Pass on what has come, a batch at a time, until cancelled."""
    last = ""
    while True:
        await news.wait()
        news.clear()
        if delta := shown.take():
            watch.on_text(delta)
            news.set()  # there may be more of it
        if (line := capture.last_line()) and line != last:
            last = line
            watch.on_line(line)
        await asyncio.sleep(BATCH_S)


def _read(file: Path) -> str:
    """The text of ``.qmlx.toml``; "" when there is none. Blocking."""
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK)  # a pipe of that name must not hold us up
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ToolError(f"{file} cannot be read: {error.strerror}.") from error
    try:
        about = os.fstat(opened)
        if not stat.S_ISREG(about.st_mode):
            raise ToolError(f"{file} is not a file.")
        if about.st_size > FILE_BYTES_MAX:
            raise ToolError(f"{file} has more than {FILE_BYTES_MAX >> 10} KiB, too much to describe tools.")
        with open(opened, "rb", closefd=False) as stream:
            return stream.read(FILE_BYTES_MAX).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ToolError(f"{file} is not UTF-8: {error.reason} at byte {error.start}.") from error
    except OSError as error:
        raise ToolError(f"{file} cannot be read: {error.strerror}.") from error
    finally:
        os.close(opened)


def _folder(root: Path, tool: Tool) -> Path:
    """Where ``tool`` runs. Blocking. Raises ToolError when a link leads out of the project."""
    folder = Path(os.path.realpath(root / tool.cwd))
    if folder != root and root not in folder.parents:
        raise ToolError(f"{FILE}: tools.{tool.name}.cwd leads to {folder}, outside the project.")
    return folder
