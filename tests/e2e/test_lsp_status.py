"""``qmlx/didChangeStatus``: what every editor's status line shows of the turns in its folders, whoever asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bench import Bench, bench
from tests.support.fake_editor import InMemory, initialize_params
from tests.support.waiting import until


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path, replies=["abcdefghij", "second", "third"]) as made:
        await made.app.registry.loader.ready()
        yield made


async def editor_of(b: Bench, root: Path | None = None) -> InMemory:
    editor = InMemory(b.app)
    await editor.initialize(initialize_params("vscode-1.139", root or b.project))
    return editor


def told(editor: InMemory) -> list[tuple[str, bool, str]]:
    return [(s["kind"], s["busy"], s["message"]) for s in editor.of("qmlx/didChangeStatus")]


async def idle_again(editor: InMemory, turns: int) -> list[tuple[str, bool, str]]:
    """All that has been told, once so many turns have ended."""
    await until(lambda: [busy for _, busy, _ in told(editor)].count(True) == turns and not told(editor)[-1][1])
    return told(editor)


def kept(usage: dict[str, Any]) -> str:
    return f"{usage['prefilled']:,} tokens read, {usage['live'] + usage['restored']:,} kept"


async def test_every_editor_of_a_folder_hears_of_a_turn_and_others_do_not(b: Bench, tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    asking, looking, elsewhere = await editor_of(b), await editor_of(b), await editor_of(b, tmp_path / "else")
    result = await asking.request("qmlx/ask", {"text": "Q"})
    ready = ("Normal", False, "scripted is ready")
    for editor in (asking, looking):
        assert await idle_again(editor, 1) == [
            ready, ("Busy", True, "answering"), ("Normal", False, kept(result["usage"]))
        ]  # fmt: skip
        assert {s["root"] for s in editor.of("qmlx/didChangeStatus")} == {str(b.project)}
    assert told(elsewhere) == [ready]
    for editor in (asking, looking, elsewhere):
        assert await editor.leave()
    assert not b.app.registry.running._listeners


async def test_a_turn_that_was_cancelled_says_so(b: Bench) -> None:
    editor = await editor_of(b)
    b.gate.hold("decode", 3)
    number = editor.begin("qmlx/ask", {"text": "Q"})
    await b.gate.reached()
    editor.cancel(number)
    await until(lambda: any(job.cancelled for job in b.app.registry.running))
    b.gate.open()
    await editor.response(number)
    last = (await idle_again(editor, 1))[-1]
    usage = (await editor.request("qmlx/status"))["conversations"][0]["usage"]
    assert last == ("Normal", False, f"cancelled, {kept(usage)}")
    assert await editor.leave()


async def test_it_is_busy_until_the_last_of_several_turns_has_ended(b: Bench) -> None:
    editor = await editor_of(b)
    b.gate.hold("decode", 3)
    first = editor.begin("qmlx/ask", {"text": "Q"})
    await b.gate.reached()
    second = editor.begin("qmlx/ask", {"text": "R"})
    await until(lambda: len(b.app.registry.running) == 2)
    b.gate.open()
    await asyncio.gather(editor.result(first), editor.result(second))
    assert [busy for _, busy, _ in await idle_again(editor, 1)] == [False, True, False]
    assert await editor.leave()


async def test_what_came_from_disk_is_named(tmp_path: Path) -> None:
    async with bench(tmp_path) as before:
        editor = await editor_of(before)
        await editor.request("qmlx/ask", {"text": "Q" * 200})
        assert await editor.leave()
    async with bench(tmp_path) as after:
        await after.app.registry.loader.ready()
        editor = await editor_of(after)
        usage = (await editor.request("qmlx/ask", {"text": "R"}))["usage"]
        assert usage["restored"] > 200
        last = (await idle_again(editor, 1))[-1][2]
        assert last == f"{usage['prefilled']} tokens read, {usage['restored']} kept ({usage['restored']} from disk)"
        assert await editor.leave()
