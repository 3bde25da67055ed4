"""Each reason for which two prompts part, beside a place that looks much like it and has another."""

from __future__ import annotations

import json

import pytest

from qmlx_lsp.engine import scripted_tokenizer
from qmlx_lsp.transcript import moving
from qmlx_lsp.transcript.encoder import Codec
from qmlx_lsp.transcript.entry import Kind
from qmlx_lsp.transcript.reasons import Cause, Place, by_ids, by_length, by_text

HEAD = "<|im_end|>\n<|im_start|>assistant\n"
NEXT = "<|im_end|>\n<|im_start|>user\n"


def place(
    here: str,
    there: str,
    kind: Kind = Kind.CONTEXT,
    *,
    behind: str = "",
    following: str = "",
    role: str | None = None,
    tools: bool = False,
) -> Place:
    """An entry ``here`` from the beginning on, with ``behind`` it what the conversation says then."""
    at = next((n for n, (a, b) in enumerate(zip(here + behind, there, strict=False)) if a != b), len(there))
    return Place(here + behind, there, at, 0, len(here), kind, following, role, tools)


def cause(*given: str, kind: Kind = Kind.CONTEXT, **more: str) -> Cause:
    here, there = given
    return by_text(place(here, there, kind, **more)).cause  # type: ignore[arg-type]


# --- by their ids ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("here", "there", "same", "expected"), [
    (5, 5, 5, Cause.SAME), (5, 4, 4, Cause.ENDS), (4, 5, 4, Cause.LONGER), (5, 4, 3, None), (5, 5, 4, None),
    (0, 3, 0, Cause.LONGER),
])  # fmt: skip
def test_one_goes_on_where_the_other_ends(here: int, there: int, same: int, expected: Cause | None) -> None:
    found = by_length(here, there, same)
    assert (found.cause if found else None) == expected


WORDS = {1: b"h", 2: b"ello", 3: b"hello", 4: b" there", 5: b" here", 6: b"<think>", 7: b"<", 8: b"think>", 9: b""}


@pytest.mark.parametrize(("here", "there", "expected"), [
    ([1, 2, 4], [3, 4], Cause.ENCODED),
    ([3, 4], [1, 2, 4], Cause.ENCODED),
    ([1, 2], [3], Cause.ENCODED),  # to the end of both
    ([1, 2, 4], [3, 5], None),  # the text differs right behind it, which may have joined the ids otherwise
    ([1, 4], [3, 4], None),  # "h there", "hello there"
    ([4, 1], [5, 1], None),
    ([7, 8, 4], [6, 4], Cause.CONTROL),
    ([6, 4], [7, 8, 4], Cause.CONTROL),
    ([7, 4], [6, 4], None),  # "< there" is no control token that was typed
    ([9, 4], [5, 4], None),
])  # fmt: skip
def test_the_same_text_with_other_ids(here: list[int], there: list[int], expected: Cause | None) -> None:
    found = by_ids(here, there, WORDS.__getitem__, {6}, reply=False)
    assert (found.cause if found else None) == expected


def test_a_reply_that_was_encoded_again_is_called_that() -> None:
    found = by_ids([1, 2, 4], [3, 4], WORDS.__getitem__, (), reply=True)
    assert found is not None
    assert found.why == (
        'the reply\'s text is the same, but it was encoded again: "hello" is 2 tokens in the conversation, '
        "1 others there"
    )


def test_a_control_token_that_data_spells_is_found_with_a_real_codec() -> None:
    codec = Codec("m", scripted_tokenizer.tokenizer_json())
    text = "see </think> there"
    data, prompt = codec.encode_data(text), codec.encode_fragment(text)
    found = by_ids(data[4:], prompt[4:], codec.token_bytes, codec.control_ids, reply=False)
    assert found is not None
    assert found.why == '"</think>" is a control token there and was typed as data in the conversation'


# --- messages -------------------------------------------------------------------------------------------------------


