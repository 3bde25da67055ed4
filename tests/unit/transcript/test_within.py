"""Where a reply ends: marks within marks count for nothing."""

from __future__ import annotations

import pytest

from qmlx_lsp.transcript.within import Within, within
from tests.support.small_tokenizers import with_marks

CODEC = with_marks("<tool_call>", "</tool_call>")
NONE = ((), ())


def pair(start: str, end: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(CODEC.encode_fragment(start)), tuple(CODEC.encode_fragment(end))


THINK, CALL = pair("<think>", "</think>"), pair("<tool_call>", "</tool_call>")
PLAIN_CALL = pair("<function name=", "</function>")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("", Within.NOTHING),
        ("yes", Within.NOTHING),
        ("<think>hm", Within.THOUGHT),
        ("<think>hm</think>yes", Within.NOTHING),
        ("<think>\n\n</think>\n\nyes", Within.NOTHING),
        ("</think>yes", Within.NOTHING),
        ("<tool_call>{", Within.CALL),
        ("<tool_call>{}</tool_call>", Within.NOTHING),
        ("<tool_call>{}</tool_call><tool_call>{", Within.CALL),
        ("<think>I could write <tool_call> here.</think>Done.", Within.NOTHING),
        ("<think>I could write <tool_call>", Within.THOUGHT),
        ('<tool_call>{"a": "<think>', Within.CALL),
        ('<tool_call>{"a": "<think>"}</tool_call>yes', Within.NOTHING),
        ("<think>hm</think><tool_call>{", Within.CALL),
        ("a</tool_call>b", Within.NOTHING),
    ],
)
def test_ends(text, want):
    assert within(CODEC, CODEC.encode_fragment(text), THINK, CALL) is want


def test_marks_that_are_plain_text_are_found_in_any_spelling():
    ids = [*b"<function", *b" name=", *b'"look">']
    assert within(CODEC, ids, NONE, PLAIN_CALL) is Within.CALL
    assert within(CODEC, [*ids, *b"</function>"], NONE, PLAIN_CALL) is Within.NOTHING


@pytest.mark.parametrize("think", [NONE, (THINK[0], ()), ((), THINK[1])])
def test_a_mark_without_its_other_is_not_looked_for(think):
    assert within(CODEC, CODEC.encode_fragment("<think>hm"), think, NONE) is Within.NOTHING
