"""The protocol as real editors speak it: initialize, questions, streams, progress, cancels, the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from qmlx_lsp.transcript.entry import Finish
from tests.support.bench import Bench, bench, text_of
from tests.support.fake_editor import CLIENT_NAMES, InMemory, initialize_params
from tests.support.waiting import until

CANCELLED, INVALID_REQUEST = -32800, -32600


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path) as made:
        yield made


async def editor_of(b: Bench, client: str = "vscode-1.139", **changes: Any) -> InMemory:
    editor = InMemory(b.app)
    await editor.initialize(initialize_params(client, b.project, **changes))
    return editor


def stopped(b: Bench) -> bool:
    """Whether the turn that stands at the gate has been told to stop: only then may the gate be opened."""
    return any(job.cancelled for job in b.app.registry.running)


async def test_question_streams_in_order_and_ends_once(tmp_path: Path) -> None:
    text = "Yes: 你好，世界 😋, " * 20
    async with bench(tmp_path, replies=[text]) as b:
        editor = await editor_of(b)
        result = await editor.request("qmlx/ask", {"text": "Q", "workDoneToken": "work", "partialResultToken": 7})
        assert set(result) == {"turnId", "text", "finish", "usage"}
        assert (result["text"], result["finish"]) == (text, "complete")
        stream = editor.of("qmlx/stream")
        assert [s["seq"] for s in stream] == list(range(len(stream)))
        assert [s["done"] for s in stream] == [False] * (len(stream) - 1) + [True]
        assert "".join(s["delta"] for s in stream) == text
        assert len({s["jobId"] for s in stream}) == 1
        progress = editor.of("$/progress")
        partial = [p["value"]["delta"] for p in progress if p["token"] == 7]
        assert "".join(partial) == text
        work = [p["value"]["kind"] for p in progress if p["token"] == "work"]
        assert (work[0], work[-1]) == ("begin", "end")
        assert set(work[1:-1]) == {"report"}
        begin = next(p["value"] for p in progress if p["token"] == "work")
        assert begin["cancellable"] is True
        assert await editor.leave()


async def test_cancel_request_is_answered_once_and_after_the_log(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["abcdefghij", "next"]) as b:
        editor = await editor_of(b)
        b.gate.hold("decode", 4)
        number = editor.begin("qmlx/ask", {"text": "Q", "workDoneToken": "w"})
        await b.gate.reached()
        editor.cancel(number)
        editor.cancel(number)
        await until(lambda: stopped(b))
        assert (await editor.request("qmlx/status"))["queue"]["running"] == 1
        assert number not in [m["id"] for m in editor.messages if "method" not in m]
        at_answer: list[Finish | None] = []
        take = editor._take
        editor._take = lambda m: (  # type: ignore[method-assign]
            at_answer.append(b.entries()[-1].finish) if m.get("id") == number else None,
            take(m),
        )[1]
        b.gate.open()
        assert (await editor.error(number))[0] == CANCELLED
        assert at_answer == [Finish.CANCELLED]
        assert text_of(b.ids()).endswith("abcd")
        assert [s["done"] for s in editor.of("qmlx/stream")].count(True) == 1
        work = [p["value"]["kind"] for p in editor.of("$/progress") if p["token"] == "w"]
        assert (work[0], work[-1], work.count("end")) == ("begin", "end", 1)
        for identity in (number, 99999, None, [1], {}):
            editor.cancel(identity)
        editor.notify("$/cancelRequest", {})
        editor.notify("$/cancelRequest", None)
        assert (await editor.request("qmlx/ask", {"text": "R"}))["text"] == "next"
        assert await editor.leave()


async def test_cancelled_progress_gets_a_normal_answer(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["abcdefghij"]) as b:
        editor = await editor_of(b)
        b.gate.hold("decode", 2)
        number = editor.begin("qmlx/ask", {"text": "Q", "workDoneToken": "w"})
        await b.gate.reached()
        editor.notify("window/workDoneProgress/cancel", {"token": "unknown"})
        editor.notify("window/workDoneProgress/cancel", {"token": "w"})
        await until(lambda: stopped(b))
        b.gate.open()
        result = await editor.result(number)
        assert (result["finish"], result["text"], result["usage"]["generated"]) == ("cancelled", "ab", 2)
        assert await editor.leave()


async def test_forty_questions_of_which_thirty_nine_are_cancelled(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        editor = await editor_of(b)
        await editor.request("qmlx/ask", {"text": "warm"})
        before = len(b.ids())
        rows = b.backend.passes.rows
        numbers = [editor.begin("qmlx/ask", {"text": f"Question {n}"}) for n in range(40)]
        for number in numbers[:39]:
            editor.cancel(number)
        result = await editor.result(numbers[39])
        for number in numbers[:39]:
            assert (await editor.error(number))[0] == CANCELLED
        asked = len(b.ids()) - before
        assert b.backend.passes.rows - rows == asked == result["usage"]["prefilled"] + result["usage"]["generated"]
        assert [e.text for e in b.entries() if e.kind == "question"] == ["warm", "Question 39"]
        assert await editor.leave()


async def test_connection_dropped_in_mid_turn(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["abcdefghij", "other"]) as b:
        first, second = await editor_of(b), await editor_of(b, "neovim-0.12")
        b.gate.hold("decode", 3)
        first.begin("qmlx/ask", {"text": "Q"})
        await b.gate.reached()
        dropping = asyncio.create_task(first.drop())
        number = second.begin("qmlx/ask", {"text": "R"})
        await until(lambda: stopped(b))
        b.gate.open()
        await dropping
        assert (await second.result(number))["text"] == "other"
        assert "Q<|im_end|>\n<|im_start|>assistant\nabc<|im_end|>\n<|im_start|>user\nR" in text_of(b.ids())
        assert await second.leave()


async def test_shutdown_while_a_turn_runs(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["abcdefghij"]) as b:
        editor = await editor_of(b)
        b.gate.hold("decode", 3)
        number = editor.begin("qmlx/ask", {"text": "Q"})
        await b.gate.reached()
        await editor.request("shutdown")
        assert (await editor.refused("shutdown"))[0] == INVALID_REQUEST
        assert (await editor.refused("qmlx/ask", {"text": "R"}))[0] == INVALID_REQUEST
        editor.send({"jsonrpc": "2.0", "id": "nobody asked", "result": None})
        editor.notify("textDocument/didSave", {"textDocument": {"uri": "file:///x"}})
        await until(lambda: stopped(b))
        b.gate.open()
        assert (await editor.error(number))[0] == CANCELLED
        editor.notify("exit", None)
        assert await asyncio.wait_for(editor.serving, 10)
        editor.check()
        assert text_of(b.ids()).endswith("abc")


async def test_exit_without_shutdown_is_no_orderly_end(b: Bench) -> None:
    editor = await editor_of(b)
    editor.notify("exit", None)
    assert not await asyncio.wait_for(editor.serving, 10)
    other = await editor_of(b)
    other.send_bytes(b"Content-Length: 10\r\n\r\n{")
    assert not await other.drop()
    third = await editor_of(b)
    assert await third.drop()


async def test_conversation_and_status_say_what_happened(b: Bench) -> None:
    editor = await editor_of(b)
    empty = await editor.request("qmlx/conversation", {"root": b.project.as_uri()})
    assert empty == {
        "root": str(b.project), "epoch": 0, "turns": [],
        "totals": {"turns": 0, "entries": 0, "tokens": 0, "epochs": 0},
    }  # fmt: skip
    answers = [await editor.request("qmlx/ask", {"text": text}) for text in ("A", "B", "C")]
    found = await editor.request("qmlx/conversation", {"root": str(b.project), "limit": 2})
    assert [turn["question"] for turn in found["turns"]] == ["B", "C"]
    assert found["totals"] == {"turns": 3, "entries": 7, "tokens": len(b.ids()), "epochs": 1}
    last = found["turns"][-1]
    assert (last["turnId"], last["text"], last["finish"]) == (answers[2]["turnId"], answers[2]["text"], "complete")
    assert last["span"] == [b.entries()[-1].start, b.entries()[-1].end]
    assert last["usage"] == answers[2]["usage"]
    assert (await editor.request("qmlx/conversation", {"limit": 0}))["turns"] == []
    status = await editor.request("qmlx/status", {})
    assert set(status) == {"version", "pid", "clients", "model", "conversations", "store", "queue", "inline", "usage"}
    assert status["model"]["state"] == "ready"
    assert status["conversations"] == [{
        "root": str(b.project), "epoch": 0, "tokens": len(b.ids()), "live": True, "live_tokens": len(b.ids()),
        "live_bytes": 4 * len(b.ids()) + 16, "disk": None, "busy": False, "preparing": None,
        "usage": answers[2]["usage"],
    }]  # fmt: skip
    assert status["usage"] == answers[2]["usage"]
    assert status["store"]["segments"] == 4  # one per turn, and one that ends with the system text
    assert status["queue"] == {"running": 0, "waiting": 0}
    assert await editor.leave()


async def test_prefix_is_the_same_from_every_editor(tmp_path: Path) -> None:
    """Client, process id and spelling of the folder never reach the prompt."""
    seen = set()
    for client in CLIENT_NAMES:
        (tmp_path / client).mkdir()
        async with bench(tmp_path / client, replies=["x"]) as b:
            editor = await editor_of(b, client, processId=None)
            await editor.request("qmlx/ask", {"text": "Q"})
            seen.add(tuple(b.ids()))
            assert await editor.leave()
    assert len(seen) == 1


async def test_dead_parent_ends_the_connection(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qmlx_lsp.lsp.lifecycle.PARENT_POLL_S", 0.01)
    process = await asyncio.create_subprocess_exec("sleep", "1000")
    editor = await editor_of(b, processId=process.pid)
    await editor.request("qmlx/status")
    assert not editor.serving.done()
    process.kill()
    await process.wait()
    assert not await asyncio.wait_for(editor.serving, 10)
