"""Daemons that are killed, stopped or idle, and --no-daemon: what is recorded, and what comes back."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator

import pytest

from tests.support.fake_editor import initialize_params
from tests.support.processes import Editor, Home, home
from tests.support.waiting import until

MAIN = "import sys; from qmlx_lsp.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
async def h() -> AsyncIterator[Home]:
    async with home() as made:
        yield made


SLOW = """
import time
from qmlx_lsp.engine.scripted import ScriptedBackend
feed = ScriptedBackend._feed
def slowly(self, state, ids, kind):
    feed(self, state, ids, kind)
    time.sleep(0.05 if kind == "decode" else 0)
ScriptedBackend._feed = slowly
"""


async def slow_daemon(h: Home) -> asyncio.subprocess.Process:
    """A daemon whose replies take their time: 50 ms a token."""
    process = await h.start("daemon", "run", program=("-c", SLOW + MAIN))
    await until(lambda: h.paths.socket.exists())
    return process


async def log_of(h: Home) -> list[dict[str, object]]:
    code, out, err = await h.run("log", "--json", "--tokens", "--root", str(h.project))
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.slow
async def test_daemon_killed_while_it_answers(h: Home) -> None:
    daemon = await slow_daemon(h)
    editor = await h.connect()
    await editor.request("qmlx/ask", {"text": "First", "maxTokens": 2})
    start = len(editor.messages)
    number = editor.begin("qmlx/ask", {"text": "Second"})
    await until(lambda: not (len("".join(s["delta"] for s in editor.of("qmlx/stream", start))) < 4))
    shown = "".join(s["delta"] for s in editor.of("qmlx/stream", start))
    daemon.kill()
    assert await editor.ended() == 1
    assert number not in [m["id"] for m in editor.messages if "method" not in m]
    await daemon.wait()
    again = await h.connect()
    entries = await log_of(h)
    assert (entries[-1]["kind"], entries[-1]["finish"]) == ("assistant", "cancelled")
    recovered = str(entries[-1]["text"])
    assert recovered
    assert "I have read".startswith(recovered[:11])
    assert len(recovered) >= len(shown) - 2
    usage = (await again.request("qmlx/ask", {"text": "Third"}))["usage"]
    assert (usage["plan"], usage["restored"]) == ("restore", entries[2]["span"][1])  # type: ignore[index]
    assert (await log_of(h))[: len(entries)] == entries
    assert await again.leave() == 0


@pytest.mark.slow
async def test_sigterm_while_it_answers_records_the_reply(h: Home) -> None:
    daemon = await slow_daemon(h)
    editor = await h.connect()
    editor.begin("qmlx/ask", {"text": "Q"})
    await editor.until(lambda m: m.get("method") == "qmlx/stream")
    daemon.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(daemon.wait(), 20) == 0
    assert await editor.ended() == 1
    entries = await log_of(h)
    assert entries[-1]["finish"] == "cancelled"
    shown = "".join(s["delta"] for s in editor.of("qmlx/stream"))
    assert str(entries[-1]["text"]).startswith(shown)
    again = await h.connect()
    usage = (await again.request("qmlx/ask", {"text": "R"}))["usage"]
    assert usage["restored"] == entries[-1]["span"][1]  # type: ignore[index]
    assert await again.leave() == 0


@pytest.mark.slow
async def test_idle_daemon_leaves_and_the_next_editor_finds_everything(h: Home) -> None:
    h.environ["QMLX_IDLE_MINUTES"] = "0.01"
    editor = await h.connect()
    pid = h.pid
    assert pid is not None
    await editor.request("qmlx/ask", {"text": "Q"})
    assert await editor.leave() == 0
    await h.gone(pid)
    assert not h.paths.socket.exists()
    again = await h.connect()
    assert (await again.request("qmlx/ask", {"text": "R"}))["usage"]["plan"] == "restore"
    assert await again.leave() == 0


@pytest.mark.slow
async def test_no_daemon_serves_in_one_process_and_keeps_stdout_for_the_protocol(h: Home) -> None:
    noisy = (
        "import os, subprocess, sys; from qmlx_lsp.engine.scripted import ScriptedBackend as S; f = S.prefill\n"
        "def loud(s, i, ids):\n"
        "    print('x'); sys.stdout.flush(); os.write(1, b'x'); subprocess.run(['echo', 'x']); f(s, i, ids)\n"
        "S.prefill = loud\n"
    )
    process = await h.start("--no-daemon", program=("-c", noisy + MAIN))
    editor = Editor(process)
    await editor.initialize(initialize_params("neovim-0.11", h.project))
    assert (await editor.request("qmlx/ask", {"text": "Q"}))["finish"] == "complete"
    assert h.pid is None
    assert not h.paths.socket.exists()
    assert await editor.leave() == 0
    assert (await process.stderr.read()).count(b"x") >= 3
    assert [e["kind"] for e in await log_of(h)] == ["system", "question", "assistant"]


@pytest.mark.slow
async def test_no_daemon_ends_with_whatever_stdin_is(h: Home) -> None:
    process = await h.start("--no-daemon", stdin=asyncio.subprocess.DEVNULL)
    assert await asyncio.wait_for(process.wait(), 10) == 0
    assert await process.stderr.read() == b""
    editor = Editor(await h.start("--no-daemon"))
    await editor.initialize(initialize_params("neovim-0.11", h.project))
    editor.notify("exit", None)
    editor.hang_up()
    assert await editor.ended() == 1
    other = Editor(await h.start("--no-daemon"))
    await other.initialize(initialize_params("neovim-0.11", h.project))
    other.process.send_signal(signal.SIGTERM)
    assert await other.ended() == 1
    assert await other.process.stderr.read() == b""  # type: ignore[union-attr]


@pytest.mark.slow
async def test_restart_ends_the_daemon_in_good_order_and_the_next_one_knows_everything(h: Home) -> None:
    editor = await h.connect()
    await editor.request("qmlx/ask", {"text": "First"})
    restart = {"command": "qmlx.restart", "arguments": []}
    other = await h.connect()
    code, why = await editor.refused("workspace/executeCommand", restart)
    assert (code, "give {force: true}" in why) == (-32803, True)
    assert await other.leave() == 0
    while (await editor.request("qmlx/status"))["clients"] > 1:
        continue
    for odd in ([1], ["now"], [{"force": 3}], [{"force": True}, 2]):
        assert (await editor.refused("workspace/executeCommand", {**restart, "arguments": odd}))[0] == -32803
    pid = h.pid
    assert pid is not None
    answer = await editor.request("workspace/executeCommand", restart)
    assert answer == {"pid": pid, "clients": 1}
    await editor.ended()
    await h.gone(pid)
    again = await h.connect()
    assert h.pid != pid
    usage = (await again.request("qmlx/ask", {"text": "Second"}))["usage"]
    assert usage["plan"] == "restore"
    assert await again.leave() == 0
