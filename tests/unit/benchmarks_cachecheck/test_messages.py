"""What clients send, and what they change in it."""

from __future__ import annotations

import json

import pytest

from benchmarks.cachecheck import messages
from benchmarks.cachecheck.context import context, edited
from benchmarks.cachecheck.conversation import Change, Context
from benchmarks.cachecheck.prefix import common_chars

LINES = Context("code", "".join(f"line {number}\n" for number in range(100)))
HIDDEN = (Change.FIELDS, Change.REASONING_SENT)  # not shown by templates, as far as anybody knows
SHOWN = (Change.CALL_IDS, Change.CALL_ARGUMENTS, Change.TOOL_ORDER, Change.DATE, Change.BLANK, Change.EARLY_EDIT)


def body() -> messages.Body:
    asked = messages.asked(messages.opening(LINES, tools=True), "Why?")
    return messages.answered(asked, "Because.")


@pytest.mark.parametrize("change", HIDDEN)
def test_hidden_changes_say_the_same(change: Change) -> None:
    made = messages.changed(body(), change, "I think.")
    assert made != body()
    assert messages.said(made) == messages.said(body())


@pytest.mark.parametrize("change", [*SHOWN, *HIDDEN])
def test_a_change_leaves_the_body_that_it_is_given(change: Change) -> None:
    given = body()
    messages.changed(given, change, "I think.")
    assert given == body()


@pytest.mark.parametrize(
    ("change", "behind"),
    [
        (Change.DATE, "Today is "),
        (Change.TOOL_ORDER, '<tools>[{"type": "function", "function": {"name": "r'),  # read_file, run_tests
        (Change.EARLY_EDIT, "line 7\n"),  # a tenth of the lines, two of them a heading
        (Change.CALL_IDS, 'call_'),
        (Change.CALL_ARGUMENTS, '"arguments": "{\\"'),
        (Change.BLANK, "<assistant>"),
    ],
)  # fmt: skip
def test_changes_are_seen_where_they_are(change: Change, behind: str) -> None:
    plain = messages.said(messages.asked(body(), "And?"))
    other = messages.said(messages.asked(messages.changed(body(), change), "And?"))
    assert plain != other
    assert plain[: common_chars(plain, other)].endswith(behind)


def test_arguments_stay_the_same_to_a_parser() -> None:
    assert json.loads(messages.ARGUMENTS[0]) == json.loads(messages.ARGUMENTS[1])


def test_a_question_closes_an_open_message_or_is_one() -> None:
    opened = messages.asked(messages.opening(LINES, tools=False), "Why?")
    assert [message["role"] for message in opened["messages"]] == ["system", "user"]
    assert opened["messages"][1]["content"].endswith("line 99\n\nWhy?")
    more = messages.asked(messages.answered(opened, "So."), "And?")
    assert [message["role"] for message in more["messages"]] == ["system", "user", "assistant", "user"]
    assert messages.said(more).startswith(messages.said(opened))


def test_contexts_repeat_and_share_no_beginning() -> None:
    one, again, other = (context(name, 3_000, seed=1) for name in ("a", "a", "b"))
    assert one == again
    assert 3_000 <= len(one.text) < 3_500
    assert common_chars(one.text, other.text) < 20
    assert context("a", 3_000, seed=2).text != one.text


def test_an_edit_changes_one_line_early() -> None:
    text = context("a", 3_000, seed=1).text
    before, after = text.splitlines(), edited(text).splitlines()
    changed = [at for at, (one, other) in enumerate(zip(before, after, strict=True)) if one != other]
    assert changed == [len(before) // 10]
