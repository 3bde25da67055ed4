"""Chats of sentinel words, rendered to find what a chat template writes around them.

Invariant: a template only ever sees sentinels. Data never reaches it.
Invariant: a part is taken only if it is the same at every place of the history; else the template is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from qmlx_lsp.errors import TemplateError
from qmlx_lsp.transcript.template import Messages, Template

# ASCII letters and digits: no trim, split or JSON filter of a template changes them.
SYSTEM, THOUGHT = "Xsys0Z", "Xthk0Z"
USERS = ("Xusr1Z", "Xusr2Z", "Xusr3Z", "Xusr4Z")
REPLIES = ("Xast1Z", "Xast2Z", "Xast3Z")
# How much fixed text may stand between a template's end token and the next turn's data before we doubt it.
FRAGMENT_CHARS_MAX = 4096


@dataclass(frozen=True, slots=True)
class Probe:
    """A template under one set of its variables. ``name`` is the model's, for messages."""

    name: str
    template: Template
    variables: Mapping[str, Any]
    day: date

    def render(self, messages: Messages, *, generate: bool = True) -> str:
        """Raises TemplateError when the template refuses."""
        return self.template.render(messages, self.variables, generate=generate, day=self.day)

    def refuse(self, why: str) -> TemplateError:
        return TemplateError(f"The chat template of {self.name} {why}.")

    def gaps(self, text: str, sentinels: Sequence[str]) -> list[str]:
        """The texts between neighbouring ``sentinels``, and behind the last one. Raises TemplateError unless each of
        them stands in ``text`` once, in this order."""
        gaps, end = [], 0
        for at, sentinel in enumerate(sentinels):
            if text.count(sentinel) != 1:
                raise self.refuse(f"shows a message {text.count(sentinel)} times")
            start = text.index(sentinel)
            if start < end:
                raise self.refuse("puts messages into another order")
            if at:
                gaps.append(text[end:start])
            end = start + len(sentinel)
        return [*gaps, text[end:]]

    def same(self, part: str, found: Sequence[str]) -> str:
        """The one text that is ``found`` at every place. Raises TemplateError when they differ."""
        first = found[0]
        for other in found[1:]:
            if other != first:
                shown = f"({first[-60:]!r} / {other[-60:]!r})"
                raise self.refuse(f"cannot be cut into fixed parts: {part} differs between turns {shown}")
        if len(first) > FRAGMENT_CHARS_MAX:
            raise self.refuse(f"writes {len(first)} characters as {part}")
        return first


