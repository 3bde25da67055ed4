"""A prompt from elsewhere, to be compared with a conversation: messages, a request to a server, ids, or text.

Messages become what servers make of them: texts in parts are joined, missing texts are empty, and a call's arguments
are an object, whether they came as one or as JSON text.

Invariant: whatever is not understood is refused with its place; nothing of a prompt is passed over in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from qmlx_lsp.errors import QuestionError
from qmlx_lsp.transcript.template import Messages

ID_MAX = (1 << 31) - 1  # what a token log can hold
# What cannot be anything but JSON; ``[INST]`` and ``{code}`` are the beginnings of texts.
_JSON = re.compile(r'\s*(?:\[\s*\{|\{\s*")')


@dataclass(frozen=True, slots=True)
class Prompt:
    """One of ``messages``, ``ids`` and ``text`` is not None. ``variables``: what the request tells the template,
    its list of tools among them."""

    messages: Messages | None = None
    ids: Sequence[int] | None = None
    text: str | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)

    @property
    def form(self) -> str:
        return "messages" if self.messages is not None else "ids" if self.ids is not None else "text"


def parse(text: str, name: str) -> Prompt:
    """What ``text`` holds. ``name`` is its file's, for messages.

    Raises:
        QuestionError: it is JSON, but none of a prompt, or not whole; says where.
    """
    try:
        found = json.loads(text)
    except RecursionError:
        raise QuestionError(f"{name} is nested too deeply for a list of messages.") from None
    except ValueError as error:
        return _not_one_value(text, name, error)
    if isinstance(found, list):
        return _listed(found, name)
    if not isinstance(found, dict):
        return Prompt(text=text)  # a word or a number
    if "messages" in found:
        return _request(found, name)
    if "role" in found:
        return _listed([found], name)
    raise QuestionError(f"{name} is JSON, but no prompt: the object has neither messages nor a role.")


def _not_one_value(text: str, name: str, error: ValueError) -> Prompt:
    """One message a line, or text that is no JSON at all."""
    if not _JSON.match(text):
        return Prompt(text=text)
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    parsed: list[Any] = []
    for number, line in lines:
        try:
            parsed.append(json.loads(line))
        except (ValueError, RecursionError):
            if not parsed:
                break  # not lines of JSON: whatever the whole of it lacks is what is wrong
            raise QuestionError(f"{name}: line {number} is not JSON, as the lines before it are.") from None
    if parsed:
        messages = [_message(m, f"{name}: line {n}") for (n, _), m in zip(lines, parsed, strict=True)]
        return Prompt(messages=messages)
    raise QuestionError(f"{name} begins as JSON but is none: {error}.")


def _request(found: Mapping[str, Any], name: str) -> Prompt:
    messages, tools = found["messages"], found.get("tools")
    if not isinstance(messages, list):
        raise QuestionError(f"{name}: messages is no list.")
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise QuestionError(f"{name}: tools is no list of objects.")
    more = found.get("chat_template_kwargs") or {}
    if not isinstance(more, dict):
        raise QuestionError(f"{name}: chat_template_kwargs is no object.")
    prompt = _listed(messages, f"{name}: messages")
    if prompt.messages is None:
        raise QuestionError(f"{name}: messages is a list of numbers.")
    return Prompt(messages=prompt.messages, variables={**more, "tools": tools} if tools else more)


def _listed(found: Sequence[Any], name: str) -> Prompt:
    if not found:
        raise QuestionError(f"{name} is empty: there is nothing to compare.")
    if all(isinstance(one, int) and not isinstance(one, bool) for one in found):
        wrong = next((at for at, one in enumerate(found, 1) if not 0 <= one <= ID_MAX), None)
        if wrong is not None:
            raise QuestionError(f"{name}: number {wrong} ({found[wrong - 1]}) is no token's id (0 to {ID_MAX}).")
        return Prompt(ids=found)
    return Prompt(messages=[_message(one, f"{name}: item {at}") for at, one in enumerate(found, 1)])


def _message(given: Any, place: str) -> dict[str, Any]:
    def refuse(what: str) -> NoReturn:
        raise QuestionError(f"{place} is no message: {what}.")

    if not isinstance(given, dict):
        refuse("it is no object")
    if not isinstance(given.get("role"), str) or not given["role"]:
        refuse("it has no role")
    content = given.get("content")
    if isinstance(content, list):
        if not all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in content):
            refuse("a part of its content is no text")
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str | None):
        refuse("its content is no text")
    message = {**given, "content": content or ""}
    calls = given.get("tool_calls")
    if calls is not None:
        if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
            refuse("its tool_calls are no list of objects")
        message["tool_calls"] = [_call(call) for call in calls]
    return message


def _call(given: Mapping[str, Any]) -> Mapping[str, Any]:
    function = given.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return given
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        return given  # the template may know what to do with it
    return {**given, "function": {**function, "arguments": arguments}}
