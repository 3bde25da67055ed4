"""What a person sees of replies in channels and tags, and of all others."""

from __future__ import annotations

import pytest

from qmlx_lsp.transcript.channels import Messages, Tags, find_channels
from qmlx_lsp.transcript.showing import Shown
from tests.support.small_tokenizers import with_marks

HARMONY = with_marks("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>")
SOLAR = with_marks("<|begin|>", "<|end|>", "<|content|>", "<|think|>", "<|tool_calls|>", "<|calls|>")
TAGS = with_marks("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
PLAIN = with_marks()
HARMONY_GRAMMAR = find_channels(HARMONY, "<|end|><|start|>assistant", "<|end|><|start|>user<|message|>")
SOLAR_GRAMMAR = find_channels(SOLAR, "<|end|><|begin|>assistant", "<|end|><|begin|>user<|content|>")
TAG_GRAMMAR = find_channels(TAGS, "<|open|>response<|sep|>", "<|close|>response<|sep|>")


def shown(codec, channels, reply: str, silent: tuple[str, ...] = ()) -> str:
    stops = frozenset(token for text in silent if (token := codec.control(text)) is not None)
    showing = Shown(codec, stops, channels)
    pieces = [showing.add(token) for token in codec.encode_fragment(reply)]
    return "".join(pieces) + showing.finish()


def test_grammars_are_found():
    assert isinstance(HARMONY_GRAMMAR, Messages)
    assert isinstance(SOLAR_GRAMMAR, Messages)
    assert isinstance(TAG_GRAMMAR, Tags)


@pytest.mark.parametrize(
    ("reply", "want"),
    [
        ("<|channel|>final<|message|>Yes: 你好.", "Yes: 你好."),
        (
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
            "<think>\nHm.\n</think>\n\nYes.",
        ),
        ("<|channel|>analysis<|message|>Hm", "<think>\nHm\n</think>\n\n"),
        (
            "<|channel|>commentary to=functions.look <|constrain|>json<|message|>{\"a\": 1}<|call|>",
            "<tool_call>functions.look\n{\"a\": 1}</tool_call>\n",
        ),
        ("<|channel|>commentary<|message|>I will look.", "I will look."),
        ("<|channel|>fin", ""),
    ],
)  # fmt: skip
def test_harmony(reply, want):
    assert shown(HARMONY, HARMONY_GRAMMAR, reply, ("<|return|>", "<|call|>")) == want


def test_messages_without_channels():
    reply = "<|think|>Hm.<|end|><|begin|>assistant<|content|>Yes.<|end|>"
    assert shown(SOLAR, SOLAR_GRAMMAR, reply, ("<|end|>",)) == "<think>\nHm.\n</think>\n\nYes."


def test_tags():
    reply = (
        "Yes.<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"look\"<|sep|>x<|close|>call<|sep|>"
        "<|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>"
    )  # fmt: skip
    want = 'Yes.<tools><call tool="look">x</call></tools>'
    assert shown(TAGS, TAG_GRAMMAR, reply, ("<|end_of_msg|>",)) == want
    thinking = "Hm.<|close|>think<|sep|><|open|>response<|sep|>Yes."
    assert shown(TAGS, TAG_GRAMMAR, thinking) == "Hm.\n</think>\n\nYes."


def test_all_others_are_shown_as_they_are_but_for_their_end():
    assert shown(PLAIN, None, "<think>Hm.</think>Yes.<|im_end|>", ("<|im_end|>",)) == "<think>Hm.</think>Yes."


def test_half_a_character_waits_for_the_other():
    showing = Shown(PLAIN, frozenset(), None)
    assert [showing.add(byte) for byte in "é".encode()] == ["", "é"]
    assert (showing.add(0xC3), showing.finish()) == ("", "�")