def test_a_list_of_tools() -> None:
    listed = 'You help.\n<tools>\n{"type": "function"}\n</tools>'
    assert cause("You help.", listed, kind=Kind.SYSTEM, behind="<|im_end|>\n") is Cause.TOOLS
    assert cause("You help.", listed, kind=Kind.QUESTION, behind="<|im_end|>\n") is Cause.TEXT  # a question about one
    assert by_text(place("You help.", "You hold x", Kind.SYSTEM, tools=True)).cause is Cause.TOOLS
    assert by_text(place("You help.", "You hold x", Kind.SYSTEM)).cause is Cause.SYSTEM


def test_a_reply_is_missing() -> None:
    reply, then = HEAD + "Because", NEXT + "How is that meant?"
    asked = "How is that meant?"
    assert cause(reply, then, kind=Kind.ASSISTANT, behind=then, following=asked) is Cause.MISSING
    # Without its messages' roles, a reply that merely ends earlier is none that is missing.
    assert cause(reply, HEAD + "Bec" + then, kind=Kind.ASSISTANT, behind=then, following=asked) is Cause.TEXT
    # The last entry has nothing behind it: there the role tells.
    other = NEXT + "Never mind."
    assert cause(reply, other, kind=Kind.ASSISTANT) is Cause.TEXT
    assert cause(reply, other, kind=Kind.ASSISTANT, role="user") is Cause.MISSING
    assert cause(reply, HEAD + "No.", kind=Kind.ASSISTANT, role="assistant") is Cause.TEXT


def test_a_context_entry_is_missing() -> None:
    block, question = "File a.py:\nx = 1\n", "What is x?"
    assert cause(block, question, behind=question, following=question) is Cause.MISSING
    # Here the block is there, but another text.
    assert cause(block, "File a.py:\ny = 1\n" + question, behind=question, following=question) is Cause.TEXT
    found = by_text(place(block, question, behind=question, following=question))
    assert found.why == "the context entry is missing there: what follows it in the conversation stands in its place"


def test_thinking_was_dropped() -> None:
    thought, bare = HEAD + "<think>\nLet me see.\n</think>\n\nYes.", HEAD + "Yes."
    then = NEXT + "And?" + HEAD + "<think>\nWell.\n</think>\n\nNo."
    assert by_text(place(thought, bare + then, Kind.ASSISTANT, behind=then)).why == (
        "the reply's thinking was dropped there"
    )
    other = HEAD + "<think>\nI wonder.\n</think>\n\nYes."
    assert by_text(place(thought, other + then, Kind.ASSISTANT, behind=then)).why == (
        "the reply's thinking differs there"
    )
    assert cause(bare, thought + then, kind=Kind.ASSISTANT, behind=then) is Cause.THINKING
    # Thinking was dropped, and the reply is another one.
    assert cause(thought, HEAD + "No." + then, kind=Kind.ASSISTANT, behind=then) is Cause.TEXT
    # A text about thinking is no thinking.
    assert cause("<think>a</think>Yes.", "Yes.", kind=Kind.CONTEXT) is Cause.TEXT


@pytest.mark.parametrize(("mine", "other", "expected"), [
    ('{"a": 1, "b": [2]}', '{"a":1,"b":[2]}', Cause.JSON),
    ('{"a": 1, "b": [2]}', '{"b": [2], "a": 1}', Cause.JSON),
    ('{"a": "ä"}', '{"a": "\\u00e4"}', Cause.JSON),
    ('{"a": 1}', json.dumps('{"a": 1}'), Cause.JSON),
    ('{"a": 1}', '{"a": 2}', Cause.NUMBER),
    ('{"a": "x"}', '{"a":"y"}', Cause.TEXT),
    ("{a: 1}", "{a:1}", Cause.SPACE),  # which is no JSON
    ('{"a": 1} x', '{"a": 1} y', Cause.TEXT),  # the value is the same, and it is not what differs
])  # fmt: skip
def test_json_that_means_the_same(mine: str, other: str, expected: Cause) -> None:
    here, there = (f"<tool_call>\n{value}\n</tool_call>" for value in (mine, other))
    assert cause(here, there, kind=Kind.ASSISTANT) is expected


