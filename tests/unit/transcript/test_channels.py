"""Replies whose heads the model writes itself, cut at every place: what follows makes them whole again."""

from __future__ import annotations

import re

import pytest

from qmlx_lsp.transcript.entry import Finish, Kind
from qmlx_lsp.transcript.families import FAMILIES
from qmlx_lsp.transcript.fragments import Fragments, derive
from qmlx_lsp.transcript.suffix import Renderer
from qmlx_lsp.transcript.template import JinjaTemplate
from qmlx_lsp.transcript.transcript import Transcript
from tests.support.small_tokenizers import with_marks
from tests.support.templates import TAG_TEMPLATE

HARMONY_MARKS = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>")
SOLAR_MARKS = ("<|begin|>", "<|end|>", "<|content|>", "<|think|>", "<|tool_calls|>", "<|calls|>")
TAG_MARKS = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
SOLAR = (
    "{%- for m in messages %}{{ '<|begin|>' + m.role + '<|content|>' + m.content + '<|end|>' }}{% endfor %}"
    "{%- if add_generation_prompt %}<|begin|>assistant{% endif %}"
)


def transcript_of(template: str, marks: tuple[str, ...], stops: tuple[str, ...]) -> Transcript:
    codec = with_marks(*marks)
    eos = frozenset(token for stop in stops if (token := codec.control(stop)) is not None)
    made = Renderer(derive("m", JinjaTemplate("m", template, {}), codec, eos, thinking=False), codec, eos)
    transcript = Transcript(made)
    transcript.extend(transcript.draft([(Kind.SYSTEM, "Be exact.", None), (Kind.QUESTION, "What?", None)]))
    return transcript


def cut_and_asked(transcript: Transcript, reply: str, count: int) -> str:
    """The whole conversation when ``reply`` was cut after ``count`` ids and another question follows."""
    made = transcript._renderer
    ids = made.codec.encode_fragment(reply)[:count]
    again = Transcript(made, transcript.entries)
    again.extend([again.reply(again.reply_header(), ids, Finish.CANCELLED, "")])
    before = again.log.ids()
    again.extend(again.draft([(Kind.QUESTION, "And?", None)]))
    assert again.log.ids(0, len(before)) == before
    return made.codec.decode([*again.log.ids(), *again.reply_header()])


def lengths(template: str, marks: tuple[str, ...], reply: str) -> range:
    return range(1, len(with_marks(*marks).encode_fragment(reply)) + 1)


# --- messages -----------------------------------------------------------------------------------------------------

# A name that was cut in the middle is what it is: nothing is taken away.
HEAD = r"<\|start\|>(system|developer|user|assistant)( [\w.=]*)?(<\|channel\|>\w+)?( \w*)?"
HARMONY = re.compile(rf"({HEAD}<\|message\|>[^<]*(<\|end\|>|<\|call\|>))+<\|start\|>assistant")
HARMONY_REPLY = (
    "<|channel|>analysis<|message|>I think so.<|end|><|start|>assistant<|channel|>final<|message|>Yes, it is."
)
HARMONY_CALL = (
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant to=functions.look<|channel|>commentary json"
)


@pytest.mark.parametrize("reply", [HARMONY_REPLY, HARMONY_CALL + '<|message|>{"path": "a'])
def test_harmony_is_whole_wherever_it_was_cut(reply):
    transcript = transcript_of(FAMILIES["Harmony"][1], HARMONY_MARKS, ("<|return|>", "<|call|>"))
    for count in lengths(FAMILIES["Harmony"][1], HARMONY_MARKS, reply):
        whole = cut_and_asked(transcript, reply, count)
        assert HARMONY.fullmatch(whole), whole
        assert whole.count("<|start|>user<|message|>") == 2
        assert whole.endswith("<|end|><|start|>user<|message|>And?<|end|><|start|>assistant")


@pytest.mark.parametrize(
    ("said", "added"),
    [
        ("<|channel|>", "analysis<|message|>"),
        ("<|channel|>final", "<|message|>"),
        ("<|channel|>final<|message|>", ""),
        ("<|channel|>analysis<|message|>Hm.<|end|><|start|>", "assistant<|channel|>analysis<|message|>"),
        ("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant", "<|channel|>analysis<|message|>"),
        ("<|channel|>ana", "lysis<|message|>"),
        ("<|channel|>fin", "<|message|>"),
        ("<|channel|>analysis<|message|>Hm.<|end|><|start|>assi", "stant<|channel|>analysis<|message|>"),
        (" to=functions.look", "<|channel|>analysis<|message|>"),
    ],
)
def test_harmony_head(said, added):
    transcript = transcript_of(FAMILIES["Harmony"][1], HARMONY_MARKS, ("<|return|>",))
    count = len(with_marks(*HARMONY_MARKS).encode_fragment(said))
    whole = cut_and_asked(transcript, said, count)
    assert whole.endswith(
        f"<|start|>assistant{said}{added}<|end|><|start|>user<|message|>And?<|end|><|start|>assistant"
    )


