"""One tool's process, from its start to the end of everything that it has started.

The tool gets a session of its own, nothing on its standard input, and one pipe for both of its outputs, so that
nothing it prints can reach the editor's protocol. A variable in its environment marks all that it starts: by it, by
session, group and parents its family is found again, children that left their group included.

Invariant: when ``run`` returns, for whatever reason, no process of the family runs; each was asked to end
(``SIGTERM``), and ended (``SIGKILL``) after ``kill_s`` seconds. A process that has hidden all four (another session,
no parent, an environment of its own) is not found.
Invariant: who holds the pipe open does not matter: a run is over when the tool's own process is.
Invariant: the event loop waits for nothing: looking for processes happens on a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from qmlx_lsp.errors import ToolError
from qmlx_lsp.session.event import Job

logger = logging.getLogger(__name__)

MARK = "QMLX_TOOL_RUN"
READ_BYTES = 64 << 10
# A pipe holds no more than a MiB, so that so many reads empty one nobody writes to.
READS_AT_END = 16
POLL_S = 0.02
# Processes that go on starting others while they are ended are looked for again, so often and so long.
ROUNDS_MAX = 20
ROUND_S = 1.0


@dataclass(frozen=True, slots=True)
class Start:
    """What is started: ``cwd`` is absolute, ``env`` is added to the daemon's own environment."""

    argv: Sequence[str]
    cwd: Path
    env: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class End:
    """How a run ended: ``code`` is the exit code or minus the signal; None when it was stopped, ``why`` then."""

    code: int | None
    why: str = ""

    def __str__(self) -> str:
        if self.code is None:
            return self.why
        if self.code >= 0:
            return f"exit code {self.code}"
        try:
            return f"ended by {signal.Signals(-self.code).name}"
        except ValueError:
            return f"ended by signal {-self.code}"


CANCELLED = End(None, "cancelled")


async def run(start: Start, job: Job, timeout_s: float, kill_s: float, on_data: Callable[[bytes], None]) -> End:
    """Run it until it ends, ``timeout_s`` seconds have passed or ``job`` is cancelled. ``on_data`` gets its output
    in the order in which it is printed, on the event loop.

    Invariant: the task that runs this is never cancelled; ``job`` is.

    Raises:
        ToolError: it cannot be started.
    """
    mark = uuid.uuid4().hex
    reading, writing = os.pipe()
    loop = asyncio.get_running_loop()
    try:
        try:
            process = await _spawn(start, mark, writing)
        finally:
            os.close(writing)
        os.set_blocking(reading, False)
        loop.add_reader(reading, _read, loop, reading, on_data)
        exited = asyncio.ensure_future(process.wait())
        try:
            end = await _ended(exited, job, timeout_s)
        finally:
            await _end_family(process.pid, mark, kill_s)
            await exited
        for _ in range(READS_AT_END):
            if not _read(loop, reading, on_data):
                break
        return end
    finally:
        loop.remove_reader(reading)
        os.close(reading)


async def _spawn(start: Start, mark: str, writing: int) -> asyncio.subprocess.Process:
    if not start.cwd.is_dir():
        raise ToolError(f"{start.cwd} is not a folder: create it, or change cwd.")
    environ = {**os.environ, **start.env, MARK: mark}
    try:
        return await asyncio.create_subprocess_exec(
            *start.argv, cwd=start.cwd, env=environ, stdin=asyncio.subprocess.DEVNULL,
            stdout=writing, stderr=writing, start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise ToolError(f"{start.argv[0]} was not found: install it, or change command.") from error
    except PermissionError as error:
        raise ToolError(f"{start.argv[0]} is not an executable file: change its mode, or command.") from error
    except (OSError, ValueError) as error:
        raise ToolError(f"{start.argv[0]} cannot be run: {error}.") from error


async def _ended(exited: asyncio.Future[int], job: Job, timeout_s: float) -> End:
    async def exit_code() -> int:
        return await asyncio.wait_for(asyncio.shield(exited), timeout_s)

    try:
        code = await job.unless_cancelled(exit_code())
    except TimeoutError:
        return End(None, f"stopped after {timeout_s:g} s, for it had not ended")
    return CANCELLED if code is None else End(code)


def _read(loop: asyncio.AbstractEventLoop, reading: int, on_data: Callable[[bytes], None]) -> bool:
    """Take what is there, a bounded part of it; False when there is nothing (now, or any more)."""
    try:
        data = os.read(reading, READ_BYTES)
    except BlockingIOError:
        return False
    if not data:
        loop.remove_reader(reading)
        return False
    on_data(data)
    return True


async def _end_family(leader: int, mark: str, kill_s: float) -> None:
    """See the module's invariant."""
    asked = await asyncio.to_thread(_signal, _family, leader, mark, signal.SIGTERM)
    if not asked:
        return
    await _gone(asked, kill_s)
    for _ in range(ROUNDS_MAX):
        left = await asyncio.to_thread(_signal, _family, leader, mark, signal.SIGKILL)
        if not left:
            return
        await _gone(left, ROUND_S)
    logger.warning("%d processes of a tool cannot be ended", len(left))


async def _gone(processes: Sequence[psutil.Process], within_s: float) -> None:
    """Return when none of ``processes`` runs any more, or after ``within_s`` seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while await asyncio.to_thread(lambda: any(map(_runs, processes))):  # noqa: ASYNC110 - no event says it
                await asyncio.sleep(POLL_S)


def _signal(
    find: Callable[[int, str], list[psutil.Process]], leader: int, mark: str, number: int
) -> list[psutil.Process]:
    found = find(leader, mark)
    for process in found:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
    return found


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _family(leader: int, mark: str) -> list[psutil.Process]:
    """The processes of the run that runs now: see the module's docstring for how they are known."""
    parents: dict[int, int] = {}
    members: dict[int, psutil.Process] = {}
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error, OSError):
            process = psutil.Process(pid)
            parents[pid] = process.ppid()
            if pid == os.getpid() or not _runs(process):
                continue
            known = leader in (pid, os.getpgid(pid), os.getsid(pid))
            if known or process.environ().get(MARK) == mark:
                members[pid] = process
    while more := [pid for pid, parent in parents.items() if parent in members and pid not in members]:
        for pid in more:
            del parents[pid]
            with contextlib.suppress(psutil.Error):
                if _runs(process := psutil.Process(pid)):
                    members[pid] = process
    return list(members.values())
