"""What a chat template writes around the results of tools that the model has called.

A call itself is never rendered: it stays as the model wrote it. What is needed is the text between a reply and the
first result, between two results, and between the last result and the next reply or question. A template that has
no tool role, counts its results or loses them has no such parts; results then go into a user's turn as text, which
every template can.

Invariant: parts are taken from calls with the template's own tool role and hold for any name and any result; what
cannot be shown to hold is not used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qmlx_lsp.errors import TemplateError
from qmlx_lsp.transcript.encoder import Codec
from qmlx_lsp.transcript.probes import REPLIES, USERS, Plain, Probe, chat, reply, user

_RESULTS = ("Xres1Z", "Xres2Z", "Xres3Z")
_NAME, _VALUE = "Xnam0Z", "Xval0Z"
_IDS = ("callaaaa1", "callaaaa2", "callaaaa3")  # nine letters and digits, which Mistral demands
# By their ids, or by a count behind the name, which stands still where calls are not rendered.
_NUMBERED = re.compile(rf"callaaaa|{_NAME}\W?\d")
_TRICKY = 'a"b\\c\nd<é>'  # told apart: as it is, or as the inside of a JSON string

Part = int | None  # an id, or None where the tool's name goes


@dataclass(frozen=True, slots=True)
class Results:
    """Ids around tool results; None in them stands for the tool's name.

    ``first`` follows a reply that called a tool, its end token included; ``next`` stands between two results of one
    reply; ``reply`` opens the reply to the results and ``question`` a user's turn instead. ``as_json``: a result is
    written as the inside of a JSON string.
    """

    first: tuple[Part, ...]
    next: tuple[Part, ...]
    reply: tuple[Part, ...]
    question: tuple[Part, ...]
    as_json: bool

    def encode(self, codec: Codec, text: str) -> list[int]:
        return codec.encode_data(json.dumps(text, ensure_ascii=False)[1:-1] if self.as_json else text)


def named(codec: Codec, part: Sequence[Part], name: str) -> list[int]:
    """The ids of ``part`` for the tool ``name``."""
    return [token for one in part for token in ([one] if one is not None else codec.encode_data(name))]


@dataclass(frozen=True, slots=True)
class _Texts:
    first: str
    next: str
    reply: str
    question: str
    as_json: bool


def derive(probe: Probe, plain: Plain, codec: Codec, eos_ids: frozenset[int]) -> Results | None:
    """The parts of ``probe``'s template, a chat of which is cut into ``plain``; None when results have to be told as
    text."""
    forms = ({_VALUE: _VALUE}, json.dumps({_VALUE: _VALUE}))
    ways = [_Calls(probe, plain, arguments) for arguments in forms]
    if not any(calls.renders() for calls in ways):
        ways = [_Calls(probe, plain, None)]
    for calls in ways:
        try:
            texts = _cut(calls, codec, eos_ids)
        except TemplateError:
            continue
        return Results(
            first=_ids(codec, texts.first),
            next=_ids(codec, texts.next),
            reply=_ids(codec, texts.reply),
            question=_ids(codec, texts.question),
            as_json=texts.as_json,
        )
    return None


def _ids(codec: Codec, text: str) -> tuple[Part, ...]:
    parts: list[Part] = []
    for at, piece in enumerate(text.split(_NAME)):
        if at:
            parts.append(None)
        parts += codec.encode_fragment(piece)
    return tuple(parts)


class _Calls:
    """Renders chats with calls, whose ``arguments`` are a mapping or, for some templates, JSON. None: the template
    does not render calls, and a plain reply stands for what the model writes in its text."""

    def __init__(self, probe: Probe, plain: Plain, arguments: Mapping[str, str] | str | None) -> None:
        self.probe = probe
        self.after_reply = plain.after_reply
        self._begun = chat(0, system=plain.has_system)
        self.shown = arguments is not None
        self._arguments = arguments

    def renders(self) -> bool:
        """Whether the template shows a call."""
        try:
            return _VALUE in self.render(self.calling(1), _RESULTS[:1])
        except TemplateError:
            return False

    def calling(self, count: int) -> dict[str, Any]:
        if not self.shown:
            return reply(REPLIES[1])
        function = {"name": _NAME, "arguments": self._arguments}
        return reply("", tool_calls=[{"id": id_, "type": "function", "function": function} for id_ in _IDS[:count]])

    def render(self, asked: Mapping[str, Any], results: Sequence[str], *then: Mapping[str, Any]) -> str:
        told = [
            {"role": "tool", "content": text, "name": _NAME, "tool_call_id": id_}
            for text, id_ in zip(results, _IDS, strict=False)
        ]
        return self.probe.render([*self._begun, asked, *told, *then])


def _cut(calls: _Calls, codec: Codec, eos_ids: frozenset[int]) -> _Texts:
    """Raises TemplateError when some part is missing, or not the same everywhere."""
    probe = calls.probe
    called = calls.render(calls.calling(1), _RESULTS[:1])
    *_, answer = probe.gaps(called, _RESULTS[:1])
    first = _first(calls, called, codec, eos_ids)
    *between, last = probe.gaps(_three(calls), _RESULTS)
    next_ = probe.same("the text between two results", between)
    probe.same("the head of a reply to results", [answer, last])
    # Behind results, a reply and its end are those of any other turn.
    later = calls.render(calls.calling(1), _RESULTS[:1], reply(REPLIES[0]), user(USERS[1]))
    _, end, _ = probe.gaps(later, (_RESULTS[0], REPLIES[0], USERS[1]))
    probe.same("the end of a reply", [calls.after_reply, end])
    question = _question(calls) or answer + calls.after_reply
    if any(_NUMBERED.search(part) for part in (first, next_, answer, question)):
        raise probe.refuse("numbers its tool calls")
    return _Texts(first, next_, answer, question, _as_json(calls))


def _three(calls: _Calls) -> str:
    """Three results in a row, of as many calls if the template takes more than one at once."""
    try:
        return calls.render(calls.calling(3), _RESULTS)
    except TemplateError:
        return calls.render(calls.calling(1), _RESULTS)


def _question(calls: _Calls) -> str:
    """The text between a result and a user's text; "" when the template wants a reply in between, which may be an
    empty one."""
    try:
        text = calls.render(calls.calling(1), _RESULTS[:1], user(USERS[1]))
        return calls.probe.gaps(text, (_RESULTS[0], USERS[1]))[0]
    except TemplateError:
        return ""


def _first(calls: _Calls, called: str, codec: Codec, eos_ids: frozenset[int]) -> str:
    """The text between a reply and its first result, less what the model writes of its call itself."""
    probe = calls.probe
    if not calls.shown:
        return probe.gaps(called, (REPLIES[1], _RESULTS[0]))[0]
    end = called.index(_RESULTS[0])
    at = called.rfind(_VALUE, 0, end)
    if at < 0:
        raise probe.refuse("does not show a tool's call")
    gap = called[at + len(_VALUE) : end]
    plain = _behind_plain(calls)
    if plain and gap.endswith(plain):
        return plain
    for token in codec.encode_fragment(gap):
        if token in eos_ids:
            return gap[gap.index(codec.decode([token])) :]
    raise probe.refuse("does not end a tool's call by a token at which the model stops")


def _behind_plain(calls: _Calls) -> str:
    """The text between a reply that calls nothing and a result; "" when the template wants a call."""
    try:
        text = calls.render(reply(REPLIES[0]), _RESULTS[:1])
        return calls.probe.gaps(text, (REPLIES[0], _RESULTS[0]))[0]
    except TemplateError:
        return ""


def _as_json(calls: _Calls) -> bool:
    text = calls.render(calls.calling(1), [_TRICKY])
    if _TRICKY in text:
        return False
    if json.dumps(_TRICKY, ensure_ascii=False)[1:-1] in text:
        return True
    raise calls.probe.refuse("changes the results of tools")
