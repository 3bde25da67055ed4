"""``qmlx-lsp log`` beside a real daemon and without one: all epochs, following, beginning anew, forgetting."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from qmlx_lsp.storage.history import History
from qmlx_lsp.transcript.entry import Finish
from tests.e2e.test_daemon_ends import log_of, slow_daemon
from tests.support.fake_editor import initialize_params
from tests.support.processes import Editor, Home, home, json_line
from tests.support.waiting import until
from tests.unit.storage.test_migration import VERSION_1, _make, _version

CANARY = "canary-7f3a"
WAIT_S = 20.0


@pytest.fixture
async def h() -> AsyncIterator[Home]:
    async with home() as made:
        yield made


async def ask(h: Home, text: str) -> dict[str, Any]:
    code, out, err = await h.run("ask", "--json", text)
    assert code == 0, err
    answer: dict[str, Any] = json_line(out)
    return answer


async def one(h: Home, *arguments: str) -> Any:
    """The one JSON object of a ``log`` command."""
    code, out, err = await h.run("log", *arguments, "--json")
    assert code == 0, err
    return json_line(out)


@pytest.mark.slow
async def test_options_that_do_not_go_together_are_one_line(h: Home) -> None:
    for arguments, said in {
        ("--export", "x.md", "--json"): "--json does not go with --export.",
        ("--export", "x.md", "--tokens"): "--tokens does not go with --export.",
        ("--new", "--yes"): "--yes does not go with --new.",
        ("--forget", "--epoch", "1"): "--epoch does not go with --forget.",
        ("--forget", "--yes", "--epoch", "0"): "--epoch does not go with --forget.",
        ("--new", "--limit", "0"): "--limit does not go with --new.",
        ("--force",): "--force does not go with showing the log.",
        ("--follow", "--dry-run"): "--dry-run does not go with --follow.",
        ("--epoch", "-1"): "--epoch is -1, but must be 0 or more.",
        ("--new",): "There is no conversation yet (",
        ("--forget", "--yes"): "There is no conversation for ",
    }.items():
        code, out, err = await h.run("log", *arguments)
        assert (code, out) == (2, "")
        assert err.startswith(f"qmlx-lsp: {said}")
        assert err.count("\n") == 1
    assert not h.home.exists()


@pytest.mark.slow
@pytest.mark.parametrize("daemon", [True, False], ids=["with a daemon", "without one"])
async def test_all_epochs_are_shown_and_exported(h: Home, daemon: bool) -> None:
    await ask(h, "First?")
    if not daemon:
        assert (await h.run("daemon", "stop"))[0] == 0
    before = await log_of(h)
    assert await one(h, "--new") == {"root": str(h.project), "epoch": 1}
    assert await one(h, "--new") == {"root": str(h.project), "epoch": 1}  # an empty one is not followed by another
    code, out, _ = await h.run("log", "--new", "--root", "/")
    assert (code, out) == (0, "The conversation of / has not begun yet.\n")
    assert (h.pid is not None) == daemon
    assert await log_of(h) == before
    usage = (await ask(h, "Second?"))["usage"]
    assert usage["live"] == 0
    entries = await log_of(h)
    assert entries[: len(before)] == before
    assert [e["entry"] for e in entries] == list(range(1, len(entries) + 1))
    assert [(e["epoch"], e["kind"]) for e in entries] == [
        (epoch, kind) for epoch in (0, 1) for kind in ("system", "question", "assistant")
    ]
    assert not any(e["carried"] for e in entries)
    turns = [e["turn"] for e in entries if e["kind"] == "assistant"]
    assert turns == sorted(set(turns))
    assert ["turn" in e for e in entries] == [e["kind"] == "assistant" for e in entries]
    code, out, _ = await h.run("log", "--epoch", "0", "--json", "--tokens")
    assert [json.loads(line) for line in out.splitlines()] == before
    code, out, err = await h.run("log", "--epoch", "2")
    assert (code, out, err) == (2, "", f"qmlx-lsp: There is no epoch 2 of {h.project}: they go from 0 to 1.\n")
    code, out, _ = await h.run("log")
    headings = [line for line in out.splitlines() if line.startswith("══")]
    assert [line.split(" · ")[0] for line in headings] == ["══ epoch 0", "══ epoch 1"]
    assert headings[1].endswith(" · begun anew")
    code, out, err = await h.run("log", "--export", "log.md")
    assert (code, out) == (0, "")
    assert err == f"qmlx-lsp: wrote 6 entries to {h.project / 'log.md'}.\n"
    page = (h.project / "log.md").read_text()
    assert page.index("> First?") < page.index("## Epoch 1") < page.index("> Second?")
    code, out, err = await h.run("log", "--export", "log.md")
    assert (code, out) == (2, "")
    assert "--force" in err
    assert (await h.run("log", "--export", "-", "--epoch", "1"))[1].count("###") == 2


@pytest.mark.slow
async def test_an_old_log_can_be_shown_without_a_daemon(h: Home) -> None:
    h.paths.conversations.parent.mkdir(parents=True)
    _make(h.paths.conversations, VERSION_1)
    code, out, err = await h.run("log", "--json", "--root", "/project")
    assert (code, err) == (0, "")
    assert [json.loads(line)["text"] for line in out.splitlines()] == [
        "You help.", "x = 1\n", "Why?", "Because \0.", "You help.", "And?", "ha",
    ]  # fmt: skip
    assert _version(h.paths.conversations) == 2


# --- following ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_follow_prints_a_reply_as_it_is_written_until_ctrl_c(h: Home) -> None:
    following = await h.start("log", "--follow")
    daemon = await slow_daemon(h)
    editor = await h.connect()
    number = editor.begin("qmlx/ask", {"text": "Q"})
    read = b""
    while b"I hav" not in read:
        read += await asyncio.wait_for(following.stdout.read(1 << 12), WAIT_S)
    assert number not in [m["id"] for m in editor.messages if "method" not in m]  # it is being written still
    text = (await editor.result(number))["text"]
    assert (await editor.request("workspace/executeCommand", {"command": "qmlx.newConversation"}))["epoch"] == 1
    await editor.request("qmlx/ask", {"text": "R", "maxTokens": 2})
    while b"(length)" not in read:
        read += await asyncio.wait_for(following.stdout.read(1 << 12), WAIT_S)
    following.send_signal(signal.SIGINT)
    rest, err = await asyncio.wait_for(following.communicate(), WAIT_S)
    assert (following.returncode, err) == (130, b"")
    lines = (read + rest).decode().splitlines()
    assert text in lines
    assert next(line for line in lines if line.startswith("══")).startswith("══ epoch 1 · began ")
    assert sum(line.startswith("── ") for line in lines) == 6
    assert await editor.leave() == 0
    daemon.terminate()


@pytest.mark.slow
async def test_follow_ends_when_nobody_reads_any_more(h: Home) -> None:
    await ask(h, "Q")
    assert (await h.run("daemon", "stop"))[0] == 0
    following = await h.start("log", "--follow", "--json")
    line = await asyncio.wait_for(following.stdout.readline(), WAIT_S)
    assert json.loads(line)["entry"] == 1
    following.stdout._transport.close()
    assert await asyncio.wait_for(following.wait(), WAIT_S) == 0  # though nothing new was said
    assert await following.stderr.read() == b""


# --- forgetting -----------------------------------------------------------------------------------------------------


def holding(h: Home) -> list[str]:
    """Files of the home that hold the canary, as text or as ids (the scripted model's ids are its bytes)."""
    ids = b"".join(byte.to_bytes(4, "little") for byte in CANARY.encode())
    files = [file for file in h.home.rglob("*") if file.is_file()]
    return [file.name for file in files if any(needle in file.read_bytes() for needle in (CANARY.encode(), ids))]


@pytest.mark.slow
@pytest.mark.parametrize("daemon", [True, False], ids=["with a daemon", "without one"])
async def test_forgotten_is_gone_from_every_file(h: Home, daemon: bool) -> None:
    await ask(h, f"Remember {CANARY}?")
    await one(h, "--new")
    await ask(h, f"Again {CANARY}?")
    editor = await h.connect()
    shown = await editor.request("workspace/executeCommand", {"command": "qmlx.showConversation"})
    assert Path(shown["file"]).name in holding(h)
    editor.of("window/showMessage")
    assert await editor.leave() == 0
    if not daemon:
        assert (await h.run("daemon", "stop"))[0] == 0
    entries = await log_of(h)
    assert len(holding(h)) > 1
    code, out, err = await h.run("log", "--forget")
    assert (code, out) == (2, "")
    assert "--yes" in err
    planned = await one(h, "--forget", "--dry-run")
    assert (await log_of(h), planned["dry_run"]) == (entries, True)
    gone = await one(h, "--forget", "--yes")
    assert holding(h) == []
    assert gone == {**planned, "wiped": True, "dry_run": False}
    assert (gone["root"], gone["epochs"], gone["turns"]) == (str(h.project), 2, 2)
    assert gone["entries"] == len(entries)
    assert gone["tokens"] == sum(len(e["ids"]) for e in entries)  # type: ignore[arg-type]
    assert gone["files"] > 0
    assert (h.pid is not None) == daemon
    for arguments in ((), ("--forget", "--yes")):
        code, out, err = await h.run("log", *arguments)
        assert (code, out) == (2, "")
        assert err.startswith(f"qmlx-lsp: There is no conversation for {h.project}")
    answer = await ask(h, "Begin?")
    assert answer["usage"]["restored"] == 0
    assert [e["epoch"] for e in await log_of(h)] == [0, 0, 0]


@pytest.mark.slow
async def test_forget_says_what_it_does(h: Home) -> None:
    await ask(h, "Q")
    code, out, err = await h.run("log", "--forget", "--yes")
    assert (code, err) == (0, "")
    assert out.startswith(f"Deleted the conversation of {h.project}: 3 entries, 1 turns, ")
    code, out, _ = await h.run("cache", "forget", "--all", "--yes")
    assert code == 0
    assert "`qmlx-lsp log --forget` deletes what was said as well" in " ".join(out.split())


# --- one writer, and kill -9 ----------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_second_daemon_on_the_same_data_is_refused_politely(h: Home) -> None:
    await ask(h, "Q")
    pid = h.pid
    other = h.base / "other"
    other.mkdir()
    (other / "data").symlink_to(h.paths.data)
    before = await log_of(h)
    h.environ["QMLX_HOME"] = str(other)
    said = f"is in use by another process (pid {pid}, "
    code, out, err = await h.run("daemon", "run")
    assert (code, out) == (2, "")
    assert said in err.splitlines()[-1]
    assert "Traceback" not in err
    code, out, err = await h.run("ask", "R")
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    for arguments in (("--new",), ("--forget", "--yes")):
        code, out, err = await h.run("log", *arguments)
        assert (code, out) == (2, "")
        assert said in err
    refused = Editor(await h.start("--no-daemon"))
    number = refused.begin("initialize", initialize_params("neovim-0.11", h.project))
    assert said in (await refused.error(number))[1]
    assert await refused.ended() == 2
    assert said.encode() in await refused.process.stderr.read()  # type: ignore[union-attr]
    assert await log_of(h) == before  # reading is always possible
    h.environ["QMLX_HOME"] = str(h.home)
    assert (await ask(h, "R"))["usage"]["plan"] == "live"


@pytest.mark.slow
async def test_what_was_journalled_of_a_reply_survives_kill_9_to_the_id(h: Home) -> None:
    daemon = await slow_daemon(h)
    editor = await h.connect()
    await editor.request("qmlx/ask", {"text": "First", "maxTokens": 1})
    start = len(editor.messages)
    editor.begin("qmlx/ask", {"text": "Second"})
    await until(lambda: len("".join(s["delta"] for s in editor.of("qmlx/stream", start))) >= 4)
    with closing(History(h.paths.conversations)) as history:
        journalled = history.entries(history.find(str(h.project)) or 0)[-1]
    daemon.kill()
    await editor.ended()
    await daemon.wait()
    assert journalled.entry.finish is Finish.OPEN
    again = await h.connect()
    entries = await log_of(h)
    reply: dict[str, Any] = entries[-1]
    assert (reply["kind"], reply["finish"], reply["turn"]) == ("assistant", "cancelled", journalled.turn)
    assert tuple(reply["ids"][: len(journalled.entry.ids)]) == journalled.entry.ids
    header = len(reply["ids"]) - len(reply["text"])  # the scripted model's ids are its bytes
    whole = f"I have read {reply['span'][0] + header} tokens, digest "
    assert bytes(reply["ids"][header:]).decode() == reply["text"]
    assert whole.startswith(reply["text"])
    assert 0 < len(reply["text"]) < len(whole)
    usage = (await again.request("qmlx/ask", {"text": "Third", "maxTokens": 1}))["usage"]
    later = await log_of(h)
    last: dict[str, Any] = later[-1]
    assert later[: len(entries)] == entries
    assert usage["context"] == last["span"][1] - 1  # with every id of the reply that was cut off
    assert (usage["plan"], usage["live"]) == ("restore", 0)
    assert usage["restored"] <= reply["span"][0]
    assert usage["restored"] + usage["prefilled"] == usage["context"]
    assert await again.leave() == 0
