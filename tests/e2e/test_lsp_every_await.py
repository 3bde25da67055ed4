"""Cancelled at every await, by every way to cancel: nothing is applied, what was said is a partial turn, nothing is
left running, and the next question works."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.applying import APPLY, Applying
from tests.support.bench import Bench, bench
from tests.support.commands import CANCEL, COMMAND, call, ended, span, told
from tests.support.every_await import counted

pytestmark = pytest.mark.slow

CODE = "def f(x):\n    return x\n"
NEW = "```\ndef f(x):\n    return x + 1\n```\n"
DONE = CODE.replace("return x", "return x + 1")
CANCELLED = -32800
AWAITS_MAX = 400
OURS = (
    "_follow", "Registry.ask", "execute", "ask", "_execute_command", "_ask", "create_progress", "Job.", "Inline.",
    "inline_completion", "_inline_completion",
)  # fmt: skip
"""What runs for one command or request, by the names of its coroutines."""


async def every(tmp_path: Path, once: Callable[[Bench, int], Awaitable[bool]], reply: str = NEW) -> int:
    """``once(bench, k)`` for all k, each with a fresh daemon, until there is no k-th await; returns how many. A turn
    that is left says the beginning of ``reply``."""
    for at in range(1, AWAITS_MAX):
        base = tmp_path / str(at)
        base.mkdir()
        async with bench(base, replies=[NEW, "next"]) as b:
            await b.session()
            before = asyncio.all_tasks()
            reached = await once(b, at)
            await settled(before)
            end = b.entries()[-1:]
            if end and end[0].kind.value == "assistant":
                assert reply.startswith(end[0].text), f"await {at}: the beginning of what was said, or all of it"
            assert (await b.ask("And now?")).finish.value == "complete"
            await b.check()
        if not reached:
            return at - 1
    raise AssertionError("there are more awaits than anybody counted")


async def settled(before: set[asyncio.Task[Any]]) -> None:
    """Nothing that was begun since runs any more."""
    async with asyncio.timeout(20):
        while left := {task for task in asyncio.all_tasks() - before if ours(task)}:
            await asyncio.wait(left)


def ours(task: asyncio.Task[Any]) -> bool:
    inner: Any = task.get_coro()
    name = getattr(getattr(inner, "_inner", inner), "__qualname__", "")
    return any(name == one or name.endswith(f".{one}") or name.startswith(one) for one in OURS)


async def editor_of(b: Bench) -> tuple[Applying, str]:
    editor = Applying(b.app)
    await editor.begin_as(b.project)
    return editor, editor.show(b.project / "a.py", CODE)


def sent(editor: Applying, uri: str) -> bool:
    """Whether the edit was sent; then it was applied, and otherwise nothing is."""
    found = any(message.get("method") == APPLY for message in editor.messages)
    assert editor.text(uri) == (DONE if found else CODE)
    return found


def rewrite(editor: Applying, uri: str) -> Any:
    about = {"uri": uri, "range": span(0, 2), "text": "add one"}
    return editor.begin(COMMAND, call("qmlx.rewrite", about, workDoneToken="t"))


@pytest.mark.parametrize("how", ["command", "progress"])
async def test_an_edit_is_whole_or_not_at_all(tmp_path: Path, how: str) -> None:
    ends: set[str] = set()

    async def once(b: Bench, at: int) -> bool:
        editor, uri = await editor_of(b)

        def cancel() -> None:
            if how == "command":
                editor.begin(COMMAND, call(CANCEL), "cancel")
            else:
                editor.notify("window/workDoneProgress/cancel", {"token": "t"})

        async with counted(at, cancel) as awaits:
            await editor.result(rewrite(editor, uri))
            said = await ended(editor, "t")
        reached = awaits.count >= at
        if how == "command" and reached:
            await editor.result("cancel")
        applied = sent(editor, uri)
        assert said == "rewrite: applied" if applied else said.startswith("rewrite: cancelled"), (at, said)
        assert applied or reached
        ends.add(said)
        told(editor)
        assert await editor.leave()
        return reached

    assert await every(tmp_path, once) > 20
    assert {said.split(";")[0] for said in ends} == {"rewrite: applied", "rewrite: cancelled, nothing was changed"}


async def test_a_new_file_is_whole_or_not_made(tmp_path: Path) -> None:
    ends: set[str] = set()

    async def once(b: Bench, at: int) -> bool:
        editor, uri = await editor_of(b)
        async with counted(at, lambda: editor.begin(COMMAND, call(CANCEL), "cancel")) as awaits:
            about = {"uri": uri, "range": span(0, 2)}
            await editor.result(editor.begin(COMMAND, call("qmlx.tests", about, workDoneToken="t")))
            said = await ended(editor, "t")
        reached = awaits.count >= at
        if reached:
            await editor.result("cancel")
        made = b.project / "test_a.py"
        if said == "tests: test_a.py made":
            assert editor.text(made.as_uri()) == DONE
        else:
            assert said.startswith("tests: cancelled, nothing was changed")
            assert not made.exists()
        ends.add(said.split(";")[0])
        told(editor)
        assert await editor.leave()
        return reached

    assert await every(tmp_path, once) > 20
    assert len(ends) == 2


async def test_an_edit_whose_editor_goes_away(tmp_path: Path) -> None:
    async def once(b: Bench, at: int) -> bool:
        editor, uri = await editor_of(b)
        async with counted(at, editor.reader.feed_eof) as awaits:
            rewrite(editor, uri)
            over = asyncio.create_task(ended(editor, "t"))
            done, _ = await asyncio.wait({over, editor.serving}, return_when=asyncio.FIRST_COMPLETED, timeout=20)
            assert done
            over.cancel()
            await asyncio.gather(over, return_exceptions=True)
            reached = awaits.count >= at
            await editor.drop()
        sent(editor, uri)
        return reached

    assert await every(tmp_path, once) > 20


async def test_a_question_is_answered_once(tmp_path: Path) -> None:
    async def once(b: Bench, at: int) -> bool:
        editor, _ = await editor_of(b)
        async with counted(at, lambda: editor.cancel("asked")) as awaits:
            answer = await editor.response(editor.begin("qmlx/ask", {"text": "Q"}, "asked"))
        reached = awaits.count >= at
        if "error" in answer:
            assert answer["error"]["code"] == CANCELLED
            assert reached
        else:
            assert answer["result"]["text"] == b.entries()[-1].text == NEW
        assert await editor.leave()
        return reached

    assert await every(tmp_path, once) > 20


@pytest.mark.parametrize("kind", [1, 2], ids=["invoked", "automatic"])
async def test_a_completion_is_a_turn_or_leaves_no_trace(tmp_path: Path, kind: int) -> None:
    """An invoked one that was begun is recorded as far as it came; an automatic one never is."""
    lengths: set[int] = set()

    async def once(b: Bench, at: int) -> bool:
        editor, uri = await editor_of(b)
        b.backend._replies[:] = [" + 12345\n", "next"]
        where = {"textDocument": {"uri": uri}, "position": {"line": 1, "character": 12}}
        async with counted(at, lambda: editor.cancel("typed")) as awaits:
            params = {**where, "context": {"triggerKind": kind}}
            answer = await editor.response(editor.begin("textDocument/inlineCompletion", params, "typed"))
        reached = awaits.count >= at
        said = b.entries()
        if "error" in answer:
            assert (answer["error"]["code"], reached) == (CANCELLED, True)
        else:
            assert [item["insertText"] for item in answer["result"]["items"]] == ["x + 12345"]
            assert len(said) == (3 if kind == 1 else 0)  # with the system's text
        assert kind == 1 or not said
        if said:
            assert "x + 12345\n".startswith(said[-1].text.rpartition("return ")[2])
        lengths.add(len(said))
        assert await editor.leave()
        return reached

    assert await every(tmp_path, once, "```python\ndef f(x):\n    return x + 12345\n") > 8
    assert lengths == ({0, 3} if kind == 1 else {0})
