"""What another program's prompt may look like, and what is said of one that is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qmlx_lsp.errors import QuestionError
from qmlx_lsp.transcript.prompt import parse

TWO = [{"role": "system", "content": "Help."}, {"role": "user", "content": "Why?"}]


@pytest.mark.parametrize("text", [
    json.dumps(TWO),
    json.dumps(TWO, indent=2),
    json.dumps({"model": "m", "messages": TWO, "stream": True}),
    "\n".join(map(json.dumps, TWO)),
    "\r\n".join(map(json.dumps, TWO)) + "\r\n\r\n",
    json.dumps([TWO[0], {"role": "user", "content": [{"type": "text", "text": t} for t in ("Wh", "y?")]}]),
], ids=["list", "indented", "request", "lines", "lines of Windows", "parts"])  # fmt: skip
def test_one_list_of_messages_in_many_forms(text: str) -> None:
    prompt = parse(text, "f")
    assert (prompt.messages, prompt.ids, prompt.text, prompt.variables) == (TWO, None, None, {})


def test_a_single_message_is_a_list_of_one() -> None:
    assert parse(json.dumps(TWO[1]), "f").messages == TWO[1:]


def test_a_request_tells_the_template_of_its_tools_and_switches() -> None:
    tools = [{"type": "function", "function": {"name": "x"}}]
    request: dict[str, Any] = {"messages": TWO, "tools": tools, "chat_template_kwargs": {"enable_thinking": True}}
    assert parse(json.dumps(request), "f").variables == {"enable_thinking": True, "tools": tools}
    assert parse(json.dumps({"messages": TWO, "tools": []}), "f").variables == {}


def test_arguments_of_a_call_are_an_object_however_they_came() -> None:
    def call(arguments: Any) -> dict[str, Any]:
        return {"type": "function", "function": {"name": "x", "arguments": arguments}}

    given = {"role": "assistant", "content": None, "tool_calls": [call('{"a": 1}'), call({"a": 1}), call("{oops")]}
    (message,) = parse(json.dumps([given]), "f").messages or ()
    assert message["content"] == ""
    assert [c["function"]["arguments"] for c in message["tool_calls"]] == [{"a": 1}, {"a": 1}, "{oops"]


def test_numbers_are_ids() -> None:
    assert parse("[1, 2, 2147483647]", "f").ids == [1, 2, 2147483647]


@pytest.mark.parametrize("text", [
    "Why?", "[INST]Why?[/INST]", "{code}", "[1] Smith et al.", "<|im_start|>user\nWhy?", " ", '"quoted"', "7",
])  # fmt: skip
def test_all_else_is_a_text(text: str) -> None:
    assert parse(text, "f").text == text


@pytest.mark.parametrize(("text", "said"), [
    ("[]", "f is empty: there is nothing to compare."),
    ('{"messages": []}', "f: messages is empty: there is nothing to compare."),
    ('{"prompt": "x"}', "f is JSON, but no prompt: the object has neither messages nor a role."),
    ('{"messages": "x"}', "f: messages is no list."),
    ('{"messages": [1, 2]}', "f: messages is a list of numbers."),
    ('{"messages": [{"role": "user"}], "tools": {}}', "f: tools is no list of objects."),
    ('{"messages": [{"role": "user"}], "chat_template_kwargs": 1}', "f: chat_template_kwargs is no object."),
    ('[{"role": "user", "content": "x"}, {"content": "x"}]', "f: item 2 is no message: it has no role."),
    ('[{"role": "user", "content": 3}]', "f: item 1 is no message: its content is no text."),
    ('[{"role": "user", "content": [{"type": "image_url"}]}]',
     "f: item 1 is no message: a part of its content is no text."),
    ('[{"role": "a", "tool_calls": {}}]', "f: item 1 is no message: its tool_calls are no list of objects."),
    ('[1, "x"]', "f: item 1 is no message: it is no object."),
    ("[1, true]", "f: item 1 is no message: it is no object."),
    ("[1, -1]", "f: number 2 (-1) is no token's id (0 to 2147483647)."),
    ("[2147483648]", "f: number 1 (2147483648) is no token's id (0 to 2147483647)."),
    ('[{"role": "u",\n"content": }]', "f begins as JSON but is none: Expecting value: line 2 column 12 (char 26)."),
    ('{"role": "user"}\n\n{"role"\n', "f: line 3 is not JSON, as the lines before it are."),
    ('{"role": "user"}\n[1]\n', "f: line 2 is no message: it is no object."),
    ("[" * 100_000, "f is nested too deeply for a list of messages."),
])  # fmt: skip
def test_what_is_no_prompt_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(QuestionError) as caught:
        parse(text, "f")
    assert str(caught.value) == said