def test_message_that_ended_is_not_ended_again():
    transcript = transcript_of(FAMILIES["Harmony"][1], HARMONY_MARKS, ("<|return|>",))
    said = "<|channel|>analysis<|message|>Hm.<|end|>"
    whole = cut_and_asked(transcript, said, len(with_marks(*HARMONY_MARKS).encode_fragment(said)))
    assert f"{said}<|start|>user<|message|>And?" in whole


SOLAR_WHOLE = re.compile(r"(<\|begin\|>\w+<\|(content|think|tool_calls)\|>[^<]*<\|end\|>)+<\|begin\|>assistant")


def test_heads_without_channels_are_whole_wherever_they_were_cut():
    reply = "<|think|>Hm.<|end|><|begin|>assistant<|content|>Yes."
    transcript = transcript_of(SOLAR, SOLAR_MARKS, ("<|end|>",))
    for count in lengths(SOLAR, SOLAR_MARKS, reply):
        whole = cut_and_asked(transcript, reply, count)
        assert SOLAR_WHOLE.fullmatch(whole), whole


# --- tags -----------------------------------------------------------------------------------------------------------


def check_nesting(text: str) -> None:
    """Every tag that is opened is closed, in turn, up to the head of the reply that is to come."""
    stack: list[str] = []
    for kind, name in re.findall(r"<\|(open|close)\|>(\w*)[^<]*<\|sep\|>", text):
        if kind == "open":
            stack.append(name)
        else:
            assert stack, text
            assert stack.pop() == name, text
    assert stack == ["message", "response"], text
    assert len(re.findall(r"<\|(?:open|close)\|>", text)) == text.count("<|sep|>"), text


TAG_REPLY = (
    "Let me see.<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"look\" index=\"1\"<|sep|>"
    "<|open|>argument key=\"path\"<|sep|>a.py<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
    "<|close|>message<|sep|>"
)  # fmt: skip


def test_tags_are_closed_wherever_they_were_cut():
    transcript = transcript_of(TAG_TEMPLATE, TAG_MARKS, ("<|end_of_msg|>",))
    codec = with_marks(*TAG_MARKS)
    ids = codec.encode_fragment(TAG_REPLY)
    for count in range(1, len(ids) + 1):
        whole = cut_and_asked(transcript, TAG_REPLY, count)
        inside_open_name = re.search(r"<\|open\|>\w*$", codec.decode(ids[:count]))
        if inside_open_name is None:
            check_nesting(whole)
        assert whole.count('<|open|>message role="user"<|sep|>') == 2
        assert whole.count("<|end_of_msg|>") == 4  # system, question, reply, question


@pytest.mark.parametrize(
    ("said", "added"),
    [
        ("x<|close|>response<|sep|><|open|>too", "<|sep|><|close|>too<|sep|>"),
        ("x<|close|>response<|sep|><|open|>resp", "onse<|sep|><|close|>response<|sep|>"),
        ("x<|close|>res", "ponse<|sep|>"),
        ("x<|close|>foo", "<|sep|><|close|>response<|sep|>"),
    ],
)
def test_a_name_that_was_cut(said, added):
    """It is completed where it is the beginning of one that is known, and stays what it is elsewhere."""
    transcript = transcript_of(TAG_TEMPLATE, TAG_MARKS, ("<|end_of_msg|>",))
    whole = cut_and_asked(transcript, said, len(with_marks(*TAG_MARKS).encode_fragment(said)))
    assert f"{said}{added}<|close|>message<|sep|><|end_of_msg|>" in whole


def test_thinking_in_tags():
    prompt_with_thinking = TAG_TEMPLATE.replace(
        "<|open|>response<|sep|>' }}{% endif %}", "<|open|>think<|sep|>' }}{% endif %}"
    )
    transcript = transcript_of(prompt_with_thinking, TAG_MARKS, ("<|end_of_msg|>",))
    whole = cut_and_asked(transcript, "Hm", 2)
    made = transcript._renderer
    shown = made.shown(made.fragments.prompt)
    said = made.codec.encode_fragment("Hm.<|close|>think<|sep|><|open|>response<|sep|>Yes.")
    assert "".join(map(shown.add, said)) == "<think>\nHm.\n</think>\n\nYes."
    assert "Hm<|close|>think<|sep|><|close|>message<|sep|><|end_of_msg|>" in whole


# --- everybody else -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["ChatML", "Llama 3", "Gemma", "Mistral"])
def test_most_templates_have_no_channels(family):
    marks, template = FAMILIES[family]
    codec = with_marks(*marks, "<s>", "</s>")
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    fragments: Fragments = derive("m", JinjaTemplate("m", template, tokens), codec, frozenset(), thinking=False)
    assert fragments.channels is None
