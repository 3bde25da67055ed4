"""``log --follow``: what comes is printed once, as it comes, whatever becomes of the conversation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from qmlx_lsp.cli.log_follow import follow
from qmlx_lsp.cli.log_show import Lines, Objects, Show
from qmlx_lsp.transcript.entry import Finish, Kind
from tests.support.log_writer import SYSTEM, Writer

Step = Callable[[], object]
Capture = pytest.CaptureFixture[str]


class Seen:
    """Follows while ``steps`` are done one after another; what was printed before each, and behind the last."""

    def __init__(self, capsys: Capture) -> None:
        self._capsys = capsys

    def __call__(
        self, path: Path, show: Show, *steps: Step, epoch: int | None = None, limit: int | None = None
    ) -> list[str]:
        printed: list[str] = []
        left: Iterator[Step] = iter(steps)

        def pause() -> None:
            printed.append(self._capsys.readouterr().out)
            step = next(left, None)
            if step is None:
                raise KeyboardInterrupt
            step()

        with pytest.raises(KeyboardInterrupt):
            follow(path, "/project", show, epoch=epoch, limit=limit, pause=pause)
        return printed


@pytest.fixture
def seen(capsys: Capture) -> Seen:
    return Seen(capsys)


def _plain() -> Lines:
    return Lines(tokens=False, terminal=False)


def test_what_is_there_and_what_comes_is_printed_once(writer: Writer, seen: Seen) -> None:
    writer.say(Kind.QUESTION, "Why?")
    assert seen(
        writer.path, _plain(), lambda: None, lambda: writer.reply("So."), lambda: writer.say(Kind.CONTEXT, "x")
    ) == [
        "── 1 you · tokens 0–2\nWhy?\n\n", "", "── 2 qmlx (complete) · tokens 2–7\nSo.\n\n",
        "── 3 context · tokens 7–9\nx\n\n",
    ]  # fmt: skip


def test_a_reply_is_printed_as_it_grows(writer: Writer, seen: Seen) -> None:
    turns: list[int] = []

    def finish() -> None:
        writer.finish(turns[0], "One\n\ntwo.\n", Finish.CANCELLED)
        writer.say(Kind.QUESTION, "And?")

    steps: list[Step] = [
        lambda: turns.append(writer.begin()),
        lambda: writer.journal(turns[0], "On"),
        lambda: writer.journal(turns[0], "One\n\n"),
        lambda: writer.journal(turns[0], "One\n\ntwo"),
        finish,
    ]
    assert seen(writer.path, _plain(), *steps) == [
        "", "", "── 1 qmlx · tokens 0–\nOn", "e", "\n\ntwo", ".\n(cancelled)\n\n── 2 you · tokens 12–14\nAnd?\n\n",
    ]  # fmt: skip


def test_a_reply_that_is_complete_ends_without_a_word(writer: Writer, seen: Seen) -> None:
    turns: list[int] = []
    steps: list[Step] = [
        lambda: turns.append(writer.begin()),
        lambda: writer.journal(turns[0], "One"),
        lambda: writer.finish(turns[0], "One."),
    ]
    assert seen(writer.path, Lines(tokens=True, terminal=False), *steps)[2:] == [
        "── 1 qmlx · tokens 0–\nOne", ".\n7 8 100 101 102 103\n\n",
    ]  # fmt: skip


def test_a_reply_that_is_taken_back_is_said_to_be(writer: Writer, seen: Seen) -> None:
    turns: list[int] = []
    steps: list[Step] = [
        lambda: turns.append(writer.begin()),
        lambda: writer.journal(turns[0], "On"),
        lambda: writer.log.drop_reply(turns[0]),
        lambda: writer.say(Kind.QUESTION, "Again?"),
    ]
    assert seen(writer.path, _plain(), *steps)[2:] == [
        "── 1 qmlx · tokens 0–\nOn", "\n(withdrawn)\n\n", "── 1 you · tokens 0–2\nAgain?\n\n",
    ]  # fmt: skip


def test_objects_come_when_they_are_finished(writer: Writer, seen: Seen) -> None:
    turns: list[int] = []
    steps: list[Step] = [
        lambda: turns.append(writer.begin()),
        lambda: writer.journal(turns[0], "On"),
        lambda: writer.finish(turns[0], "One"),
        lambda: writer.say(Kind.QUESTION, "And?"),
    ]
    *before, reply, question = seen(writer.path, Objects(tokens=True), *steps)
    assert before == ["", "", ""]
    (line,) = reply.splitlines()
    assert json.loads(line) == {
        "entry": 1, "kind": "assistant", "finish": "complete", "text": "One", "span": [0, 5], "epoch": 0,
        "carried": False, "turn": turns[0], "ids": [7, 8, 100, 101, 102],
    }  # fmt: skip
    assert json.loads(question)["entry"] == 2


def test_it_goes_on_in_a_new_epoch(writer: Writer, seen: Seen) -> None:
    writer.say(Kind.QUESTION, "Old?")

    def new() -> None:
        writer.new_epoch("full", SYSTEM)
        writer.say(Kind.QUESTION, "New?")

    first, second = seen(writer.path, _plain(), new)
    assert first == "── 1 you · tokens 0–2\nOld?\n\n"
    heading, _, *rest = second.splitlines()
    assert heading.startswith("══ epoch 1 · began ")
    assert "full" in heading
    assert rest == [
        "── 2 system (said before) · tokens 0–3", "You help.", "", "── 3 you · tokens 3–5", "New?", "",
    ]  # fmt: skip
    only = seen(writer.path, _plain(), lambda: writer.say(Kind.QUESTION, "Newer?"), epoch=0)
    assert only[0].splitlines()[2:] == ["── 1 you · tokens 0–2", "Old?", ""]
    assert only[1] == ""


@pytest.mark.parametrize(("limit", "numbers"), [(0, [4]), (1, [3, 4]), (2, [2, 3, 4]), (9, [1, 2, 3, 4])])
def test_the_limit_is_on_what_was_there(writer: Writer, seen: Seen, limit: int, numbers: list[int]) -> None:
    for text in "abc":
        writer.say(Kind.QUESTION, text)
    printed = seen(writer.path, Objects(tokens=False), lambda: writer.say(Kind.QUESTION, "d"), limit=limit)
    assert [json.loads(line)["entry"] for line in "".join(printed).splitlines()] == numbers


def test_a_log_that_is_not_there_yet_is_waited_for(tmp_path: Path, seen: Seen) -> None:
    path = tmp_path / "conversations.sqlite3"
    made: list[Writer] = []
    steps: list[Step] = [
        path.touch,  # a daemon begins to make it
        lambda: made.append(Writer(path)),
        lambda: made[0].say(Kind.QUESTION, "Why?"),
    ]
    try:
        printed = seen(path, _plain(), *steps, lambda: None)
        assert "".join(printed) == "── 1 you · tokens 0–2\nWhy?\n\n"
        assert printed[:2] == ["", ""]
    finally:
        made[0].log.close()


def test_a_conversation_that_is_forgotten_is_followed_when_it_begins_again(writer: Writer, seen: Seen) -> None:
    writer.say(Kind.QUESTION, "Old?")
    writer.say(Kind.QUESTION, "Older?")

    def again() -> None:
        writer.conversation = writer.log.open("/project", "identity")
        writer.say(Kind.QUESTION, "New?")

    first, forgotten, begun = seen(
        writer.path, _plain(), lambda: writer.log.erase(writer.conversation), again
    )  # fmt: skip
    assert first.count("──") == 2
    assert forgotten == ""
    assert begun == "── 1 you · tokens 0–2\nNew?\n\n"


def test_another_file_of_the_same_name_is_followed(writer: Writer, seen: Seen) -> None:
    writer.say(Kind.QUESTION, "Old?")
    made: list[Writer] = []

    def move_away() -> None:
        writer.log.close()
        writer.path.rename(writer.path.with_name("moved"))

    def another() -> None:
        made.append(Writer(writer.path))
        made[0].say(Kind.QUESTION, "New?")

    printed = seen(writer.path, _plain(), move_away, another, lambda: None)
    made[0].log.close()
    assert "".join(printed) == "── 1 you · tokens 0–2\nOld?\n\n── 1 you · tokens 0–2\nNew?\n\n"
