"""The bodies of requests as clients send them, and what clients change in them. Pure.

``said`` is what a chat template can show of a body, in the order in which prompts have it; two bodies are compared by
it. Unknown fields of messages are no part of it; ids of tool calls are, because some templates show them.

Invariant: ``changed`` leaves the body it is given as it is.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from benchmarks.cachecheck.context import edited
from benchmarks.cachecheck.conversation import Change, Context

Message = dict[str, Any]
Body = dict[str, Any]

DATES = ("Monday, 2 March 2026", "Tuesday, 3 March 2026")
SYSTEM = f"You help people who write programs.\nToday is {DATES[0]}.\nAnswer in one short sentence."
CALL_IDS = ("call_7f3a91", "call_b20c44")
ARGUMENTS = ('{"path": "notes.txt", "line": 12, "context": 3}', '{"context":3,"line":12,"path":"notes.txt"}')
RESULT = "11: buy milk\n12: fix the clock\n13: call the bank"


def _tool(name: str, description: str, *parameters: str) -> dict[str, Any]:
    properties = {parameter: {"type": "string", "description": f"the {parameter}"} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters[:1])}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = (
    _tool("read_file", "Reads lines of a file.", "path", "line", "context"),
    _tool("search_text", "Searches all files for a text.", "text", "folder"),
    _tool("run_tests", "Runs the tests of a folder.", "folder"),
)


def opening(context: Context | None, *, tools: bool) -> Body:
    """A conversation's body before its first question. With ``tools`` there is a call and its result in it."""
    messages: list[Message] = [{"role": "system", "content": SYSTEM}]
    body: Body = {"messages": messages}
    if context is not None:
        shown = f"This is {context.name}.py:\n\n{context.text}"
        messages += [{"role": "user", "content": f"{shown}\nWhat is in line 12 of notes.txt?" if tools else shown}]
    if tools:
        call = {
            "id": CALL_IDS[0], "type": "function", "function": {"name": "read_file", "arguments": ARGUMENTS[0]}
        }  # fmt: skip
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": CALL_IDS[0], "name": "read_file", "content": RESULT},
        ]
        body["tools"] = list(TOOLS)
    return body


def asked(body: Body, question: str) -> Body:
    """``body`` with ``question`` at its end: a message, or the end of the one that is open."""
    messages = list(body["messages"])
    if messages[-1]["role"] == "user":
        messages[-1] = {**messages[-1], "content": f"{messages[-1]['content']}\n{question}"}
    else:
        messages.append({"role": "user", "content": question})
    return {**body, "messages": messages}


def answered(body: Body, text: str) -> Body:
    return {**body, "messages": [*body["messages"], {"role": "assistant", "content": text}]}


def changed(body: Body, change: Change, reasoning: str = "") -> Body:
    """``body`` with ``change``; the thinking of its last reply was ``reasoning``."""
    made = copy.deepcopy(body)
    if change is Change.REASONING_SENT:
        _last(made, "assistant")["reasoning_content"] = reasoning
    elif change in _CHANGES:
        _CHANGES[change](made)
    return made


def _fields(body: Body) -> None:
    for number, message in enumerate(body["messages"]):
        message |= {"id": f"msg_{number:04x}f1", "metadata": {"sent": f"2026-03-02T10:{number:02}:00Z"}}


def _call_ids(body: Body) -> None:
    for message in body["messages"]:
        for call in message.get("tool_calls", ()):
            call["id"] = CALL_IDS[1]
        if "tool_call_id" in message:
            message["tool_call_id"] = CALL_IDS[1]


def _call_arguments(body: Body) -> None:
    for message in body["messages"]:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = ARGUMENTS[1]


def _date(body: Body) -> None:
    system = body["messages"][0]
    system["content"] = system["content"].replace(*DATES)


def _blank(body: Body) -> None:
    _first(body, "assistant")["content"] += " "


def _early_edit(body: Body) -> None:
    first = _first(body, "user")
    first["content"] = edited(first["content"])


_CHANGES: dict[Change, Callable[[Body], object]] = {
    Change.FIELDS: _fields,
    Change.CALL_IDS: _call_ids,
    Change.CALL_ARGUMENTS: _call_arguments,
    Change.TOOL_ORDER: lambda body: body["tools"].reverse(),
    Change.NO_TOOLS: lambda body: body.pop("tools"),
    Change.DATE: _date,
    Change.BLANK: _blank,
    Change.EARLY_EDIT: _early_edit,
}


def _first(body: Body, role: str) -> Message:
    return next(message for message in body["messages"] if message["role"] == role)


def _last(body: Body, role: str) -> Message:
    return next(message for message in reversed(body["messages"]) if message["role"] == role)


def said(body: Body) -> str:
    """What templates can show of it."""
    messages: list[Message] = body["messages"]
    parts = []
    for message in messages:
        parts.append(f"<{message['role']}>{message.get('content') or ''}")
        parts += [f"<call>{json.dumps(call)}" for call in message.get("tool_calls", ())]
        if "tool_call_id" in message:
            parts.append(f"<of>{message['tool_call_id']}")
        if message is messages[0] and "tools" in body:
            parts.append(f"<tools>{json.dumps(body['tools'])}")
    return "".join(parts)