# --- values that move -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mine", "other", "expected"), [
    ("on 2025-01-02.", "on 2025-01-03.", Cause.DATE),
    ("on 2 Jan 2025, so", "on 13 Feb 2025, so", Cause.DATE),
    ("on Monday, January 6, 2025, so", "on Tuesday, January 7, 2025, so", Cause.DATE),
    ("at 2025-01-02T10:30:00Z it", "at 2025-01-03T11:31:07Z it", Cause.DATE),
    ("at 10:30 it", "at 11:30 it", Cause.TIME),
    ("at 10:30:59 PM it", "at 10:31:00 PM it", Cause.TIME),
    ("a.py:10:20: error", "a.py:11:20: error", Cause.NUMBER),
    ("id 3f2504e0-4f89-41d3-9a0c-0305e82c3301.", "id 3f2504e0-4f89-41d3-9a0c-0305e82c3302.", Cause.ID),
    ("at 9fceb02d0 now", "at 1b2c3d4e5 now", Cause.ID),
    ("call_9fKq2Lm now", "call_8aBc3Xy now", Cause.ID),
    ("the deadbeef now", "the defacedd now", Cause.TEXT),  # words of a to f
    ("in /home/ann/src now", "in /home/bob/src now", Cause.PATH),
    ("in C:\\Users\\ann now", "in C:\\Users\\bob now", Cause.PATH),
    ("see src/a.py now", "see src/b.py now", Cause.PATH),
    ("see a.py now", "see b.py now", Cause.PATH),
    ("see x.foo now", "see x.bar now", Cause.TEXT),  # an attribute
    ("either and/or now", "either and/so now", Cause.TEXT),
    ("turn 9 of it", "turn 10 of it", Cause.NUMBER),
    ("turn 9 of it", "turn x of it", Cause.TEXT),
    ("1. First thing", "2. Second thing", Cause.TEXT),  # the number is not all
    ("on 2025-01-02 we met", "on 2025-01-03 they left", Cause.TEXT),
])  # fmt: skip
def test_values_that_move(mine: str, other: str, expected: Cause) -> None:
    assert cause(mine, other) is expected
    assert cause(other, mine) is expected


def test_a_value_is_named_with_what_it_is_in_each() -> None:
    found = by_text(place("on 2025-01-02 at last", "on 2025-01-13 at last"))
    assert found.why == 'a date differs: "2025-01-02" in the conversation, "2025-01-13" there'
    assert moving.part("turn 9", "turn 12", 5) == moving.Moved(moving.Value.NUMBER, "a number", "9", "12")


# --- white space ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mine", "other", "says"), [
    ("one \ntwo lines", "one\ntwo lines", "a space at the end is missing there"),
    ("one\ntwo lines", "one  \ntwo lines", "a space at the end is missing in the conversation"),
    ("one <|im_end|>", "one<|im_end|>", "a space at the end is missing there"),
    ("one\r\ntwo lines", "one\ntwo lines", "line ends differ"),
    ("one\n\ntwo lines", "one\ntwo lines", "white space differs"),
    ("one two lines", "onetwo lines", "white space differs"),
    ("\tone line", "    one line", "white space differs"),
])  # fmt: skip
def test_white_space(mine: str, other: str, says: str) -> None:
    found = by_text(place(mine, other))
    assert (found.cause, found.why.partition(":")[0]) == (Cause.SPACE, says)


def test_white_space_and_more_is_text() -> None:
    assert cause("one two lines", "one  three lines") is Cause.TEXT


# --- what is left ---------------------------------------------------------------------------------------------------


def test_the_system_text() -> None:
    assert cause("You help well.", "You help a lot.", kind=Kind.SYSTEM) is Cause.SYSTEM
    assert cause("You help well.", "You help a lot.", kind=Kind.QUESTION) is Cause.TEXT
    dated = by_text(place("You help.", "It is 2026-01-01. You help.", Kind.SYSTEM))
    assert dated.why == 'the system text differs, and there it holds a date: "2026-01-01"'
    assert cause("On 2025-01-02 you help.", "On 2025-01-03 you help.", kind=Kind.SYSTEM) is Cause.DATE
