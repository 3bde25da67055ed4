"""Tools over the protocol: every way to ask for one, what is shown while it runs, what the conversation is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from qmlx_lsp.transcript.entry import Kind
from tests.support.bench import Bench, bench, quick
from tests.support.fake_editor import InMemory, Message, initialize_params
from tests.support.processes import Home, alive, home
from tests.support.waiting import until

COMMAND = "workspace/executeCommand"
RUN, CANCEL = "qmlx.runTool", "qmlx.cancel"
SHOW, PROGRESS, CREATE = "window/showMessage", "$/progress", "window/workDoneProgress/create"
ERROR, INFO = 1, 3
TOOLS = """
[tools.tests]
command = "echo one; echo two >&2; exit 1"
title = "the tests"
[tools.hang]
command = "echo $$; sleep 1000 & echo $!; wait"
[tools.missing]
command = ["no-such-program-here"]
"""
TOLD = "Result of echo one; echo two >&2; exit 1 (tool tests): exit code 1\n```\none\ntwo\n```\n"


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path) as made:
        (made.project / ".qmlx.toml").write_text(TOOLS)
        yield made


async def editor_of(b: Bench, client: str = "vscode-1.139", **changes: Any) -> InMemory:
    editor = InMemory(b.app)
    await editor.initialize(initialize_params(client, b.project, **changes))
    return editor


def plain(b: Bench) -> Message:
    """What an editor says that shows no progress."""
    return {**initialize_params("helix-25.07", b.project), "capabilities": {}}


async def editor_without_progress(b: Bench, **changes: Any) -> InMemory:
    editor = InMemory(b.app)
    await editor.initialize({**plain(b), **changes})
    return editor


def call(command: str, *arguments: Any, **more: Any) -> dict[str, Any]:
    return {"command": command, "arguments": list(arguments), **more}


async def shown(editor: InMemory, start: int = 0) -> tuple[int, str]:
    """The next message on the screen."""
    message = await editor.until(lambda m: m.get("method") == SHOW, start)
    return message["params"]["type"], message["params"]["message"]


async def progress(editor: InMemory, token: Any, kind: str) -> dict[str, Any]:
    def right(m: Message) -> bool:
        about = m.get("params")
        return m.get("method") == PROGRESS and about["token"] == token and about["value"]["kind"] == kind

    return (await editor.until(right))["params"]["value"]


async def created(editor: InMemory, start: int) -> str:
    message = await editor.until(lambda m: m.get("method") == CREATE, start)
    return message["params"]["token"]


async def streamed(editor: InMemory, job_id: str) -> list[dict[str, Any]]:
    await editor.until(lambda m: m.get("method") == "qmlx/stream" and _is(m, job_id) and m["params"]["done"])
    return [about for about in editor.of("qmlx/stream") if about["jobId"] == job_id]


def _is(message: Message, job_id: str) -> bool:
    return message["params"]["jobId"] == job_id


def contexts(b: Bench) -> list[str]:
    return [entry.text for entry in b.entries() if entry.kind is Kind.CONTEXT]


async def pids(editor: InMemory, job_id: str, count: int) -> list[int]:
    def printed() -> list[int]:
        found = [about["delta"] for about in editor.of("qmlx/stream") if about["jobId"] == job_id]
        return [int(word) for word in "".join(found).split()]

    await until(lambda: len(printed()) == count)
    return printed()


async def test_it_is_offered(b: Bench) -> None:
    editor = InMemory(b.app)
    offered = (await editor.initialize(initialize_params("helix-25.07", b.project)))["capabilities"]
    assert {RUN, CANCEL} <= set(offered["executeCommandProvider"]["commands"])
    assert "source" in offered["codeActionProvider"]["codeActionKinds"]
    assert offered["experimental"]["qmlx"]["toolResult"] is True
    assert await editor.leave()


async def test_by_every_kind_of_argument(b: Bench) -> None:
    editor = await editor_without_progress(b)
    file = b.project / "sub" / "a.py"
    ways: list[tuple[Any, ...]] = [
        ("tests",),
        ("tests", str(b.project)),
        ("tests", str(file)),
        ("tests", b.project.as_uri()),
        ("tests", file.as_uri()),
        ({"name": "tests"},),
        ({"name": "tests", "root": str(b.project)},),
        ({"name": "tests", "root": b.project.as_uri()},),
    ]
    for count, arguments in enumerate(ways, 1):
        start = len(editor.messages)
        number = editor.begin(COMMAND, call(RUN, *arguments))
        assert await editor.result(number) == {"jobId": str(number)}
        assert await shown(editor, start) == (INFO, f"tests: exit code 1, {len(TOLD)} tokens told")
        assert contexts(b) == [TOLD] * count
    (b.project / ".qmlx.toml").write_text("[tools.only]\ncommand = 'echo me'")
    for arguments in ((), ({},)):
        start = len(editor.messages)
        await editor.request(COMMAND, call(RUN, *arguments))
        assert (await shown(editor, start))[1].startswith("only: exit code 0, ")
    assert await editor.leave()


async def test_a_folder_that_is_no_workspace_folder(b: Bench) -> None:
    other = b.project.with_name("other")
    other.mkdir()
    (other / ".qmlx.toml").write_text("[tools.here]\ncommand = 'pwd'")
    editor = await editor_without_progress(b)
    await editor.request(COMMAND, call(RUN, "here", str(other)))
    assert (await shown(editor))[1].startswith("here: exit code 0, ")
    assert str(other) in b.entries(other)[-1].text
    assert b.entries() == []
    assert await editor.leave()


async def test_what_makes_no_sense_is_one_clear_line(b: Bench) -> None:
    editor = await editor_of(b)
    place = f"{b.project}/.qmlx.toml"
    for params, said in (
        (call(RUN), f"Say which tool is to be run; in {place} there are: tests, hang, missing."),
        (call(RUN, "fly"), f"There is no tool fly in {place}; there are: tests, hang, missing."),
        (call(RUN, 7), "[7] is no tool: give its name, its name and a path, or {name, root}."),
        (call(RUN, "tests", "a", "b"), "is no tool: give its name"),
        (call(RUN, {"name": 7}), "name is 7, but must be a text."),
        (call(RUN, {"name": "tests", "root": "nowhere"}), "root nowhere is not a folder"),
        (call(RUN, {"name": "tests", "workDoneToken": []}), "workDoneToken is [], but must be"),
        (call(RUN, "tests", "relative"), "'relative' is no path"),
        (call(RUN, "tests", "/none/such.py"), "is outside every workspace folder"),
        (call(CANCEL, 7), "[7] is no job: give nothing, a jobId, or {jobId}."),
    ):
        assert said in (await editor.refused(COMMAND, params))[1]
    for text, said in (("[tools", "is not valid TOML"), ("[tools.t]\ncommand = 1", "tools.t.command is 1")):
        (b.project / ".qmlx.toml").write_text(text)
        assert said in (await editor.refused(COMMAND, call(RUN, "t")))[1]
    (b.project / ".qmlx.toml").unlink()
    assert f"There are no tools in {place}" in (await editor.refused(COMMAND, call(RUN, "t")))[1]
    assert b.entries() == []
    assert await editor.leave()


async def test_what_is_streamed_and_shown_while_it_runs(b: Bench) -> None:
    (b.project / ".qmlx.toml").write_text(
        "[tools.slow]\ncommand = \"echo one; printf '\\\\033[1m  half \\\\033[0m'; "
        'while [ ! -e go ]; do sleep 0.01; done; echo; echo three"'
    )
    editor = await editor_of(b)
    job_id = (await editor.request(COMMAND, call(RUN, "slow", workDoneToken="mine")))["jobId"]
    begun = await progress(editor, "mine", "begin")
    assert (begun["title"], begun["message"], begun["cancellable"]) == ("qmlx", "slow: running", True)
    await editor.until(lambda m: m.get("method") == PROGRESS and m["params"]["value"].get("message") == "slow: half")
    (b.project / "go").touch()
    parts = await streamed(editor, job_id)
    assert [part["seq"] for part in parts] == list(range(len(parts)))
    assert "".join(part["delta"] for part in parts) == "one\n  half \nthree\n"
    assert [part["done"] for part in parts] == [False] * (len(parts) - 1) + [True]
    ended = await progress(editor, "mine", "end")
    assert ended["message"] == f"slow: exit code 0, {len(contexts(b)[0])} tokens told"
    assert await editor.leave()


async def test_a_progress_of_our_own_where_the_editor_has_them(b: Bench) -> None:
    await b.session()  # the model is loaded: its own progress is not in the way
    editor = await editor_of(b, "neovim-0.12")
    start = len(editor.messages)
    await editor.request(COMMAND, call(RUN, "tests"))
    token = await created(editor, start)
    assert (await progress(editor, token, "begin"))["message"].startswith("tests: ")
    assert (await progress(editor, token, "end"))["message"] == f"tests: exit code 1, {len(TOLD)} tokens told"
    assert await editor.leave()


@pytest.mark.parametrize("how", ["all", "text", "object", "token", "own token"])
async def test_cancelling(b: Bench, how: str) -> None:
    await b.session()
    editor = await editor_of(b)
    start = len(editor.messages)
    more = {"workDoneToken": "mine"} if how == "token" else {}
    job_id = (await editor.request(COMMAND, call(RUN, "hang", **more)))["jobId"]
    token = "mine" if how == "token" else await created(editor, start)
    started = await pids(editor, job_id, 2)
    if how in ("token", "own token"):
        editor.notify("window/workDoneProgress/cancel", {"token": token})
    else:
        assert await editor.request(COMMAND, call(CANCEL, "no such job")) == {"cancelled": []}
        arguments: dict[str, tuple[Any, ...]] = {"all": (), "text": (job_id,), "object": ({"jobId": job_id},)}
        assert await editor.request(COMMAND, call(CANCEL, *arguments[how])) == {"cancelled": [job_id]}
    assert (await progress(editor, token, "end"))["message"].startswith("hang: cancelled, ")
    assert [pid for pid in started if alive(pid)] == []
    assert contexts(b)[0].splitlines()[0].endswith("(tool hang): cancelled")
    assert await editor.request(COMMAND, call(CANCEL)) == {"cancelled": []}
    assert await editor.leave()


async def test_cancel_ends_a_question_too(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["abcdefgh"]) as b:
        editor = await editor_of(b)
        b.gate.hold("decode", 3)
        asked = editor.begin("qmlx/ask", {"text": "Q"})
        await b.gate.reached()
        assert await editor.request(COMMAND, call(CANCEL, str(asked))) == {"cancelled": [str(asked)]}
        b.gate.open()
        assert (await editor.result(asked))["finish"] == "cancelled"
        assert await editor.leave()


async def test_a_command_can_be_cancelled_before_it_is_acknowledged(b: Bench) -> None:
    """Both are sent at once, as by a hasty user or a script."""
    (b.project / "a.py").write_text("x = 1\n")
    editor = await editor_of(b)
    asked = editor.begin(COMMAND, call("qmlx.explain", {"uri": (b.project / "a.py").as_uri(), "workDoneToken": "e"}))
    tool = editor.begin(COMMAND, call(RUN, "hang", workDoneToken="t"))
    assert await editor.request(COMMAND, call(CANCEL)) == {"cancelled": [str(asked), str(tool)]}
    assert (await progress(editor, "e", "end"))["message"] == "explain: cancelled"
    assert (await progress(editor, "t", "end"))["message"] == "hang: cancelled, nothing told"
    # One that is refused is none.
    await editor.refused(COMMAND, call("qmlx.explain", {"uri": (b.project / ".env").as_uri()}))
    await editor.refused(COMMAND, call(RUN, "no such tool"))
    assert await editor.request(COMMAND, call(CANCEL)) == {"cancelled": []}
    assert await editor.leave()


async def test_what_cannot_be_started_is_a_message(b: Bench) -> None:
    editor = await editor_of(b)
    await editor.request(COMMAND, call(RUN, "missing", workDoneToken="mine"))
    said = "missing: not run: no-such-program-here was not found: install it, or change command."
    assert await shown(editor) == (ERROR, said)
    assert (await progress(editor, "mine", "end"))["message"] == said
    assert b.entries() == []
    assert await editor.leave()


async def test_one_at_a_time(b: Bench) -> None:
    editor = await editor_of(b)
    job_id = (await editor.request(COMMAND, call(RUN, "hang", workDoneToken=1)))["jobId"]
    assert "hang is running already" in (await editor.refused(COMMAND, call(RUN, "hang")))[1]
    await editor.request(COMMAND, call(RUN, "tests", workDoneToken=2))
    assert (await progress(editor, 2, "end"))["message"].startswith("tests: exit code 1, ")
    assert await editor.request(COMMAND, call(CANCEL)) == {"cancelled": [job_id]}
    await progress(editor, 1, "end")
    assert await editor.leave()


async def test_a_connection_that_breaks_takes_its_tool_with_it(b: Bench) -> None:
    editor, other = await editor_of(b), await editor_of(b)
    job_id = (await editor.request(COMMAND, call(RUN, "hang")))["jobId"]
    started = await pids(editor, job_id, 2)
    assert all(map(alive, started))
    await editor.drop()
    assert [pid for pid in started if alive(pid)] == []
    await other.request(COMMAND, call(RUN, "tests", workDoneToken="t"))
    await progress(other, "t", "end")
    assert contexts(b) == [TOLD]
    assert await other.leave()


async def test_one_that_breaks_before_it_has_accepted_a_progress(b: Bench) -> None:
    editor = InMemory(b.app, answers=False)
    await editor.initialize(initialize_params("vscode-1.139", b.project))
    job_id = (await editor.request(COMMAND, call(RUN, "hang")))["jobId"]
    started = await pids(editor, job_id, 2)
    await editor.drop()
    assert [pid for pid in started if alive(pid)] == []


async def test_leaving_while_a_tool_runs(b: Bench) -> None:
    editor = await editor_of(b)
    job_id = (await editor.request(COMMAND, call(RUN, "hang", workDoneToken="t")))["jobId"]
    started = await pids(editor, job_id, 2)
    assert await editor.leave()
    assert [pid for pid in started if alive(pid)] == []


# --- trust ---------------------------------------------------------------------------------------------------------

UNTRUSTED = "This workspace is not trusted, so nothing is run: trust it in the editor, then run tests again."


@pytest.mark.parametrize(
    ("options", "trusted"),
    [
        (None, True),
        ({"other": 1}, True),
        ({"trusted": None}, True),
        ({"trusted": True}, True),
        ({"qmlx": {"trusted": True}}, True),
        ({"trusted": False}, False),
        ({"qmlx": {"trusted": False}}, False),
        ({"trusted": True, "qmlx": {"trusted": False}}, False),
        ({"trusted": "yes"}, False),
    ],
)
async def test_an_untrusted_workspace_runs_nothing(b: Bench, options: Any, trusted: bool) -> None:
    (b.project / ".qmlx.toml").write_text("[tools.tests]\ncommand = 'echo ran > ran'")
    editor = await editor_of(b, initializationOptions=options)
    asked = {
        "textDocument": {"uri": (b.project / "a.py").as_uri()},
        "range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}},
        "context": {"diagnostics": []},
    }
    actions = await editor.request("textDocument/codeAction", asked)
    if trusted:
        await editor.request(COMMAND, call(RUN, "tests", workDoneToken="t"))
        await progress(editor, "t", "end")
        assert len(actions) == 1
    else:
        assert (await editor.refused(COMMAND, call(RUN, "tests")))[1] == UNTRUSTED
        assert "then run the tool again" in (await editor.refused(COMMAND, call(RUN)))[1]
        assert actions == []
        given = {"root": str(b.project), "name": "tests", "output": "x"}
        assert (await editor.request("qmlx/toolResult", given))["tokens"] > 0
    assert (b.project / "ran").exists() is trusted
    assert await editor.leave()


async def test_turned_off_by_a_setting(tmp_path: Path) -> None:
    async with bench(tmp_path, quick(tools={"enabled": False})) as b:
        (b.project / ".qmlx.toml").write_text(TOOLS)
        editor = await editor_of(b)
        assert "turned off by tools.enabled" in (await editor.refused(COMMAND, call(RUN, "tests")))[1]
        assert await actions_at(editor, b.project / "a.py") == []
        assert await editor.leave()


# --- code actions --------------------------------------------------------------------------------------------------


async def actions_at(editor: InMemory, file: Path, uri: str | None = None, **context: Any) -> Any:
    places = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}
    document = {"uri": uri or file.as_uri()}
    params = {"textDocument": document, "range": places, "context": {"diagnostics": [], **context}}
    return await editor.request("textDocument/codeAction", params)


async def test_code_actions_are_commands_that_run(b: Bench) -> None:
    editor = await editor_of(b, "helix-25.07")
    file = b.project / "a.py"
    offered = await actions_at(editor, file)
    titles = ["Run the tests and tell qmlx", "Run hang and tell qmlx", "Run missing and tell qmlx"]
    assert [action["title"] for action in offered] == titles
    assert offered[0] == {
        "title": titles[0],
        "command": RUN,
        "arguments": [{"name": "tests", "root": str(b.project)}],
    }
    await editor.request(
        COMMAND, {"command": offered[0]["command"], "arguments": offered[0]["arguments"], "workDoneToken": "t"}
    )
    await progress(editor, "t", "end")
    assert contexts(b) == [TOLD]
    assert b.gate.passes == []  # no model in it
    for only, count in (
        ([], 3), (["source"], 3), ([""], 3), (["quickfix", "source.runTool"], 3),
        (["quickfix"], 0), (["source.organizeImports"], 0), (["sour"], 0), (["refactor"], 0),
    ):  # fmt: skip
        assert len(await actions_at(editor, file, only=only)) == count, only
    assert len(await actions_at(editor, file, triggerKind=1)) == 3
    assert await actions_at(editor, file, triggerKind=2) == []
    assert await actions_at(editor, b.project.with_name("outside.py")) == []
    assert await actions_at(editor, file, "untitled:Untitled-1") == []
    (b.project / ".qmlx.toml").write_text("[tools")
    assert await actions_at(editor, file) == []
    (b.project / ".qmlx.toml").unlink()
    assert await actions_at(editor, file) == []
    assert await editor.leave()


# --- qmlx/toolResult -----------------------------------------------------------------------------------------------


async def test_a_result_from_the_editor(b: Bench) -> None:
    editor = await editor_of(b)
    full = {"root": b.project.as_uri(), "name": "lint", "command": "ruff check", "exitCode": 1}
    told = await editor.request("qmlx/toolResult", {**full, "output": "\x1b[31mE501\x1b[0m\r\n"})
    text = "Result of ruff check (tool lint): exit code 1\n```\nE501\n```\n"
    assert told == {"tokens": len(text)}
    number = editor.begin("qmlx/toolResult", {"name": "lint\n", "output": "a?" + "x" * 20_000 + "z\n"})
    await editor.result(number)
    assert contexts(b)[0] == text
    large = contexts(b)[1]
    assert large.startswith("Result of tool lint:\n```\na?xxx")
    assert large.endswith("xxxz\n```\n")
    assert len(large.encode()) < 17 << 10
    await editor.request("qmlx/toolResult", {"name": "lint", "exitCode": -11, "output": ""})
    assert contexts(b)[2] == "Result of tool lint: ended by SIGSEGV, no output.\n"
    half = {"name": "lint", "output": "half a pair: \ud83d", "command": "\udc00"}
    body = json.dumps({"jsonrpc": "2.0", "id": "half", "method": "qmlx/toolResult", "params": half}).encode()
    editor._asked.append("half")
    editor.send_bytes(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    await editor.result("half")
    assert contexts(b)[3] == "Result of \ufffd (tool lint):\n```\nhalf a pair: \ufffd\n```\n"
    for params, said in (
        (["x"], "The parameters of qmlx/toolResult must be an object."),
        ({"output": "x"}, "name is missing"),
        ({"name": " ", "output": "x"}, "name is missing"),
        ({"name": "\x07", "output": "x"}, "name shows nothing"),
        ({"name": "a"}, "output is missing"),
        ({"name": "a", "output": ["x"]}, "output is ['x'], but must be a text."),
        ({"name": "a", "output": "x", "exitCode": "1"}, "exitCode is '1', but must be a whole number."),
        ({"name": "a", "output": "x", "command": 1}, "command is 1, but must be a text."),
        ({"name": "a", "output": "x", "root": "nowhere"}, "root nowhere is not a folder"),
    ):
        assert said in (await editor.refused("qmlx/toolResult", params))[1]
    assert len(contexts(b)) == 4
    assert await editor.leave()


async def test_a_result_waits_for_the_reply_and_is_known_to_the_next_question(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["abcdefgh", "Two."]) as b:
        editor = await editor_of(b)
        b.gate.hold("decode", 3)
        asked = editor.begin("qmlx/ask", {"text": "Q"})
        await b.gate.reached()
        told = editor.begin("qmlx/toolResult", {"name": "t", "output": "boom"})
        session = await b.session()
        await until(lambda: session.lock._waiters)
        assert contexts(b) == []
        b.gate.open()
        assert (await editor.result(asked))["text"] == "abcdefgh"
        await editor.result(told)
        text = "Result of tool t:\n```\nboom\n```\n"
        answer = await editor.request("qmlx/ask", {"text": "And?"})
        assert [entry.text for entry in b.entries()][1:] == ["Q", "abcdefgh", text, "And?", "Two."]
        assert answer["usage"]["plan"] == "live"
        assert answer["usage"]["context"] == answer["usage"]["live"] + answer["usage"]["prefilled"]
        read = bytes(token for token in await b.live_ids() or () if token < 256).decode()
        assert f"{text}And?" in read
        await b.check()
        assert await editor.leave()


# --- real processes ------------------------------------------------------------------------------------------------


async def run_and_leave(h: Home, *arguments: str) -> str:
    """Run a tool behind a real connector; every byte on its stdout must be a frame. Returns what was told."""
    (h.project / ".qmlx.toml").write_text(
        "[tools.loud]\ncommand = 'echo CANARY-1; echo CANARY-2 >&2; echo Content-Length: 3'"
    )
    editor = await h.connect(*arguments)
    await editor.request("qmlx/ask", {"text": "Hello"})
    await editor.request(COMMAND, call(RUN, "loud", workDoneToken="t"))
    async with asyncio.timeout(20.0):
        await progress(editor, "t", "end")  # type: ignore[arg-type]
    assert await editor.leave() == 0
    return editor.raw.decode()


@pytest.mark.slow
async def test_what_a_child_prints_is_in_no_stream_but_ours() -> None:
    for arguments in ((), ("--no-daemon",)):
        async with home() as h:
            await run_and_leave(h, *arguments)
            if not arguments:
                assert (await h.run("daemon", "stop"))[0] == 0
            code, out, _ = await h.run("log", "--json")
            assert code == 0
            assert '"kind":"context"' in out.replace(" ", "")
            assert "CANARY-1\\nCANARY-2\\nContent-Length: 3" in out
            logged = "".join(file.read_text() for file in h.paths.log.glob("*"))
            assert "CANARY" not in logged