@dataclass(frozen=True, slots=True)
class Plain:
    """The fixed texts of a chat without tools. ``has_system``: the template takes a system message, first."""

    system_before: str
    system_after: str
    prompt: str
    after_reply: str
    has_system: bool


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def reply(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def chat(turns: int, *, system: bool) -> list[dict[str, Any]]:
    """So many turns, and one more question."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}] if system else []
    for question, answer in zip(USERS[:turns], REPLIES, strict=False):
        messages += [user(question), reply(answer)]
    return [*messages, user(USERS[turns])]


def plain(probe: Probe) -> Plain:
    """Cut a chat. Raises TemplateError: the template cannot be cut, or refuses a chat; says which part."""
    before, after, has_system = _system(probe)
    order = [sentinel for pair in zip(USERS, REPLIES, strict=False) for sentinel in pair] + [USERS[3]]
    *gaps, prompt = probe.gaps(probe.render(chat(3, system=has_system)), order)
    head = probe.same("the head of a reply", gaps[0::2])
    after_reply = probe.same("the end of a reply", gaps[1::2])
    # The same parts must come out of a conversation of another length.
    short = probe.render(chat(1, system=has_system))
    if not short.endswith(USERS[0] + head + REPLIES[0] + after_reply + USERS[1] + prompt):
        raise probe.refuse("cannot be cut into fixed parts: a short conversation is written otherwise")
    first = probe.render(chat(0, system=has_system))
    if not first.endswith(before + (SYSTEM + after if has_system else "") + USERS[0] + prompt):
        raise probe.refuse("cannot be cut into fixed parts: a first question is written otherwise")
    return Plain(before, after, prompt, after_reply, has_system)


def _system(probe: Probe) -> tuple[str, str, bool]:
    """Text before and after the system text, and whether the template takes a system message first.

    A template that has no system role, or puts it elsewhere, gets the text at the head of the first user turn.
    """
    try:
        text = probe.render(chat(3, system=True))
    except TemplateError:
        text = ""
    at, first = text.find(SYSTEM), text.find(USERS[0])
    if 0 <= at < first and text.count(SYSTEM) == 1:
        return text[:at], text[at + len(SYSTEM) : first], True
    alone = probe.render(chat(3, system=False))
    if alone.count(USERS[0]) != 1:
        raise probe.refuse("does not show a user's text once")
    return alone[: alone.index(USERS[0])], "\n\n", False


@dataclass(frozen=True, slots=True)
class Thinking:
    """What a template writes in front of and behind the thinking of its newest reply."""

    before: str
    after: str


def thinking(probe: Probe, *, has_system: bool) -> Thinking | None:
    """None when the template hides thinking or does not know it."""
    messages = chat(1, system=has_system)[:-1]
    messages[-1] = reply(REPLIES[0], reasoning_content=THOUGHT)
    try:
        text = probe.render(messages, generate=False)
        before, after, _ = probe.gaps(text, (USERS[0], THOUGHT, REPLIES[0]))
    except TemplateError:
        return None
    return Thinking(before, after)


# --- a template's own variables -------------------------------------------------------------------------------------

# What some templates need to be defined, tried in this order. A list of tools is never given: templates put it
# wherever they like, and tools that come and go would move what stands behind it.
_NEEDS: tuple[Mapping[str, Any], ...] = (
    {},
    {"tools": []},
    {"functions": "[]", "datetime": "the day of this conversation"},
)
# The variables by which templates turn thinking on and off. Left out, mlx-lm turns it on behind a template's back.
_THINK = {"enable_thinking": True, "thinking": True, "thinking_mode": "enabled"}
_DO_NOT_THINK = {"enable_thinking": False, "thinking": False, "thinking_mode": "disabled"}
# Other templates know degrees, some of which mean none; or a number of tokens.
_DEGREES = ("reasoning_effort", "reasoning_strength")
_LEAST, _LITTLE, _MUCH, _ANY = ("no_think", "none", "minimal", "low"), "low", "high", "Xdeg0Z"
_NO_BUDGET = {"thinking_budget": 0}


def cut(name: str, template: Template, *, think: bool, day: date) -> tuple[Probe, Plain]:
    """The variables under which ``template`` can be cut, and its parts.

    Raises:
        TemplateError: it cannot be cut under any; says what stands against the plainest ones.
    """
    problem: TemplateError | None = None
    for needed in _NEEDS:
        try:
            probe = Probe(name, template, needed, day)
            plain(probe)
            probe = replace(probe, variables={**needed, **_mode(probe, think=think)})
            return probe, plain(probe)
        except TemplateError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _mode(probe: Probe, *, think: bool) -> Mapping[str, Any]:
    """The variables for thinking, or for as little of it as there can be."""

    def begins(more: Mapping[str, Any]) -> str | None:
        """A question, ready for its reply; None when the template refuses ``more``."""
        try:
            return replace(probe, variables={**probe.variables, **more}).render(chat(1, system=False))
        except TemplateError:
            return None

    switched = _THINK if think else _DO_NOT_THINK
    if begins(_THINK) != begins(_DO_NOT_THINK):
        return switched
    for degree in _DEGREES:
        quiet = _quiet({value: begins({degree: value}) for value in (*_LEAST, _MUCH, _ANY)})
        if quiet is not None and not think:
            return {**switched, degree: quiet}
        if quiet is not None:
            return switched if begins({}) != begins({degree: quiet}) else {**switched, degree: _MUCH}
    if not think and begins(_NO_BUDGET) not in (None, begins({})):
        return {**switched, **_NO_BUDGET}
    return switched


def _quiet(begins: Mapping[str, str | None]) -> str | None:
    """The degree that means no thinking, or little of it; None when degrees make no difference."""
    shown = begins[_ANY]
    if shown is not None and _ANY in shown:  # written down for the model to read: it must be a word that it knows
        return _LITTLE
    return next((value for value in _LEAST if begins[value] not in (None, begins[_MUCH])), None)
