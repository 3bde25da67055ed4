"""Connectors and daemons as real processes: who starts whom, who ends when, and what is recorded."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
from collections.abc import AsyncIterator

import pytest

from qmlx_lsp.daemon.socket import DaemonError, daemon_lock
from tests.support.fake_editor import frame, initialize_params
from tests.support.processes import Editor, Home, OldDaemon, alive, connect, home, json_line
from tests.support.waiting import until

REQUEST_FAILED = -32803
MAIN = "import sys; from qmlx_lsp.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
async def h() -> AsyncIterator[Home]:
    async with home() as made:
        yield made


async def test_daemon_starts_on_demand_and_serves_two_editors(h: Home) -> None:
    assert h.pid is None
    first = await h.connect()
    second = await h.connect(client="helix-25.07")
    assert (await first.request("qmlx/ask", {"text": "Q"}))["usage"]["plan"] == "cold"
    assert (await second.request("qmlx/ask", {"text": "R"}))["usage"]["plan"] == "live"
    status = await second.request("qmlx/status")
    assert (status["clients"], status["pid"]) == (2, h.pid)
    assert h.paths.socket.stat().st_mode & 0o777 == 0o600
    assert h.paths.runtime.stat().st_mode & 0o777 == 0o700
    assert (await first.leave(), await second.leave()) == (0, 0)
    assert h.pid is not None
    code, out, _ = await h.run("daemon", "stop")
    assert (code, out) == (0, "The daemon has stopped.\n")
    assert h.pid is None


async def test_the_daemon_knows_the_folder_that_the_editor_was_started_in(h: Home) -> None:
    editor = await h.connect(client="helix-25.07")
    for name in ("x.py", "deep/x.py"):
        item = {"uri": (h.project / name).as_uri(), "languageId": "python", "version": 0, "text": "x = 1\n"}
        editor.notify("textDocument/didOpen", {"textDocument": item})
    await editor.request("workspace/executeCommand", {"command": "qmlx.explain", "arguments": ["x.py", 1]})
    editor.hang_up()
    assert await editor.ended() == 0


@pytest.mark.slow
async def test_connectors_end_with_their_editor(h: Home) -> None:
    starting = Editor(await h.start("--stdio"))
    starting.hang_up()  # before the daemon was there
    assert await starting.ended() == 0
    assert (await h.run("--stdio"))[:2] == (0, "")
    editor = await h.connect()
    editor.hang_up()
    assert await editor.ended() == 0
    middle = await h.connect()
    middle.send_bytes(b"Content-Length: 100\r\n\r\n{")
    middle.hang_up()
    assert await middle.ended() == 0
    exiting = await h.connect()
    exiting.notify("exit", None)
    exiting.hang_up()
    assert await exiting.ended() == 1


@pytest.mark.slow
async def test_connector_ends_when_nobody_reads(h: Home) -> None:
    reading, writing = os.pipe()
    process = await h.start("--stdio", stdout=writing)
    os.close(writing)
    os.close(reading)
    process.stdin.write(frame({"jsonrpc": "2.0", "id": 1, "method": "initialize",
                               "params": initialize_params("helix-25.01", h.project)}))  # fmt: skip
    assert await asyncio.wait_for(process.wait(), 10) == 1
    assert await process.stderr.read() == b""


@pytest.mark.slow
async def test_connector_ends_with_its_parent_while_others_hold_the_pipes(h: Home) -> None:
    program = (
        "import subprocess, sys; p = subprocess.Popen([sys.executable, '-m', 'qmlx_lsp', '--stdio']);"
        "print(p.pid, file=sys.stderr, flush=True); p.wait()"
    )
    parent = await h.start(program=("-c", program))
    pid = int(await parent.stderr.readline())
    parent.stdin.write(frame({"jsonrpc": "2.0", "id": 1, "method": "initialize",
                              "params": initialize_params("helix-25.01", h.project)}))  # fmt: skip
    await asyncio.wait_for(parent.stdout.readuntil(b"experimental"), 10)
    parent.kill()
    await until(lambda: not alive(pid), 5)


@pytest.mark.slow
async def test_ten_connectors_at_once_start_one_daemon(h: Home) -> None:
    editors = await asyncio.gather(*(h.connect() for _ in range(10)))
    pids = {(await editor.request("qmlx/status"))["pid"] for editor in editors}
    assert pids == {h.pid}
    assert h.paths.log_file.read_text().count("listening on") == 1
    assert "already" not in h.paths.log_file.read_text()
    assert await asyncio.gather(*(editor.leave() for editor in editors)) == [0] * 10


@pytest.mark.slow
async def test_stale_socket_and_second_daemon(h: Home) -> None:
    h.paths.prepare()
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(h.paths.socket))
    stale.close()
    h.paths.runtime.chmod(0o777)
    editor = await h.connect()
    assert h.paths.runtime.stat().st_mode & 0o777 == 0o700
    code, out, err = await h.run("daemon", "run")
    assert (code, out) == (2, "")
    assert err == (
        f"qmlx-lsp: A daemon is running already (pid {h.pid}, {h.paths.socket}): "
        "use it, or stop it with `qmlx-lsp daemon stop`.\n"
    )
    refused = Editor(await h.start("--no-daemon"))
    _, message = await refused.refused("initialize", initialize_params("helix-25.07", h.project))
    assert message.startswith("A daemon is running already")
    assert await refused.ended() == 2
    assert await editor.leave() == 0


@pytest.mark.slow
async def test_daemon_that_is_ending_is_waited_for(h: Home) -> None:
    """The lock is held and nobody listens: the connector neither fails nor starts a second one."""
    h.paths.prepare()
    lock = daemon_lock(h.paths)
    editor = Editor(await h.start("--stdio"))
    number = editor.begin("initialize", initialize_params("vscode-1.139", h.project))
    with pytest.raises(DaemonError):
        daemon_lock(h.paths)
    await asyncio.sleep(0.3)  # long enough for the connector to have found the lock held
    assert editor.messages == []
    os.close(lock)
    assert "capabilities" in await editor.result(number)
    assert await editor.leave() == 0


@pytest.mark.slow
async def test_daemon_of_another_version_is_replaced(h: Home) -> None:
    old = await h.start(program=("-c", OldDaemon.PROGRAM))
    assert await old.stdout.readline() == b"ready\n"
    editor = await h.connect()
    assert json.loads(await old.stdout.readline())[-1] == "stop"
    assert (await editor.request("qmlx/status"))["pid"] == h.pid
    assert await editor.leave() == 0


@pytest.mark.slow
async def test_strange_greetings_do_no_harm(h: Home) -> None:
    await h.run("daemon", "start")
    for greeting in (b"[]\n", b"nonsense\n", b"", b"{\n", b'{"op": "unknown"}\n', b"x" * (2 << 20) + b"\n"):
        link = connect(h.paths)
        with contextlib.suppress(ConnectionError):  # it need not hear us out
            link.sendall(greeting)
            link.shutdown(socket.SHUT_WR)
            await asyncio.to_thread(link.recv, 4096)
        link.close()
        assert h.pid is not None
    assert "Traceback" not in h.paths.log_file.read_text()


async def test_something_else_listens(h: Home) -> None:
    h.paths.prepare()
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(h.paths.socket))
    server.listen()

    async def greet(line: bytes) -> None:
        link, _ = await asyncio.to_thread(server.accept)
        await asyncio.to_thread(link.recv, 4096)
        link.sendall(line)
        link.close()

    for line in (b"[1]\n", b"220 smtp\n"):
        _, (code, _, err) = await asyncio.gather(greet(line), h.run("status"))
        assert code == 2
        assert "does not answer" in err
        assert len(err.splitlines()) == 1
    server.close()


@pytest.mark.slow
async def test_socket_path_too_long_and_unusable_home_are_answered(h: Home) -> None:
    blocked = h.base / "file"
    blocked.write_text("in the way")
    for home_path, said in ((h.base / ("x" * 120), "allows: set QMLX_HOME"), (blocked, "cannot be used")):
        h.environ["QMLX_HOME"] = str(home_path)
        for argument in ("--stdio", "--no-daemon"):
            editor = Editor(await h.start(argument))
            code, message = await editor.refused("initialize", initialize_params("vscode-1.139", h.project))
            assert (code, said in message) == (REQUEST_FAILED, True), message
            assert await editor.ended() == 2
    h.environ["QMLX_HOME"] = str(h.base / ("x" * 120))
    code, _, err = await h.run("status")
    assert (code, "allows: set QMLX_HOME" in err) == (2, True)


async def test_error_in_settings_is_answered(h: Home) -> None:
    h.paths.prepare()
    h.paths.config_file.write_text("[model]\ntemprature = 1\n")
    editor = Editor(await h.start("--stdio", "--clientProcessId=7"))
    code, message = await editor.refused("initialize", initialize_params("neovim-0.12", h.project))
    assert code == REQUEST_FAILED
    assert message.startswith(
        f"{h.paths.config_file}: unknown key model.temprature; allowed are adapter, kv_bits, max_tokens, name"
    )
    assert await editor.ended() == 2
    assert (await editor.process.stderr.read()).decode() == f"qmlx-lsp: {message}\n"  # type: ignore[union-attr]


async def test_connector_imports_little(h: Home) -> None:
    program = (
        "import sys; sys.argv = ['x']; from qmlx_lsp.cli import main; import qmlx_lsp.daemon.connector, json;"
        "print(json.dumps(sorted(m for m in sys.modules)))"
    )
    process = await h.start(program=("-c", program))
    out, _ = await process.communicate()
    loaded = set(json_line(out.decode()))
    own = {name for name in loaded if name.startswith("qmlx_lsp.")}
    assert own == {
        "qmlx_lsp.cli", "qmlx_lsp.cli.main", "qmlx_lsp.daemon", "qmlx_lsp.daemon.connector", "qmlx_lsp.daemon.socket",
        "qmlx_lsp.errors", "qmlx_lsp.paths",
    }  # fmt: skip
    heavy = {"asyncio", "argparse", "pygls", "lsprotocol", "mlx", "numpy", "orjson", "rich", "platformdirs"}
    assert not loaded & heavy
    assert sys.executable
