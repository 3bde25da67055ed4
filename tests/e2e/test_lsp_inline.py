"""Inline completions over the protocol: what comes back, what it costs, and what it leaves behind."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from qmlx_lsp.errors import ModelError, StoreError
from qmlx_lsp.session.apart import RETRY_S
from qmlx_lsp.session.checkpoint import settled
from qmlx_lsp.session.event import Ask, Job
from qmlx_lsp.transcript.entry import Finish, Kind
from tests.support.bench import WAIT_S, Bench, bench, quick
from tests.support.fake_editor import InMemory, Message, edit, initialize_params
from tests.support.waiting import until

INLINE, LIST = "textDocument/inlineCompletion", "textDocument/completion"
INVOKED, AUTOMATIC = 1, 2
CODE = "def total(items):\n    return s\n\n\nprint(total([]))\n"


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path) as made:
        yield made


async def editor_of(b: Bench, client: str = "vscode-1.139", **changes: Any) -> InMemory:
    editor = InMemory(b.app)
    await editor.initialize(initialize_params(client, b.project, **changes))
    return editor


def at(file: Path, line: int, character: int, kind: int = AUTOMATIC, **context: Any) -> Message:
    place = {"textDocument": {"uri": file.as_uri()}, "position": {"line": line, "character": character}}
    return {**place, "context": {"triggerKind": kind, **context}}


def said(b: Bench, *texts: str) -> None:
    """What the model writes next, one after another, and what it would write when it is asked once more."""
    b.backend._replies[:] = texts


async def ready(b: Bench, editor: InMemory) -> None:
    """The model is there, and the conversation has been opened."""
    await b.app.registry.session(b.project)


async def items(editor: InMemory, params: Message) -> list[Message]:
    found = await editor.request(INLINE, params)
    assert set(found) == {"items"}
    return found["items"]


async def texts(editor: InMemory, params: Message) -> list[str]:
    return [item["insertText"] for item in await items(editor, params)]


async def test_item_has_the_whole_word_its_range_and_what_filters_it(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, CODE)
    await ready(b, editor)
    said(b, "um(items)\n\n\ndef other():\n")
    assert await items(editor, at(file, 1, 12)) == [
        {
            "insertText": "sum(items)",
            "filterText": "sum(items)",
            "range": {"start": {"line": 1, "character": 11}, "end": {"line": 1, "character": 12}},
        }
    ]
    assert await editor.leave()


async def test_no_trace_is_left_in_log_and_live_state(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, CODE)
    await b.ask("What is this?")
    session = await b.app.registry.session(b.project)
    entries, position = session.transcript.entries, session.live_position
    said(b, "um(items)\n")
    assert await texts(editor, at(file, 1, 12)) == ["sum(items)"]
    assert (session.transcript.entries, session.live_position) == (entries, position)
    assert b.backend.ids(session.live) == session.transcript.log.ids(0)
    assert (await b.ask("And now?")).usage.live == position
    assert await editor.leave()


async def test_the_prompt_is_what_follows_and_then_what_comes_before_behind_all_that_was_told(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, CODE)
    await b.ask("What is this?")
    session = await b.app.registry.session(b.project)
    told = session.transcript.log.ids(0)
    read = []
    decode = b.backend.decode
    b.backend.decode = lambda state, *more, **options: (
        read.append(b.backend.ids(state)) or decode(state, *more, **options)
    )
    said(b, "um(items)\n")
    await texts(editor, at(file, 1, 12))
    (ids,) = read
    assert ids[: len(told)] == told
    prompt = session.model.renderer.codec.decode(ids[len(told) :])
    assert prompt == (
        "<|im_end|>\n<|im_start|>user\nGo on with a.py at the cursor. Behind the cursor's line stands:\n"
        "```python\n\n\nprint(total([]))\n```\n\n"
        "Answer with the code alone, from before the cursor on.<|im_end|>\n<|im_start|>assistant\n"
        "```python\ndef total(items):\n    return"
    ).removeprefix("<|im_end|>" * (ids[len(told) - 1] == session.model.renderer.codec.control("<|im_end|>")))
    assert await editor.leave()


async def test_keystrokes_read_what_was_typed_and_typing_through_reads_nothing(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, CODE)
    await ready(b, editor)
    said(b, "um(items)\n")
    assert await texts(editor, at(file, 1, 12)) == ["sum(items)"]
    rows, asked = b.backend.passes.rows, len("um(items)")
    for version, typed in enumerate("um(it", 2):
        editor.change(file, version, edit(1, 10 + version, 10 + version, typed))
        left = "um(items)"[version - 1 :]
        found = await items(editor, at(file, 1, 11 + version))
        assert found[0]["insertText"].endswith(left)
        assert found[0]["insertText"] in ("sum(items)", "items)")  # the word at the cursor is in it
    assert b.backend.passes.rows == rows
    said(b, "x\n")
    editor.change(file, 7, edit(1, 17, 17, "."))  # not what was shown
    await texts(editor, at(file, 1, 18))
    assert b.backend.passes.rows - rows < asked + len("sum(it.x\n")  # the prompt's end, and what was written
    assert b.app.registry.inline.counts["typed_through"] == 5
    assert await editor.leave()


async def test_deleting_back_shows_what_was_shown(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, CODE)
    await ready(b, editor)
    said(b, "um(items)\n")
    await texts(editor, at(file, 1, 12))
    editor.change(file, 2, edit(1, 12, 12, "um"))
    editor.change(file, 3, edit(1, 13, 14, ""))
    rows = b.backend.passes.rows
    assert await texts(editor, at(file, 1, 13)) == ["sum(items)"]
    assert b.backend.passes.rows == rows
    assert await editor.leave()


async def test_brackets_that_the_editor_closes_are_not_closed_again(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, CODE)
    await ready(b, editor)
    said(b, "um(items)\n")
    await texts(editor, at(file, 1, 12))
    editor.change(file, 2, edit(1, 12, 12, "um()"))
    assert await texts(editor, at(file, 1, 15)) == ["items"]
    said(b, "items)\n")
    other = b.project / "b.py"
    editor.open(other, "print(total())\n")
    assert await texts(editor, at(other, 0, 12)) == ["items"]
    assert await editor.leave()


async def test_selected_item_of_the_menu_is_where_it_goes_on(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "import os\nos.pa\n")
    await ready(b, editor)
    said(b, ".join(a, pa\n")  # what it replaces does not stand behind it
    info = {"range": {"start": {"line": 1, "character": 3}, "end": {"line": 1, "character": 5}}, "text": "path"}
    (found,) = await items(editor, at(file, 1, 5, selectedCompletionInfo=info))
    assert (found["insertText"], found["range"]) == ("path.join(a, pa", info["range"])
    assert await editor.leave()


@pytest.mark.parametrize(("start", "end"), [(5, 3), (3, 4), (3, 6), (9, 9)])
async def test_a_selected_item_of_another_place_is_nothing(b, start, end):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "import os\nos.pa\n")
    await ready(b, editor)
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


@pytest.mark.parametrize("client", ["neovim-0.12", "vscode-1.139", "emacs-30-eglot-1.17"])
async def test_ranges_count_in_the_editors_columns(b, client):
    editor = await editor_of(b, client)
    encoding = editor.messages[0]["result"]["capabilities"]["positionEncoding"]
    file = b.project / "a.py"
    before = "s = '😀é' + na"
    editor.open(file, before + "\n")
    await ready(b, editor)

    def width(text):
        return {"utf-8": len(text.encode()), "utf-16": len(text.encode("utf-16-le")) // 2, "utf-32": len(text)}[
            encoding
        ]

    said(b, "me\n")
    (found,) = await items(editor, at(file, 0, width(before)))
    assert found["insertText"] == "name"
    assert found["range"]["start"]["character"] == width(before[:-2])
    assert found["range"]["end"]["character"] == width(before)
    assert await editor.leave()


async def test_blocks_have_the_documents_line_ends_and_end_where_the_block_does(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "def f(x):\r\n    \r\n\r\ndef g():\r\n    pass\r\n")
    await ready(b, editor)
    said(b, "if x:\n        return 1\n    return 2\n\ndef g():\n    pass\n")
    assert await texts(editor, at(file, 1, 4)) == ["if x:\r\n        return 1\r\n    return 2"]
    assert await editor.leave()


async def test_max_lines_and_the_switch_of_the_editor(b):
    editor = await editor_of(b, initializationOptions={"inline": {"maxLines": 2}})
    file = b.project / "a.py"
    editor.open(file, "def f(x):\n    \n")
    await ready(b, editor)
    said(b, "a = 1\n    b = 2\n    c = 3\n    d = 4\n")
    assert await texts(editor, at(file, 1, 4)) == ["a = 1\n    b = 2"]
    editor.results["workspace/configuration"] = [{"inline": {"enable": False}}]
    editor.notify("workspace/didChangeConfiguration", {"settings": {"qmlx": {"inline": {"enable": False}}}})
    assert await texts(editor, at(file, 1, 4)) == []
    editor.notify("workspace/didChangeConfiguration", {"settings": {"qmlx": {"inline": {"maxLines": "no"}}}})
    await until(lambda: editor.of("window/showMessage"))
    shown = editor.of("window/showMessage")[0]["message"]
    assert shown == "qmlx.inline.maxLines is 'no', but must be a whole number from 1 to 1,000."
    assert await editor.leave()


# --- B33, B35: for the right text, or nothing ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [INVOKED, AUTOMATIC])
async def test_answer_for_a_text_that_has_changed_meanwhile_is_empty(b, kind):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "foo\n")
    await ready(b, editor)
    said(b, "bar\n")
    number = editor.begin(INLINE, at(file, 0, 3, kind))
    editor.change(file, 2, edit(0, 0, 0, "import os\n"))
    assert await editor.result(number) == {"items": []}
    assert await editor.leave()


async def test_request_that_overtakes_its_change_is_empty(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "foo\n")
    await ready(b, editor)
    number = editor.begin(INLINE, at(file, 3, 7))
    other = editor.begin(INLINE, at(file, 0, 4))
    editor.change(file, 2, edit(0, 3, 3, "\n\n\n1234567"))
    assert await editor.result(number) == {"items": []}
    assert await editor.result(other) == {"items": []}
    assert await editor.leave()


@pytest.mark.parametrize("kind", [INVOKED, AUTOMATIC])
@pytest.mark.parametrize(("text", "line", "column"), [("", 0, 0), ("a = ", 0, 4), ("x\n", 1, 0), ("x\n\n\n", 2, 0)])
async def test_every_item_has_a_range_in_its_line(b, kind, text, line, column):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, text)
    await ready(b, editor)
    said(b, "value(1)\n")
    (found,) = await items(editor, at(file, line, column, kind))
    here = {"line": line, "character": column}
    assert (found["insertText"], found["range"]) == ("value(1)", {"start": here, "end": here})
    assert await editor.leave()


async def test_lines_removed_after_the_request(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "one\ntwo\nthree\n")
    await ready(b, editor)
    b.gate.hold("decode")
    number = editor.begin(INLINE, at(file, 2, 5))
    await b.gate.reached()
    places = {"start": {"line": 1, "character": 0}, "end": {"line": 3, "character": 0}}
    editor.change(file, 2, {"range": places, "text": ""})
    b.gate.open()
    assert await editor.result(number) == {"items": []}
    assert await editor.leave()


# --- B24, B32: the newest counts -----------------------------------------------------------------------------------


async def typing(editor: InMemory, file: Path, count: int) -> list[Any]:
    numbers = []
    for version in range(2, count + 2):
        editor.change(file, version, edit(0, version + 1, version + 1, "x"))
        numbers.append(editor.begin(INLINE, at(file, 0, version + 2)))
    return numbers


async def test_burst_without_cancels_costs_one_prompt(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "foo\n")
    await ready(b, editor)
    said(b, "bar\n")
    numbers = await typing(editor, file, 40)
    answers = [await editor.result(number) for number in numbers]
    assert answers[:-1] == [{"items": []}] * 39
    assert answers[-1]["items"][0]["insertText"] == "foo" + "x" * 40 + "bar"
    prefills = [length for kind, length in b.gate.passes if kind == "prefill"]
    assert len(prefills) == len(set(prefills)) <= 8  # of one prompt, each part once
    session = await b.app.registry.session(b.project)
    assert not session.transcript.entries
    assert await editor.leave()


@pytest.mark.parametrize("spelling", [lambda n: n, lambda n: f"request-{n}"])
async def test_cancels_look_ahead_and_touch_their_own_request_only(b, spelling):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "foo\n")
    await ready(b, editor)
    said(b, "bar\n")
    numbers = [spelling(n) for n in range(101, 141)]
    for number in numbers:
        editor.begin(INLINE, at(file, 0, 3), number)
    for number in numbers[:-1]:
        editor.cancel(number)
    answers = [await editor.response(number) for number in numbers]
    assert all(
        answer.get("error", {}).get("code") == -32800 or answer["result"] == {"items": []} for answer in answers[:-1]
    )
    assert answers[-1]["result"]["items"][0]["insertText"] == "foobar"
    prefills = [length for kind, length in b.gate.passes if kind == "prefill"]
    assert len(prefills) == len(set(prefills))
    for odd in ({"id": numbers[-1]}, {"id": numbers[-1]}, {"id": 99999}, {"id": None}, {}):
        editor.notify("$/cancelRequest", odd)
    assert await editor.leave()


async def test_superseded_one_stops_at_its_next_token(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "foo\n")
    await ready(b, editor)
    said(b, "0123456789" * 5, "bar\n")
    b.gate.hold("decode", 7)
    first = editor.begin(INLINE, at(file, 0, 3))
    await b.gate.reached()
    second = editor.begin(INLINE, at(file, 0, 3))
    await until(lambda: b.app.registry.inline.counts["superseded"])
    done = len(b.gate.passes)
    b.gate.open()
    assert await editor.result(first) == {"items": []}
    found = await editor.result(second)
    assert found["items"][0]["insertText"] == "foobar"
    # The token at which it was; then the other: the word once more, what follows, and the line's end.
    assert len(b.gate.passes) - done <= len("foobar\n")
    assert await editor.leave()


async def test_two_editors_and_two_documents_do_not_supersede_each_other(b):
    one, two = await editor_of(b), await editor_of(b, "neovim-0.12")
    a, c = b.project / "a.py", b.project / "c.py"
    for editor in (one, two):
        editor.open(a, "foo\n")
        editor.open(c, "foo\n")
    await ready(b, one)
    said(b, *["bar\n"] * 4)
    numbers = [(editor, editor.begin(INLINE, at(file, 0, 3))) for editor in (one, two) for file in (a, c)]
    for editor, number in numbers:
        assert (await editor.result(number))["items"][0]["insertText"] == "foobar"
    assert await one.leave()
    assert await two.leave()


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


# --- with a long answer --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hybrid", [False, True])
async def test_during_a_long_answer_it_comes_within_two_steps_and_the_answer_is_the_same(tmp_path, hybrid):
    answer = "A long answer, word for word. " * 20
    async with bench(tmp_path / "plain", hybrid=hybrid) as plain:
        (plain.project / "a.py").write_text("foo\n")
        await plain.ask("First?")
        plain.backend._replies[:] = [answer]
        expected = await plain.ask("And a long one?")
        expected_ids = plain.backend.ids((await plain.app.registry.session(plain.project)).live)
    async with bench(tmp_path / "let", hybrid=hybrid) as b:
        editor = await editor_of(b)
        file = b.project / "a.py"
        await b.ask("First?")
        b.backend._replies[:] = [answer, *["bar\n"] * 9]
        b.gate.hold("decode", 40)
        task, _ = b.begin("And a long one?")
        await b.gate.reached()
        editor.open(file, "foo\n")
        for version in range(2, 7):
            number = editor.begin(INLINE, at(file, 0, version + 1))
            await until(lambda: b.app.registry.services.worker.waiting)
            here = len(b.gate.passes)
            b.gate.move("decode", 60)
            found = await editor.result(number)
            assert found["items"][0]["insertText"] == "foo" + "x" * (version - 2) + "bar"
            await b.gate.reached()
            between = b.gate.passes[here:]
            stood = b.gate.passes[here - 1][1]
            assert next(at for at, (_, length) in enumerate(between) if length < stood) <= 2  # steps before it
            editor.change(file, version, edit(0, version + 1, version + 1, "x"))
        b.gate.open()
        got = await task
        assert (got.text, got.finish, got.usage.generated) == (
            expected.text,
            Finish.COMPLETE,
            expected.usage.generated,
        )
        assert (
            b.backend.ids((await b.app.registry.session(b.project)).live)[-len(answer) :]
            == expected_ids[-len(answer) :]
        )
        assert await editor.leave()


async def test_cancelling_a_queued_one_never_stops_the_answer_that_runs(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "foo\n")
    await ready(b, editor)
    said(b, "The answer.")
    b.gate.hold("decode", 3)
    task, _ = b.begin("Why?")
    await b.gate.reached()
    number = editor.begin(INLINE, at(file, 0, 3))
    await until(lambda: b.app.registry.services.worker.waiting)
    editor.cancel(number)
    assert (await editor.response(number))["error"]["code"] == -32800
    b.gate.open()
    assert (await task).text == "The answer."
    assert await editor.leave()


@pytest.mark.parametrize("seed", range(3))
async def test_cancelled_at_any_moment_the_next_one_works(b, seed):
    """B29: rounds of starting and cancelling, under a running answer and without; then all is as ever."""
    draw = random.Random(seed)
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "foo\n")
    await b.ask("First?")
    session = await b.app.registry.session(b.project)
    for version in range(2, 62):
        said(b, *(["The answer, at some length."] if version % 7 == 0 else []), *["0123456789\n"] * 2)
        asking = asyncio.create_task(b.ask(f"Question {version}?")) if version % 7 == 0 else None
        kind = draw.choice((INVOKED, AUTOMATIC))
        number = editor.begin(INLINE, at(file, 0, version + 1, kind))
        for _ in range(draw.randrange(60)):
            await asyncio.sleep(0)
        editor.cancel(number)
        answer = await editor.response(number)
        assert answer.get("error", {"code": -32800})["code"] == -32800
        if asking is not None:
            assert (await asking).finish is Finish.COMPLETE
        editor.change(file, version, edit(0, version + 1, version + 1, "x"))
    assert not session.lock.locked()
    assert b.backend.ids(session.live) == session.transcript.log.ids(0)[: session.live_position]
    kept = [entry for entry in session.transcript.entries if entry.kind is Kind.ASSISTANT]
    assert all(entry.finish in (Finish.COMPLETE, Finish.CANCELLED, Finish.LENGTH) for entry in kept)
    said(b, "bar\n")
    assert (await texts(editor, at(file, 0, 63)))[0].endswith("bar")
    assert await editor.leave()


# --- recorded ------------------------------------------------------------------------------------------------------


async def test_invoked_one_is_a_turn_of_the_log(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, CODE)
    await b.ask("What is this?")
    said(b, "um(items)\n\n")
    assert await texts(editor, at(file, 1, 12, INVOKED)) == ["sum(items)"]
    session = await b.app.registry.session(b.project)
    question, reply = session.transcript.entries[-2:]
    assert (question.kind, reply.kind, reply.finish) == (Kind.QUESTION, Kind.ASSISTANT, Finish.COMPLETE)
    assert question.text.startswith("Go on with a.py at the cursor.")
    assert reply.text.startswith("```python\ndef total(items):\n    return sum(items)")
    assert b.backend.ids(session.live) == session.transcript.log.ids(0)
    turns = (await b.app.registry.conversation(b.project, None))["turns"]
    assert [turn["finish"] for turn in turns] == ["complete", "complete"]
    assert turns[-1]["usage"]["context"] == turns[-1]["usage"]["live"] + turns[-1]["usage"]["prefilled"]
    assert (await b.ask("And now?")).usage.plan == "live"
    assert await editor.leave()


async def test_invoked_one_that_is_cancelled_is_a_partial_turn(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "x = 1\n\n")
    await b.ask("What is this?")
    session = await b.app.registry.session(b.project)
    before = len(session.transcript.entries)
    said(b, "0123456789" * 5)
    b.gate.hold("decode", 4)
    number = editor.begin(INLINE, at(file, 1, 0, INVOKED))
    await b.gate.reached()
    editor.cancel(number)
    await until(lambda: session.lock.locked())
    b.gate.open()
    assert (await editor.response(number))["error"]["code"] == -32800
    reply = session.transcript.entries[-1]
    assert (len(session.transcript.entries), reply.finish) == (before + 2, Finish.CANCELLED)
    assert b.backend.ids(session.live) == session.transcript.log.ids(0)
    await b.restart()
    again = await b.app.registry.session(b.project)
    assert again.transcript.entries[-1].finish is Finish.CANCELLED


@pytest.mark.parametrize(("record", "kinds"), [("never", []), ("always", [AUTOMATIC, INVOKED])])
async def test_what_is_recorded_is_a_setting(tmp_path, record, kinds):
    async with bench(tmp_path, quick(inline={"record": record})) as b:
        editor = await editor_of(b)
        file = b.project / "a.py"
        editor.open(file, "x = 1\n\n")
        await ready(b, editor)
        for kind in (AUTOMATIC, INVOKED):
            said(b, f"y = {kind}\n")
            assert await texts(editor, at(file, 1, 0, kind)) == [f"y = {kind}"]
            editor.change(file, kind + 5, edit(0, 5, 5, "0"))
        turns = (await b.app.registry.conversation(b.project, None))["turns"]
        assert len(turns) == len(kinds)
        assert await editor.leave()


# --- what becomes of it --------------------------------------------------------------------------------------------


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


async def test_accepted_partly_accepted_and_rejected_are_told_from_the_text(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, CODE)
    await ready(b, editor)
    for version, (typed, fate) in enumerate(
        [("um(items)", "accepted"), ("um", "partly"), ("orted", "rejected")], start=2
    ):
        said(b, "um(items)\n")
        await texts(editor, at(file, 1, 12))
        counts = dict(b.app.registry.inline.counts)
        editor.change(file, 2 * version, edit(1, 12, 12, typed))
        await until(lambda f=fate, c=counts: b.app.registry.inline.counts[f] == c[f] + 1)
        editor.change(file, 2 * version + 1, edit(1, 12, 12 + len(typed), ""))
    status = await editor.request("qmlx/status")
    assert status["inline"]["shown"] >= 1
    assert await editor.leave()


# --- where there is nothing to offer -------------------------------------------------------------------------------


async def test_private_and_foreign_files_and_unknown_documents_get_nothing(b):
    (b.project / ".qmlxignore").write_text("private/\n")
    editor = await editor_of(b)
    said_before = len(b.gate.passes)
    await ready(b, editor)
    for name in (".env", "private/a.py", "id_rsa"):
        editor.open(b.project / name, "KEY=")
        assert await texts(editor, at(b.project / name, 0, 4)) == []
    outside = b.project.parent / "other.py"
    editor.open(outside, "KEY=")
    assert await texts(editor, at(outside, 0, 4)) == []
    assert await texts(editor, at(b.project / "not-open.py", 0, 0)) == []
    assert len(b.gate.passes) == said_before
    assert await editor.leave()


@pytest.mark.parametrize("written", ["", "\n\n", "```\nThat is all.", "   \n", "print(total([]))\n"])
async def test_nonsense_is_nothing(b, written):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "x = 1\n\nprint(total([]))\n")
    await ready(b, editor)
    said(b, written)
    assert await texts(editor, at(file, 1, 0)) == []
    assert await editor.leave()


async def test_an_error_of_the_model_is_nothing_and_the_next_one_works(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "foo\n")
    await ready(b, editor)
    for kind, after in (("prefill", 0), ("prefill", 1), ("decode", 0), ("decode", 4)):
        said(b, "bar\n")
        b.gate.fail(kind, after)
        assert await texts(editor, at(file, 0, 3)) == []
    said(b, "bar\n")
    assert await texts(editor, at(file, 0, 3)) == ["foobar"]
    assert (await b.ask("Well?")).finish is Finish.COMPLETE
    assert await editor.leave()


async def test_lines_that_are_too_long_get_nothing(b):
    editor = await editor_of(b)
    file = b.project / "a.min.js"
    editor.open(file, "x" * 100_000)
    await ready(b, editor)
    assert await texts(editor, at(file, 0, 100_000)) == []
    assert await editor.leave()


# --- editors without inline completions ----------------------------------------------------------------------------


@pytest.mark.parametrize("client", ["helix-25.07", "neovim-0.11"])
async def test_one_item_in_the_list_of_those_that_do_not_know_it(b, client):
    editor = await editor_of(b, client)
    capabilities = editor.messages[0]["result"]["capabilities"]
    assert capabilities["completionProvider"] is not None
    file = b.project / "a.py"
    editor.open(file, CODE)
    await ready(b, editor)
    said(b, "um(items)\n")
    where = {"textDocument": {"uri": file.as_uri()}, "position": {"line": 1, "character": 12}}
    found = await editor.request(LIST, {**where, "context": {"triggerKind": 1}})
    (item,) = found["items"]
    assert found["isIncomplete"] is True
    assert item["label"] == "sum(items)"
    assert item["preselect"] is False
    assert item["textEdit"] == {
        "newText": "sum(items)",
        "range": {"start": {"line": 1, "character": 11}, "end": {"line": 1, "character": 12}},
    }
    assert await editor.leave()


async def test_those_that_know_it_get_no_list_and_the_list_can_be_switched_off(b):
    editor = await editor_of(b)
    capabilities = editor.messages[0]["result"]["capabilities"]
    assert capabilities.get("completionProvider") is None
    assert capabilities["inlineCompletionProvider"] is not None
    assert await editor.leave()
    helix = await editor_of(b, "helix-25.07", initializationOptions={"completion": {"list": False}})
    file = b.project / "a.py"
    helix.open(file, CODE)
    where = {"textDocument": {"uri": file.as_uri()}, "position": {"line": 1, "character": 12}}
    assert (await helix.request(LIST, where))["items"] == []
    assert await helix.leave()


# --- a second model for typing --------------------------------------------------------------------------------------


async def test_second_model_completes_without_the_conversation(tmp_path):
    async with bench(tmp_path, quick(inline={"model": "small"})) as b:
        editor = await editor_of(b)
        file = b.project / "a.py"
        editor.open(file, CODE)
        await ready(b, editor)
        b.gate.passes.clear()
        small = await b.app.registry.services.worker.call(lambda backend: backend.companion())
        small._replies[:] = ["um(items)\n", "ave()\n"]
        assert await texts(editor, at(file, 1, 12)) == ["sum(items)"]
        editor.change(file, 2, edit(1, 12, 12, "."))
        assert await texts(editor, at(file, 1, 13)) == ["ave()"]
        (state,) = small._states
        assert small.ids(state) == []
        assert small.passes.passes == len(b.gate.passes)
        assert b.backend.passes.passes == 0
        assert await editor.leave()
        await until(lambda: not small._states)  # what it had read was its editor's


async def test_second_model_that_cannot_be_had_is_said_once_and_the_first_one_serves(tmp_path):
    async with bench(tmp_path, quick(inline={"model": "no/such-model"})) as b:
        editor = await editor_of(b)
        file = b.project / "a.py"
        editor.open(file, CODE)
        await ready(b, editor)

        tried = []

        def refuse(source, _report, _cancelled):
            tried.append(source)
            raise ModelError(f"The model {source} is nowhere.")

        small = await b.app.registry.services.worker.call(lambda backend: backend.companion())
        small.load = refuse
        for version in (2, 3):
            said(b, "um(items)\n")
            assert await texts(editor, at(file, 1, 12)) == ["sum(items)"]
            editor.change(file, version, edit(4, 0, 0, "#"))
        # Where it is looked for, answers would wait: at every keystroke would be too often.
        assert tried == ["no/such-model"]
        apart = b.app.registry.inline._apart
        apart.clock = lambda: RETRY_S + time.monotonic()
        said(b, "um(items)\n")
        assert await texts(editor, at(file, 1, 12)) == ["sum(items)"]
        assert tried == ["no/such-model"] * 2
        assert "inline.model" in b.app.registry._amiss
        notice = "Completions are made by the model of answers: The model no/such-model is nowhere."
        assert [message["message"] for message in editor.of("window/showMessage")] == [notice]
        del small.load  # there it is
        editor.change(file, 4, edit(4, 0, 0, "#"))
        apart.clock = lambda: 2 * RETRY_S + time.monotonic()
        small._replies[:] = ["um(items)\n"]
        assert await texts(editor, at(file, 1, 12)) == ["sum(items)"]
        assert small.passes.passes
        assert "inline.model" not in b.app.registry._amiss
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
