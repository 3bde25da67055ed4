"""Inline completions where something goes wrong, or the conversation goes on under them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qmlx_lsp.errors import StoreError
from qmlx_lsp.session.checkpoint import settled
from qmlx_lsp.session.event import Ask, Job
from qmlx_lsp.transcript.entry import Finish
from tests.support.bench import WAIT_S, Bench, bench, quick
from tests.support.completions import CODE, INLINE, INVOKED, LIST, at, editor_of, items, opened, ready, said, texts
from tests.support.waiting import until


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path) as made:
        yield made


@pytest.mark.parametrize(("start", "end"), [(5, 3), (3, 4), (3, 6), (9, 9)])
async def test_a_selected_item_of_another_place_is_nothing(b, start, end):
    editor, file = await opened(b, "import os\nos.pa\n")
    said(b, "x\n")
    info = {"range": {"start": {"line": 1, "character": start}, "end": {"line": 1, "character": end}}, "text": "path"}
    assert await items(editor, at(file, 1, 5, selectedCompletionInfo=info)) == []
    assert await editor.leave()


async def test_a_line_of_a_single_long_word_holds_nobody_up(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    line = f'x = "{"A" * 1_000_000}"'
    editor.open(file, f"{line}\ny = \n")
    await ready(b, editor)
    assert await items(editor, at(file, 0, len(line))) == []  # longer than what is looked at
    said(b, "x\n")
    assert await texts(editor, at(file, 1, 4)) == ["x"]
    assert await editor.leave()


async def test_superseded_while_the_conversation_is_restored_it_is_restored_once_and_held_once(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "foo\n")
    await b.ask("What is this?")
    session = await b.app.registry.session(b.project)
    await settled(session)
    session.drop_live("test")
    begun, go, restore = threading.Event(), threading.Event(), b.backend.restore

    def slow(stored):
        begun.set()
        assert go.wait(WAIT_S)
        return restore(stored)

    b.backend.restore = slow
    first = editor.begin(INLINE, at(file, 0, 3))
    assert await asyncio.to_thread(begun.wait, WAIT_S)
    second = editor.begin(INLINE, at(file, 0, 3))
    assert await editor.result(first) == {"items": []}  # at once
    third = editor.begin(INLINE, at(file, 0, 3))
    assert await editor.result(second) == {"items": []}
    said(b, "bar\n")
    go.set()
    assert (await editor.result(third))["items"][0]["insertText"] == "foobar"
    assert list(b.backend._states) == [session.live]
    assert b.backend.ids(session.live) == session.transcript.log.ids(0)
    await until(lambda: session.live_bytes)
    assert session.live_bytes == b.backend.nbytes(session.live)  # so that it counts among what memory is bounded by
    assert await editor.leave()


async def test_memory_is_bounded_where_nothing_but_completions_are_made(tmp_path):
    async with bench(tmp_path, quick(memory={"live_gib": 0.0})) as b:
        editor = await editor_of(b)
        other = await b.app.registry.session(tmp_path)  # another folder
        file = b.project / "a.py"
        editor.open(file, "foo\n")
        await b.app.registry.ask(tmp_path, Ask("What is this?"), Job())
        await settled(other)
        assert other.live is not None
        said(b, "bar\n")
        assert await texts(editor, at(file, 0, 3, INVOKED)) == ["foobar"]
        await until(lambda: other.live is None)
        assert await editor.leave()


@pytest.mark.parametrize("write", ["append", "begin_reply", "finish_reply"])
async def test_a_full_disk_while_one_is_recorded_costs_the_item_and_nothing_else(b, write, monkeypatch):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, CODE)
    await b.ask("What is this?")
    session = await b.app.registry.session(b.project)
    log = b.app.registry.services.log

    works, disk = getattr(log, write), ["full"]

    def full(*args):
        if disk:
            raise StoreError("The disk is full.")
        return works(*args)

    monkeypatch.setattr(log, write, full)
    said(b, "um(items)\n")
    assert await texts(editor, at(file, 1, 12, INVOKED)) == []
    assert session.live is None
    disk.clear()
    said(b, "Well.")
    assert (await b.ask("And now?")).text == "Well."
    assert b.backend.ids(session.live) == session.transcript.log.ids(0)
    entries = session.transcript.entries
    await b.restart()
    again = await b.app.registry.session(b.project)
    assert [(e.kind, e.finish, tuple(e.ids)) for e in again.transcript.entries] == [
        (e.kind, e.finish, tuple(e.ids)) for e in entries
    ]


async def test_an_editor_that_vanishes_while_one_is_recorded_leaves_a_partial_turn(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "x = 1\n\n")
    await b.ask("What is this?")
    session = await b.app.registry.session(b.project)
    before = len(session.transcript.entries)
    said(b, "0123456789" * 5)
    b.gate.hold("decode", 4)
    editor.begin(INLINE, at(file, 1, 0, INVOKED))
    await b.gate.reached()
    inline = b.app.registry.inline
    leaving = asyncio.create_task(editor.drop())
    await until(lambda: all(job.cancelled for job in inline._newest.values()))
    b.gate.open()
    await leaving
    assert (len(session.transcript.entries), session.transcript.entries[-1].finish) == (before + 2, Finish.CANCELLED)
    assert b.backend.ids(session.live) == session.transcript.log.ids(0)
    assert (inline._newest, inline._shown) == ({}, {})


async def test_what_is_recorded_keeps_to_what_the_conversation_may_hold(tmp_path):
    """The model reads 32,768 tokens, its user allows 4,096: what completions add counts."""
    async with bench(tmp_path, quick(context={"max_tokens": 4_096})) as b:
        editor = await editor_of(b)
        file = b.project / "a.py"
        session = await b.app.registry.session(b.project)
        assert session.context_tokens == 4_096
        for number in range(30):
            editor.open(file, f"{'# a line' * 50}\nx{number} = \n")
            said(b, "1\n")
            assert await texts(editor, at(file, 1, len(f"x{number} = "), INVOKED)) == ["1"]
            editor.notify("textDocument/didClose", {"textDocument": {"uri": file.as_uri()}})
        assert 3_000 < len(session.transcript.log) <= 4_096
        assert (await b.ask("Well?")).finish is Finish.COMPLETE
        assert await editor.leave()


async def test_an_item_of_a_list_that_begins_with_a_new_line_has_a_label(b):
    helix = await editor_of(b, "helix-25.01")
    file = b.project / "a.py"
    helix.open(file, "def f():\n")
    await ready(b, helix)
    said(b, "\n    return 1\n")
    where = {"textDocument": {"uri": file.as_uri()}, "position": {"line": 0, "character": 8}}
    (item,) = (await helix.request(LIST, where))["items"]
    assert (item["label"], item["textEdit"]["newText"]) == ("return 1", "\n    return 1")
    assert await helix.leave()


async def test_a_limit_of_the_editor_beyond_all_limits_is_said_and_is_none(b):
    editor = await editor_of(b, "helix-25.07")
    for value in (5_000, 10**30, 0, -1, True, 1.5):
        editor.notify("workspace/didChangeConfiguration", {"settings": {"qmlx": {"inline": {"maxTokens": value}}}})
    file = b.project / "a.py"
    editor.open(file, "foo\n")
    await ready(b, editor)
    said(b, "bar\n")
    assert await texts(editor, at(file, 0, 3)) == ["foobar"]
    shown = [message["message"] for message in editor.of("window/showMessage")]
    assert len(shown) == 6
    assert shown[0] == "qmlx.inline.maxTokens is 5000, but must be a whole number from 1 to 4,096."
    assert await editor.leave()
