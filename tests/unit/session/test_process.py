"""A tool's real processes: how they end, what is read of them, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from qmlx_lsp.errors import ToolError
from qmlx_lsp.session.event import Job
from qmlx_lsp.session.process import CANCELLED, End, Start, run
from tests.support.processes import alive
from tests.support.waiting import until

LONG_S = 60.0


class Tool:
    """One run of a shell command (or of ``argv``) in ``folder``."""

    def __init__(self, folder: Path, command: str | list[str], timeout_s: float = LONG_S, kill_s: float = LONG_S):
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else command
        self.folder = folder
        self.out = bytearray()
        self.job = Job()
        start = Start(argv, folder, {"MINE": "1"})
        self.task = asyncio.create_task(run(start, self.job, timeout_s, kill_s, self.out.extend))

    async def end(self) -> End:
        return await asyncio.wait_for(asyncio.shield(self.task), 30.0)

    async def printed(self, what: bytes) -> None:
        await until(lambda: what in self.out)

    def pids(self) -> list[int]:
        """The numbers that it has printed."""
        return [int(word) for word in self.out.split() if word.isdigit()]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("true", "exit code 0"),
        ("exit 3", "exit code 3"),
        ("kill -SEGV $$", "ended by SIGSEGV"),
        ("kill -KILL $$", "ended by SIGKILL"),
        ("no-such-program-here", "exit code 127"),
    ],
)
async def test_how_it_ended(tmp_path: Path, command: str, said: str) -> None:
    assert str(await Tool(tmp_path, command).end()) == said


async def test_both_outputs_in_order_and_nothing_to_read(tmp_path: Path) -> None:
    tool = Tool(tmp_path, "echo one; echo two >&2; cat; echo $MINE; pwd; printf '\\377\\000'")
    assert await tool.end() == End(0)
    assert bytes(tool.out) == b"one\ntwo\n1\n%s\n\xff\x00" % os.fsencode(os.path.realpath(tmp_path))


async def test_it_has_the_daemons_environment_and_none_of_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INHERITED", "yes")
    opened = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(opened, True)
    program = "import os; print(os.environ['INHERITED'], sorted(int(n) for n in os.listdir('/dev/fd'))[:4])"
    try:
        tool = Tool(tmp_path, [sys.executable, "-c", program])
        await tool.end()
    finally:
        os.close(opened)
    assert tool.out == b"yes [0, 1, 2, 3]\n"  # 3 is the listing itself


@pytest.mark.parametrize(
    ("argv", "cwd", "said"),
    [
        (["no-such-program-here"], ".", "no-such-program-here was not found: install it"),
        (["./plain"], ".", "./plain is not an executable file"),
        (["./broken"], ".", "./broken cannot be run: "),
        (["true"], "none", "none is not a folder: create it"),
    ],
)
async def test_what_cannot_be_started(tmp_path: Path, argv: list[str], cwd: str, said: str) -> None:
    (tmp_path / "plain").write_text("x")
    (tmp_path / "broken").write_bytes(b"\x7fELF")
    (tmp_path / "broken").chmod(0o755)
    before = sorted(os.listdir("/dev/fd"))
    with pytest.raises(ToolError) as caught:
        await run(Start(argv, tmp_path / cwd, {}), Job(), LONG_S, LONG_S, lambda _data: None)
    assert said in str(caught.value)
    assert sorted(os.listdir("/dev/fd")) == before


async def test_too_long(tmp_path: Path) -> None:
    tool = Tool(tmp_path, "echo begun; exec sleep 1000", timeout_s=0.3)
    assert str(await tool.end()) == "stopped after 0.3 s, for it had not ended"
    assert tool.out == b"begun\n"


async def test_cancelled_with_what_it_says_at_its_end(tmp_path: Path) -> None:
    tool = Tool(tmp_path, "trap 'echo bye; exit 0' TERM; echo begun; while :; do sleep 0.01; done")
    await tool.printed(b"begun")
    tool.job.cancel()
    assert await tool.end() == CANCELLED
    assert tool.out == b"begun\nbye\n"


async def test_cancelled_at_any_instant(tmp_path: Path) -> None:
    for turns in range(0, 24, 2):
        tool = Tool(tmp_path, "sleep 1000 & echo $!; exec sleep 1000")
        for _ in range(turns):  # turns of the event loop
            await asyncio.sleep(0)
        tool.job.cancel()
        assert await tool.end() == CANCELLED
        assert [pid for pid in tool.pids() if alive(pid)] == []


FAMILY = """
echo $$
sleep 1000 & echo $!
(sleep 1000 & echo $!; sleep 1000) & echo $!
setsid sh -c 'echo $$; exec sleep 1000' &
setsid env -i /bin/sh -c 'echo $$; exec sleep 1000' &
echo begun
"""


async def test_all_that_it_has_started_ends_with_it(tmp_path: Path) -> None:
    tool = Tool(tmp_path, FAMILY + "wait")
    await until(lambda: len(tool.pids()) == 6)
    tool.job.cancel()
    assert await tool.end() == CANCELLED
    assert [pid for pid in tool.pids() if alive(pid)] == []


async def test_and_when_it_takes_too_long(tmp_path: Path) -> None:
    tool = Tool(tmp_path, FAMILY + "wait", timeout_s=0.5)
    assert (await tool.end()).code is None
    assert tool.pids()
    assert [pid for pid in tool.pids() if alive(pid)] == []


async def test_background_children_neither_hold_it_up_nor_stay(tmp_path: Path) -> None:
    # a daemon of the classic kind: another session, no parent, and it holds the pipe open
    # and one in the tool's own group whose environment says nothing
    tool = Tool(
        tmp_path,
        "sleep 1000 & echo $!; (env -i sleep 1000 & echo $!); (setsid sh -c 'echo $$; touch up; exec sleep 1000' &);"
        " while [ ! -e up ]; do sleep 0.01; done; exit 4",
    )
    assert await tool.end() == End(4)
    assert len(tool.pids()) == 3
    assert [pid for pid in tool.pids() if alive(pid)] == []


async def test_who_does_not_listen_is_ended(tmp_path: Path) -> None:
    tool = Tool(
        tmp_path,
        "trap '' TERM; echo $$; setsid sh -c \"trap '' TERM; echo \\$\\$; while :; do sleep 0.1; done\" &"
        " while :; do sleep 0.1; done",
        kill_s=0.2,
    )
    await until(lambda: len(tool.pids()) == 2)
    tool.job.cancel()
    assert await tool.end() == CANCELLED
    assert [pid for pid in tool.pids() if alive(pid)] == []


async def test_what_goes_on_forking_ends_too(tmp_path: Path) -> None:
    tool = Tool(
        tmp_path, "trap '' TERM; while :; do (trap '' TERM; sleep 0.05; echo x) & sleep 0.01; done", kill_s=0.2
    )
    await tool.printed(b"x")
    tool.job.cancel()
    assert await tool.end() == CANCELLED
    after = bytes(tool.out)
    assert after.count(b"x") > 0
    mine = (
        [p for p in os.listdir("/proc") if p.isdigit() and _runs_in(p, tmp_path)] if sys.platform == "linux" else []
    )
    assert mine == []


def _runs_in(pid: str, folder: Path) -> bool:
    try:
        return Path(f"/proc/{pid}/cwd").readlink() == folder and alive(int(pid))
    except OSError:
        return False


async def test_a_stranger_is_left_alone(tmp_path: Path) -> None:
    stranger = await asyncio.create_subprocess_exec("sleep", "1000")
    try:
        tool = Tool(tmp_path, "sleep 1000 &")
        assert await tool.end() == End(0)
        assert alive(stranger.pid)
    finally:
        stranger.kill()
        await stranger.wait()


async def test_the_pipe_of_a_run_is_closed(tmp_path: Path) -> None:
    before = sorted(os.listdir("/dev/fd"))
    for _ in range(3):
        await Tool(tmp_path, "echo x").end()
    assert sorted(os.listdir("/dev/fd")) == before
