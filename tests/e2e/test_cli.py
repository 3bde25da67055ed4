"""The command line against a real daemon: what it prints, where, and with which exit code."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator

import pytest

from qmlx_lsp import __version__
from tests.e2e.test_daemon_ends import log_of, slow_daemon
from tests.support.bench import text_of
from tests.support.processes import Home, home, json_line


@pytest.fixture
async def h() -> AsyncIterator[Home]:
    async with home() as made:
        yield made


async def test_without_a_daemon(h: Home) -> None:
    assert await h.run("--version") == (0, f"qmlx-lsp {__version__}\n", "")
    code, out, _ = await h.run("daemon", "status", "--json")
    assert (code, json_line(out)) == (0, {"running": False})
    code, out, err = await h.run("status")
    assert (code, out, err) == (0, "No daemon is running; an editor or `qmlx-lsp ask` starts one.\n", "")
    code, out, err = await h.run("log")
    assert (code, out) == (2, "")
    assert err.startswith("qmlx-lsp: There is no conversation yet (")
    assert not h.home.exists()  # reading makes nothing


@pytest.mark.slow
async def test_ask_and_read_what_was_said(h: Home) -> None:
    (h.project / "a.py").write_text("".join(f"line {n}\n" for n in range(1, 60)))
    code, out, err = await h.run("ask", "Why?", "a.py:10-12")
    assert code == 0
    assert out.startswith("I have read ")
    assert err.splitlines()[-1].startswith("[complete] 0 tokens live, 0 restored, ")
    code, out, _ = await h.run("ask", "--json", "--max-tokens", "3", "-", given=b"From stdin\n")
    answer = json_line(out)
    assert (code, answer["finish"], answer["text"], answer["usage"]["plan"]) == (0, "length", "I h", "live")
    entries = await log_of(h)
    assert [e["entry"] for e in entries] == list(range(1, len(entries) + 1))
    assert [e["kind"] for e in entries] == [
        "system", "context", "context", "question", "assistant", "question", "assistant",
    ]  # fmt: skip
    assert "Lines 10-12 of a.py:\n```python\nline 10\nline 11\nline 12\n```\n" in str(entries[2]["text"])
    ends = [0]
    for entry in entries:
        assert entry["span"] == [ends[-1], ends[-1] + len(entry["ids"])]  # type: ignore[arg-type]
        ends.append(entry["span"][1])  # type: ignore[index]
    assert text_of(entries[-1]["ids"]).endswith("assistant\nI h")  # type: ignore[arg-type]
    assert [e["finish"] for e in entries if e["kind"] == "assistant"] == ["complete", "length"]
    code, out, _ = await h.run("log", "--limit", "1", "--root", "../project/.")
    assert (code, out.splitlines()[1]) == (0, "I h")
    assert "ids" not in json.loads((await h.run("log", "--json"))[1].splitlines()[0])
    code, out, _ = await h.run("daemon", "status", "--json")
    status = json_line(out)
    assert (code, status["running"], status["pid"], status["version"]) == (0, True, h.pid, __version__)
    assert (status["model"], status["model_state"], status["clients"]) == ("scripted", "ready", 0)
    assert [c["root"] for c in status["conversations"]] == [str(h.project)]
    code, out, _ = await h.run("status")
    assert f"project  {h.project}: " in out


@pytest.mark.slow
async def test_errors_are_one_line_and_exit_with_two(h: Home) -> None:
    for arguments, said in {
        ("ask", "  "): "The question is empty",
        ("ask", "Q", "none.py"): "There is no file none.py",
        ("ask", "Q", "none.py:9-3"): "lines count from 1",
        ("ask", "Q", "/etc/hostname"): "outside",
        ("ask", "Q", "--root", "/no/such"): "/no/such is no folder",
        ("ask", "Q", "--max-tokens", "0"): "maxTokens is 0",
        ("log", "--root", "/"): "There is no conversation",
        ("log", "--limit", "-1"): "--limit is -1",
        ("model", "show", "/no/such"): "/no/such",
    }.items():
        code, out, err = await h.run(*arguments)
        assert code == 2, (arguments, err)
        assert out == ""
        last = err.splitlines()[-1]
        assert said in last
        assert last.startswith("qmlx-lsp: ")
        assert "Traceback" not in err
        assert all(line.endswith("…") for line in err.splitlines()[:-1])


async def test_settings_errors_exit_with_two(h: Home) -> None:
    h.environ["QMLX_TEMPERATURE"] = "hot"
    code, out, err = await h.run("ask", "Q")
    assert (code, out) == (2, "")
    assert err == "qmlx-lsp: QMLX_TEMPERATURE is 'hot', but must be a number (0 always takes the likeliest token).\n"


@pytest.mark.slow
async def test_ctrl_c_cancels_and_the_partial_reply_is_kept(h: Home) -> None:
    await slow_daemon(h)
    process = await h.start("ask", "Q")
    shown = await asyncio.wait_for(process.stdout.readexactly(3), 20)
    process.send_signal(signal.SIGINT)
    rest, err = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 130
    assert b"Traceback" not in err
    last = (await log_of(h))[-1]
    assert last["finish"] == "cancelled"
    assert str(last["text"]) == (shown + rest).decode()


@pytest.mark.slow
async def test_model_show_of_a_model_that_is_not_there(h: Home) -> None:
    code, out, _ = await h.run("model", "show", "embedded", "--json")
    shown = json_line(out)
    assert (code, shown["name"], shown["installed"]) == (0, "embedded", False)
    assert shown["remedy"] == "qmlx-lsp model pull embedded"
