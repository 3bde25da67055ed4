"""Fragments: cut from templates of every kind, put together again, and compared with the template's own rendering."""

import pytest

from qmlx_lsp.engine.scripted_tokenizer import END_OF_TURN, tokenizer_json
from qmlx_lsp.errors import TemplateError
from qmlx_lsp.transcript.encoder import Codec
from qmlx_lsp.transcript.fragments import Marks, derive
from tests.support import templates

CODEC = Codec("m", tokenizer_json())
EOS = frozenset({END_OF_TURN})
NONE, THINK = Marks(), ("<think>", "</think>")
SYSTEM, USERS, REPLIES = "Be brief.", ["Hi", "More?", "And?"], ["Hello.", "Yes."]


def cut(template, *, thinking: bool = False, marks=NONE, eos=EOS):
    return derive("m", template, CODEC, eos, thinking=thinking, marks=marks)


def text(ids) -> str:
    return CODEC.decode(ids)


def composed(fragments) -> str:
    """A conversation of three user turns, the last one open for its reply."""
    parts = [text(fragments.system_before), SYSTEM, text(fragments.system_after), USERS[0]]
    for reply, user in zip(REPLIES, USERS[1:], strict=True):
        parts += [text(fragments.prompt), reply, text(fragments.after_reply), user]
    return "".join([*parts, text(fragments.prompt)])


def chat(system: str | None):
    messages = [] if system is None else [{"role": "system", "content": system}]
    for user, reply in zip(USERS, REPLIES, strict=False):
        messages += [{"role": "user", "content": user}, {"role": "assistant", "content": reply}]
    return [*messages, {"role": "user", "content": USERS[-1]}]


def test_chatml():
    fragments = cut(templates.ChatMl())
    assert text(fragments.system_before) == "<|im_start|>system\n"
    assert text(fragments.system_after) == "<|im_end|>\n<|im_start|>user\n"
    assert text(fragments.prompt) == "<|im_end|>\n<|im_start|>assistant\n"
    assert text(fragments.after_reply) == "<|im_end|>\n<|im_start|>user\n"
    assert fragments.prompt == (258, 10, 257, *b"assistant\n")
    assert (fragments.warnings, fragments.close_thinking) == ((), ())


@pytest.mark.parametrize("template", [templates.ChatMl(), templates.Gemma(), templates.StopIsRole()])
def test_fragments_put_together_are_the_templates_own_rendering(template):
    assert composed(cut(template)) == template.text(chat(SYSTEM), generate=True, thinking=False)


@pytest.mark.parametrize("template", [templates.NoSystem(), templates.SystemLast()])
def test_without_a_system_role_its_text_leads_the_first_question(template):
    messages = chat(None)
    messages[0] = {"role": "user", "content": f"{SYSTEM}\n\n{USERS[0]}"}
    assert composed(cut(template)) == template.text(messages, generate=True, thinking=False)


def test_thinking_prompt():
    fragments = cut(templates.Thinking(), thinking=True, marks=Marks(THINK))
    assert text(fragments.prompt).endswith("<|im_start|>assistant\n<think>\n")
    assert text(fragments.close_thinking) == "\n</think>\n\n"
    assert text(fragments.close_thinking_line) == "</think>\n\n"
    assert (fragments.think_start, fragments.think_end) == ((259,), (260,))


def test_no_thinking_prompt():
    fragments = cut(templates.Thinking(), thinking=False, marks=Marks(THINK))
    assert text(fragments.prompt).endswith("<think>\n\n</think>\n\n")


def test_thinking_that_history_hides_is_closed_all_the_same():
    fragments = cut(templates.ChatMl(), thinking=True, marks=Marks(THINK))
    assert text(fragments.close_thinking) == "\n</think>\n\n"


def test_stop_token_unlike_the_templates_is_said():
    fragments = cut(templates.ChatMl(), eos=frozenset({256}))
    assert fragments.warnings == ("m may stop at another token than its template writes after a reply.",)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (templates.Counting(), "cannot be cut into fixed parts: the head of a reply differs between turns"),
        (templates.Echoing(), "shows a message 2 times"),
        (templates.Hiding(), "shows a message 0 times"),
        (templates.Backwards(), "puts messages into another order"),
        (templates.Wordy(), r"writes 9\d{3} characters as the head of a reply"),
        (templates.ShortIsOther(), "a short conversation is written otherwise"),
        (templates.Refusing(), "does not render a conversation"),
    ],
)
def test_templates_that_cannot_be_used_are_refused_by_name(template, reason):
    with pytest.raises(TemplateError, match=f"The chat template of m .*{reason}"):
        cut(template)
