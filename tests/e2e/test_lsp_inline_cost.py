"""Inline completions over the protocol: which of many is answered, what they cost, what they leave behind."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from qmlx_lsp.errors import ModelError
from qmlx_lsp.session.apart import RETRY_S
from qmlx_lsp.transcript.entry import Finish, Kind
from tests.support.bench import Bench, bench, quick
from tests.support.completions import AUTOMATIC, CODE, INLINE, INVOKED, at, editor_of, opened, ready, said, texts
from tests.support.fake_editor import InMemory, edit
from tests.support.waiting import until


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path) as made:
        yield made


# --- B24, B32: the newest counts -----------------------------------------------------------------------------------


async def typing(editor: InMemory, file: Path, count: int) -> list[Any]:
    numbers = []
    for version in range(2, count + 2):
        editor.change(file, version, edit(0, version + 1, version + 1, "x"))
        numbers.append(editor.begin(INLINE, at(file, 0, version + 2)))
    return numbers


async def test_burst_without_cancels_costs_one_prompt(b):
    editor, file = await opened(b, "foo\n")
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
    editor, file = await opened(b, "foo\n")
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
    editor, file = await opened(b, "foo\n")
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
    editor, file = await opened(b, "foo\n")
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


async def test_after_a_pause_the_window_has_been_read_again_behind_what_was_told(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    file.write_text(CODE)
    editor.open(file, CODE)
    await b.pause()
    said(b, "um(items)\n")
    await texts(editor, at(file, 1, 12))
    editor.change(file, 2, edit(1, 12, 12, "x"))
    said(b, "y\n")
    await texts(editor, at(file, 1, 13))
    await b.pause()  # the difference is told and read
    session = await b.app.registry.session(b.project)
    assert session.transcript.entries[-1].text.startswith("File a.py")
    assert b.backend.ids(session.live) == session.transcript.log.ids(0)
    editor.change(file, 3, edit(1, 13, 13, "y"))
    assert await texts(editor, at(file, 1, 14))
    assert b.app.registry.inline.last.prefilled == 0
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
    await until(lambda: all(job.cancelled for job in b.app.registry.inline._newest.values()))
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
        editor, file = await opened(b, "x = 1\n\n")
        for kind in (AUTOMATIC, INVOKED):
            said(b, f"y = {kind}\n")
            assert await texts(editor, at(file, 1, 0, kind)) == [f"y = {kind}"]
            editor.change(file, kind + 5, edit(0, 5, 5, "0"))
        turns = (await b.app.registry.conversation(b.project, None))["turns"]
        assert len(turns) == len(kinds)
        assert await editor.leave()


# --- what becomes of it --------------------------------------------------------------------------------------------


async def test_accepted_partly_accepted_and_rejected_are_told_from_the_text(b):
    editor, file = await opened(b, CODE)
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


# --- a second model for typing --------------------------------------------------------------------------------------


async def test_second_model_completes_without_the_conversation(tmp_path):
    async with bench(tmp_path, quick(inline={"model": "small"})) as b:
        editor, file = await opened(b, CODE)
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
        editor, file = await opened(b, CODE)

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
