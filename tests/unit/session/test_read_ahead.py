"""Reading ahead: after a pause the files are said and read, so that of a question only the question is left."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from qmlx_lsp.session import telling
from qmlx_lsp.session.event import Job
from qmlx_lsp.transcript.entry import Kind
from tests.support.bench import Bench, bench, quick
from tests.support.fake_editor import InMemory, edit, initialize_params
from tests.support.waiting import until

QUESTION = "What is it?"
TEXT = "".join(f"line {n}\n" for n in range(200))


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path) as made:
        yield made


async def editor_of(b: Bench, client: str = "neovim-0.12") -> InMemory:
    editor = InMemory(b.app)
    await editor.initialize(initialize_params(client, b.project))
    return editor


def about(file: Path, text: str = QUESTION) -> dict[str, object]:
    return {"text": text, "textDocument": {"uri": file.as_uri()}}


def context(b: Bench) -> list[str]:
    return [entry.text for entry in b.entries() if entry.kind is Kind.CONTEXT]


async def test_after_a_pause_only_the_question_is_left(b: Bench) -> None:
    file = b.project / "a.py"
    file.write_text(TEXT)
    editor = await editor_of(b)
    editor.open(file, TEXT)
    await b.pause()
    assert context(b) == [f"File a.py:\n```python\n{TEXT}```\n"]
    assert await b.live_ids() == b.ids()
    await b.check()
    told = len(b.ids())
    answer = await editor.request("qmlx/ask", about(file))
    assert answer["usage"]["live"] == told
    assert answer["usage"]["plan"] == "live"
    question = next(entry for entry in b.entries() if entry.kind is Kind.QUESTION)
    header = answer["usage"]["context"] - question.end
    assert answer["usage"]["prefilled"] == len(question.ids) + header
    assert len(context(b)) == 1
    await b.check()
    assert await editor.leave()


async def test_a_thousand_keystrokes_are_one_difference_and_undone_ones_are_none(b: Bench) -> None:
    file = b.project / "a.py"
    editor = await editor_of(b)
    editor.open(file, TEXT)
    await b.pause()
    for version in range(2, 1_002):
        editor.change(file, version, edit(3, version - 2, version - 2, "x"))
    await b.pause()
    (_, change) = context(b)
    assert change.count("\n+") == 1
    assert f"+{'x' * 1_000}line 3\n" in change
    editor.change(file, 1_002, edit(0, 0, 0, "typed"))
    editor.change(file, 1_003, edit(0, 0, 5, ""))
    await b.pause()
    assert len(context(b)) == 2
    await editor.request("qmlx/ask", about(file))
    assert len(context(b)) == 2
    assert await editor.leave()


async def test_the_pause_is_longer_after_a_keystroke_than_after_a_save(tmp_path: Path) -> None:
    async with bench(tmp_path, quick(ahead={"after_s": 1.25, "pause_s": 7.5})) as b:
        file = b.project / "a.py"
        editor = await editor_of(b)
        editor.open(file, TEXT)
        await until(lambda: b.pauses.seconds == [1.25])
        editor.change(file, 2, edit(0, 0, 0, "x"))
        await until(lambda: b.pauses.seconds == [1.25, 7.5])
        editor.notify("textDocument/didSave", {"textDocument": {"uri": file.as_uri()}})
        await until(lambda: b.pauses.seconds == [1.25, 7.5, 1.25])
        editor.notify("qmlx/didFocus", {"textDocument": {"uri": file.as_uri()}})
        await until(lambda: b.pauses.seconds == [1.25, 7.5, 1.25, 1.25])
        for nonsense in ({}, {"textDocument": None}, {"textDocument": {"uri": 3}}, []):
            editor.notify("qmlx/didFocus", nonsense)
        assert await editor.leave()


@pytest.mark.parametrize("what", ["types", "saves", "opens", "closes"])
async def test_whatever_the_user_does_stops_it_within_a_pass(tmp_path: Path, what: str) -> None:
    async with bench(tmp_path, quick(engine={"prefill_chunk_tokens": 16})) as b:
        file, other = b.project / "a.py", b.project / "b.py"
        editor = await editor_of(b)
        editor.open(file, TEXT)
        editor.open(other, "other\n")
        b.gate.hold("prefill", 2)
        await b.pauses.passes()
        await b.gate.reached()
        reading = b.app.registry.idle.reading._job
        if what == "types":
            editor.change(file, 2, edit(0, 0, 0, "x"))
        elif what == "saves":
            editor.notify("textDocument/didSave", {"textDocument": {"uri": file.as_uri()}})
        elif what == "opens":
            editor.open(b.project / "c.py", "c\n")
        else:
            editor.close_file(other)
        await until(lambda: reading.cancelled)
        passes = len(b.gate.passes)
        b.gate.open()
        session = await b.session()
        await until(lambda: not session.lock.locked() and session.live_position > 0)
        assert len(b.gate.passes) == passes, "a pass more than the one that ran"
        assert session.live_position == 3 * 16
        await b.check()
        await b.pause()
        assert session.live_position == len(session.transcript.log)
        await b.check()
        assert await editor.leave()


async def test_a_question_stops_it_and_reads_only_what_is_left(tmp_path: Path) -> None:
    async with bench(tmp_path, quick(engine={"prefill_chunk_tokens": 16})) as b:
        file = b.project / "a.py"
        editor = await editor_of(b)
        editor.open(file, TEXT)
        b.gate.hold("prefill", 2)
        await b.pauses.passes()
        await b.gate.reached()
        number = editor.begin("qmlx/ask", about(file))
        reading = b.app.registry.idle.reading._job
        await until(lambda: reading.cancelled)
        b.gate.open()
        usage = (await editor.result(number))["usage"]
        assert usage["live"] == 3 * 16
        assert usage["live"] + usage["prefilled"] == usage["context"]
        assert len(context(b)) == 1
        await b.check()
        assert await editor.leave()


async def test_not_on_a_battery_that_is_low_and_not_when_turned_off(tmp_path: Path) -> None:
    async with bench(tmp_path, quick(ahead={"battery_percent": 30.0})) as b:
        b.power = False
        editor = await editor_of(b)
        editor.open(b.project / "a.py", TEXT)
        await b.pause()
        assert b.battery == [30.0]
        assert b.entries() == []
        b.power = True
        editor.change(b.project / "a.py", 2, edit(0, 0, 0, "x"))
        await b.pause()
        assert len(context(b)) == 1
        assert await editor.leave()
    async with bench(tmp_path, quick(ahead={"enabled": False})) as b:
        editor = await editor_of(b)
        editor.open(b.project / "b.py", TEXT)
        await editor.request("qmlx/status")
        assert not b.pauses.seconds
        assert await editor.leave()


async def test_nothing_is_said_behind_a_question_that_was_withdrawn(b: Bench) -> None:
    """The same question asked again is not appended again, which it would be behind something else."""
    file = b.project / "a.py"
    file.write_text(TEXT)
    await b.cancelled(QUESTION, "prefill", path=str(file))
    asked = b.ids()
    editor = await editor_of(b)
    editor.open(b.project / "b.py", TEXT)
    await b.pause()
    assert b.ids() == asked
    editor.close_file(b.project / "b.py")
    await b.ask(QUESTION, path=str(file))
    assert [entry.kind for entry in b.entries()].count(Kind.QUESTION) == 1
    assert await editor.leave()


async def test_it_never_fills_the_context(tmp_path: Path) -> None:
    """What is read ahead leaves room for the question, and begins no epoch however much is opened."""
    async with bench(tmp_path, quick(context={"max_tokens": 2_000, "share": 0.5, "file_share": 0.3})) as b:
        editor = await editor_of(b)
        for number in range(8):
            editor.open(b.project / f"f{number}.py", "x" * 200 + "\n")
            await b.pause()
        session = await b.session()
        system = session.transcript.entries[0].end
        assert 800 < len(session.transcript.log) - system <= 1_000
        assert len(session.transcript.log) <= 1_500
        assert session.conversation.epoch == 0
        assert (await editor.request("qmlx/ask", about(b.project / "f7.py")))["finish"] == "complete"
        assert session.conversation.epoch == 0
        assert await editor.leave()


async def test_what_has_no_room_ahead_is_left_to_the_question(tmp_path: Path) -> None:
    """It is neither said to be old, nor forgotten."""
    limits = {"max_tokens": 3_000, "share": 0.5, "file_share": 0.45, "epoch_share": 0.3}
    async with bench(tmp_path, quick(context=limits)) as b:
        for name in ("a.py", "b.py"):
            (b.project / name).write_text("".join(f"{name} {n}\n" for n in range(40)))
            await b.ask(f"@{name}")
        session = await b.session()
        before = dict(session.told)
        (b.project / "a.py").write_text("".join(f"a.py {n}{'!' * (n % 5)}\n" for n in range(40)))
        (b.project / "b.py").rename(b.project / "c.py")
        said = len(context(b))
        b.app.registry.idle.stirred(b.project)
        await b.pause()
        assert len(context(b)) == said, "there is no room ahead"
        assert session.told == before
        await b.ask("Now?")
        new = "".join(context(b)[said:])
        assert "Change in a.py:" in new or "File a.py (new text):" in new
        assert "File b.py was renamed to c.py.\n" in new
        await b.check()


async def test_what_the_user_does_while_files_are_looked_at_stops_it(
    b: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = b.project / "a.py"
    editor = await editor_of(b)
    editor.open(file, TEXT)
    real = telling.choose

    def looking(*arguments: Any) -> Any:
        b.app.registry.idle.reading.interrupt()  # from another thread, as good as any keystroke
        return real(*arguments)

    monkeypatch.setattr(telling, "choose", looking)
    await b.pause()
    assert b.entries() == []
    monkeypatch.setattr(telling, "choose", real)
    editor.change(file, 2, edit(0, 0, 0, "x"))
    await b.pause()
    assert context(b) == [f"File a.py:\n```python\nx{TEXT}```\n"]
    assert await editor.leave()


async def test_a_file_that_changes_by_itself_interrupts_nothing_and_is_read_ever_more_rarely(b: Bench) -> None:
    idle = b.app.registry.idle
    (b.project / "app.txt").write_text(TEXT)
    await b.ask("@app.txt")
    pauses = []
    for number in range(3):
        (b.project / "app.txt").write_text(TEXT + f"{number}\n")
        idle.noticed(b.project)
        await until(lambda: b.pauses._waiting)
        pauses.append(b.pauses.seconds[-1])
        reading = idle.reading._job
        for _ in range(5):
            idle.noticed(b.project)
        assert not reading.cancelled
        assert len(b.pauses.seconds) == number + 1
        await b.pause()
    assert pauses == [1.5, 3.0, 6.0]
    idle.stirred(b.project)
    await b.pause()
    idle.noticed(b.project)
    await until(lambda: b.pauses._waiting)
    assert b.pauses.seconds[-1] == 1.5


async def test_after_a_restart_the_state_is_restored_ahead(b: Bench) -> None:
    file = b.project / "a.py"
    file.write_text(TEXT)
    await b.ask(QUESTION, path=str(file))
    await b.restart()
    editor = await editor_of(b)
    editor.open(file, TEXT)
    await b.pause()
    session = await b.session()
    assert session.live_position == len(session.transcript.log)
    usage = (await editor.request("qmlx/ask", about(file)))["usage"]
    assert usage["plan"] == "live"
    assert usage["restored"] == 0
    await b.check()
    assert await editor.leave()


async def test_an_error_of_the_engine_is_no_harm(b: Bench) -> None:
    file = b.project / "a.py"
    editor = await editor_of(b)
    editor.open(file, TEXT)
    b.gate.fail("prefill")
    await b.pause()
    await b.check()
    answer = await editor.request("qmlx/ask", about(file))
    assert answer["finish"] == "complete"
    assert len(context(b)) == 1
    await b.check()
    assert await editor.leave()


async def test_a_conversation_that_is_forgotten_meanwhile_is_not_written(b: Bench) -> None:
    file = b.project / "a.py"
    await b.ask(QUESTION)
    editor = await editor_of(b)
    editor.open(file, TEXT)
    b.gate.hold("prefill")
    await b.pauses.passes()
    await b.gate.reached()
    forgetting = editor.begin(
        "workspace/executeCommand", {"command": "qmlx.forgetConversation", "arguments": [str(b.project)]}
    )
    reading = b.app.registry.idle.reading._job
    await until(lambda: reading.cancelled)
    b.gate.open()
    await editor.result(forgetting)
    assert b.entries() == []
    assert await editor.leave()


async def test_stopping_the_daemon_ends_it(b: Bench) -> None:
    editor = await editor_of(b)
    editor.open(b.project / "a.py", TEXT)
    await until(lambda: b.pauses.seconds)
    await b.app.registry.stop(5)
    assert not b.app.registry.idle.reading._running()
    await b.ask(QUESTION, Job())
    assert await editor.leave()
