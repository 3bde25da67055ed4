"""``workspace/executeCommand``: what is offered, what arguments may be, what is said when they make no sense."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bench import Bench, bench
from tests.support.fake_editor import InMemory, initialize_params

CANCELLED = -32800
COMMAND = "workspace/executeCommand"
NEW, FORGET = "qmlx.newConversation", "qmlx.forgetConversation"


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path) as made:
        yield made


async def editor_of(b: Bench, client: str = "vscode-1.139", **changes: Any) -> InMemory:
    editor = InMemory(b.app)
    await editor.initialize(initialize_params(client, b.project, **changes))
    return editor


def call(command: str, *arguments: Any) -> dict[str, Any]:
    return {"command": command, "arguments": list(arguments)}


async def test_commands_are_offered(b: Bench) -> None:
    editor = InMemory(b.app)
    offered = await editor.initialize(initialize_params("helix-25.07", b.project))
    assert {NEW, FORGET} <= set(offered["capabilities"]["executeCommandProvider"]["commands"])
    assert await editor.leave()


async def test_new_conversation_by_every_kind_of_argument(b: Bench) -> None:
    editor = await editor_of(b)
    uri = b.project.as_uri()
    ways: list[tuple[Any, ...]] = [
        (),
        (str(b.project),),
        (uri,),
        ({"root": str(b.project)},),
        ({"root": uri},),
        ({},),
    ]
    for epoch, arguments in enumerate(ways, 1):
        await editor.request("qmlx/ask", {"text": f"Question {epoch}"})
        begun = await editor.request(COMMAND, call(NEW, *arguments))
        assert begun == {"root": str(b.project), "epoch": epoch}
    assert await editor.request(COMMAND, {"command": NEW}) == {"root": str(b.project), "epoch": len(ways)}
    found = await editor.request("qmlx/conversation", {"limit": 2})
    assert [(turn["epoch"], turn["question"]) for turn in found["turns"]] == [(4, "Question 5"), (5, "Question 6")]
    assert found["epoch"] == 6
    assert found["totals"] == {"turns": 6, "entries": 0, "tokens": 0, "epochs": 7}
    assert await editor.leave()


async def test_forget_by_name_only_also_a_folder_that_is_gone(b: Bench) -> None:
    editor = await editor_of(b)
    await editor.request("qmlx/ask", {"text": "A"})
    _, said = await editor.refused(COMMAND, call(FORGET))
    assert "{root}" in said
    b.project.rename(b.project.with_name("moved"))
    told = await editor.request(COMMAND, call(FORGET, {"root": str(b.project)}))
    assert (told["root"], told["turns"], told["entries"]) == (str(b.project), 1, 3)
    assert (await editor.request("qmlx/status"))["conversations"] == []
    assert await editor.leave()


async def test_what_makes_no_sense_is_one_clear_line(b: Bench) -> None:
    editor = await editor_of(b)
    for params, said in (
        (call("qmlx.fly"), "There is no command qmlx.fly; there are: qmlx.newConversation, "),
        (call(NEW, 7), "7 is no root"),
        (call(NEW, {"root": ["x"]}), "['x'] is no root"),
        (call(NEW, "relative"), "'relative' is no root"),
        (call(NEW, "http://example.org/x"), "is no root"),
        (call(NEW, str(b.project), "more"), "'more' is no root"),
        (call(FORGET, str(b.project)), "There is no conversation for "),
    ):
        assert said in (await editor.refused(COMMAND, params))[1]
    assert await editor.leave()
    lonely = await editor_of(b, workspaceFolders=None, rootUri=None, rootPath=None)
    assert "No workspace folder" in (await lonely.refused(COMMAND, call(NEW)))[1]
    assert await lonely.leave()


async def test_a_cancelled_command_is_answered_once_and_done_all_the_same(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["abcdefgh", "new"]) as b:
        editor = await editor_of(b)
        b.gate.hold("decode", 3)
        asked = editor.begin("qmlx/ask", {"text": "Q"})
        await b.gate.reached()
        number = editor.begin(COMMAND, call(NEW))
        editor.cancel(number)
        assert (await editor.error(number))[0] == CANCELLED
        b.gate.open()
        assert (await editor.result(asked))["text"] == "abcdefgh"
        anew = await asyncio.wait_for(editor.request(COMMAND, call(NEW)), 20)
        assert anew["epoch"] == 1
        assert (await editor.request("qmlx/ask", {"text": "R"}))["text"] == "new"
        assert [entry.text for entry in b.entries()][1:] == ["R", "new"]
        assert await editor.leave()
