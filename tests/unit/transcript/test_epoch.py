"""What goes from one epoch into the next: which turns, what stands for the rest, and exactly which ids."""

from __future__ import annotations

from datetime import date
from itertools import pairwise

import pytest

from qmlx_lsp.engine.scripted import ScriptedBackend
from qmlx_lsp.session.model import prepare
from qmlx_lsp.transcript.entry import Entry, Finish, Kind
from qmlx_lsp.transcript.epoch import Summary, begin, complete, head, last_turns, recent_paths, turns
from qmlx_lsp.transcript.suffix import Renderer
from qmlx_lsp.transcript.transcript import Draft, Transcript
from tests.support.bench import text_of

NOTE = "Note: earlier parts of this conversation are not shown, for want of room.\n"


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    return prepare(
        ScriptedBackend().load("", lambda *_: None, lambda: False), thinking=False, today=date.today
    ).renderer


def told(renderer: Renderer, *said: Draft | tuple[str, Finish]) -> Transcript:
    """A transcript of drafts, and of replies given by their text and end."""
    made = Transcript(renderer)
    made.extend(made.draft([(Kind.SYSTEM, "sys", None)]))
    for one in said:
        if len(one) == 3:
            made.extend(made.draft([one]))
        else:
            text, finish = one
            ids = [*text.encode(), *([258] if finish is Finish.COMPLETE else [])]
            header = made.reply_header() if made.tail.place.name == "ASKED" else [257]
            made.extend([made.reply(header, ids, finish, text)])
    return made


def question(text: str) -> Draft:
    return (Kind.QUESTION, text, None)


def reply(text: str, finish: Finish = Finish.COMPLETE) -> tuple[str, Finish]:
    return (text, finish)


def names(entries: list[Entry]) -> list[str]:
    return [turn.question.text + turn.reply.text for turn in turns(entries)]


def test_turns_are_questions_with_replies_whatever_stands_between(renderer: Renderer) -> None:
    made = told(
        renderer, question("A"), reply("a"), (Kind.CONTEXT, "Lines\n", "x.py"), question("B"), reply("b"),
        question("withdrawn"), question("C"), reply("c", Finish.CANCELLED), question("open"),
    )  # fmt: skip
    assert names(list(made.entries)) == ["Aa", "Bb", "Cc"]


def test_what_stands_before_a_reply_to_no_question_is_not_carried(renderer: Renderer) -> None:
    made = told(
        renderer,
        question("A"),
        reply("call"),
        (Kind.CONTEXT, "Result\n", None),
        reply("b"),
        question("C"),
        reply("c"),
    )
    assert names(list(made.entries)) == ["Cc"]


def test_a_turn_that_is_too_long_ends_the_carrying(renderer: Renderer) -> None:
    made = told(renderer, question("A"), reply("a"), question("B" * 50), reply("b"), question("C"), reply("c"))
    third = len(made.log) - made.entries[-2].start
    second = made.entries[-2].start - made.entries[-4].start

    def kept(most: int, tokens: int) -> list[str]:
        return [turn.reply.text for turn in last_turns(made.entries, most, tokens)]

    assert kept(9, 1_000) == ["a", "b", "c"]
    assert kept(2, 1_000) == ["b", "c"]
    assert kept(0, 1_000) == []
    assert kept(9, third) == ["c"]
    assert kept(9, third - 1) == []
    assert kept(9, third + second - 1) == ["c"]  # and not "a", which would fit
    assert kept(9, third + second) == ["b", "c"]


def test_a_summary_is_complete_when_every_later_reply_is_carried(renderer: Renderer) -> None:
    made = told(renderer, question("A"), reply("a"), question("B"), reply("b"), question("C"), reply("c"))
    ends = [entry.end for entry in made.entries if entry.kind is Kind.ASSISTANT]
    for done, expected in ((0, [0, 1, 2, 3]), (1, [0, 1, 2]), (2, [0, 1]), (3, [0])):
        carried = last_turns(made.entries, 3 - done, 1_000)
        found = [
            index for index, end in enumerate(reversed(ends)) if complete(Summary(end, "S"), made.entries, carried)
        ]
        # ``index`` replies came after a summary made there; so many must be among the ``3 - done`` carried ones.
        assert found == [index for index in expected if index < 3]
    assert not complete(None, made.entries, last_turns(made.entries, 3, 1_000))


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        (" S\n\n", ["Summary of the conversation so far:\nS\n"]),
        (" \n", [NOTE]),
        (None, [NOTE]),
    ],
)
def test_what_stands_for_the_rest(renderer: Renderer, summary: str | None, said: list[str]) -> None:
    made = told(renderer, question("A"), reply("a"))
    given = None if summary is None else Summary(len(made.log), summary)
    assert [text for _, text, _ in head(given, made.entries, ())] == said


def test_a_summary_that_leaves_something_out_says_so(renderer: Renderer) -> None:
    made = told(renderer, question("A"), reply("a"), question("B"), reply("b"))
    given = Summary(made.entries[2].end, "S")
    assert [text for _, text, _ in head(given, made.entries, ())][1:] == [NOTE]


def test_a_summary_is_of_one_log(renderer: Renderer) -> None:
    made, other = told(renderer, question("A"), reply("a")), told(renderer, question("B"), reply("b"))
    end = len(made.log)
    given = Summary(end, "S", made.log.digest(end))
    assert given.is_of(made.log)
    assert not given.is_of(other.log)
    assert not given.is_of(Transcript(renderer).log)
    made.extend(made.draft([question("C")]))
    assert given.is_of(made.log)


def test_files_by_when_they_were_last_spoken_of(renderer: Renderer) -> None:
    made = told(
        renderer, (Kind.CONTEXT, "1\n", "a"), (Kind.CONTEXT, "2\n", "b"), (Kind.CONTEXT, "note\n", None),
        (Kind.CONTEXT, "3\n", "c"), (Kind.CONTEXT, "4\n", "a"),
    )  # fmt: skip
    assert recent_paths(made.entries) == ["a", "c", "b"]


def test_opening_in_order_with_replies_as_they_were(renderer: Renderer) -> None:
    """One reply ended by itself, one in the middle of a character."""
    made = told(renderer, question("A"), reply("a"), question("B"), reply("b", Finish.CANCELLED))
    cut = Entry(Kind.ASSISTANT, "b?", (*made.entries[-1].ids, 0xC3), made.entries[-1].start, Finish.CANCELLED)
    entries = [*made.entries[:-1], cut]
    fresh = begin(
        Transcript(renderer), "sys", [(Kind.CONTEXT, "Sum\n", None), (Kind.CONTEXT, "File\n", "f")], turns(entries)
    )
    assert text_of(fresh.log.ids()[:-1]) == (
        "<|im_start|>system\nsys<|im_end|>\n<|im_start|>user\nSum\nFile\nA<|im_end|>\n<|im_start|>assistant\na<|im_end|>"
        "\n<|im_start|>user\nB<|im_end|>\n<|im_start|>assistant\nb"
    )
    assert fresh.log.ids()[-1] == 0xC3
    assert [e.ids for e in fresh.entries if e.kind is Kind.ASSISTANT] == [made.entries[2].ids, cut.ids]
    assert [(e.kind, e.path) for e in fresh.entries[:4]] == [
        (Kind.SYSTEM, None), (Kind.CONTEXT, None), (Kind.CONTEXT, "f"), (Kind.QUESTION, None)
    ]  # fmt: skip
    assert all(one.end == two.start for one, two in pairwise(fresh.entries))
    assert fresh.entries[-1].finish is Finish.CANCELLED
