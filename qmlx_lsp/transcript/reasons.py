"""Why two prompts part: a reason from a closed list, found by looking at the place. Pure.

It must never claim what it has not seen: a reason holds for the texts as they are, and where none does, the texts
differ and that is all that is said.

Invariant (the particular first): a reason is asked only when all that could explain the same place better have been
denied. Ids come before texts, a message before its words, words before white space.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from qmlx_lsp.transcript import moving
from qmlx_lsp.transcript.entry import Kind

NEAR_CHARS = 400  # around the place in which a list of tools or the next entry is looked for
NEXT_WORDS_CHARS = 40  # of the next entry, which tell it
JSON_STARTS_MAX = 64  # braces before the place at which a JSON value may begin
SHOWN_CHARS = 40  # of a value that is named in a reason


class Cause(StrEnum):
    """The closed set of reasons."""

    SAME = "same"
    ENDS = "ends"
    LONGER = "longer"
    CONTROL = "control token"
    ENCODED = "encoded"
    TOOLS = "tools"
    MISSING = "missing"
    THINKING = "thinking"
    JSON = "json"
    DATE = "date"
    TIME = "time"
    ID = "id"
    PATH = "path"
    NUMBER = "number"
    SPACE = "white space"
    SYSTEM = "system"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Reason:
    """``why``: a clause for people."""

    cause: Cause
    why: str


@dataclass(frozen=True, slots=True)
class Place:
    """``here`` and ``there``: the texts of the conversation and of the other prompt; ``at``: the first character that
    differs. ``begin``: where the entry of ``kind`` in which this is begins, ``end`` where it ends in ``here``.
    ``following``: what the entry behind it says, without the template's words. ``role``: of the other's message, if
    it is known to begin in this entry. ``tools``: the two would part later if the other had no list of tools."""

    here: str
    there: str
    at: int
    begin: int
    end: int
    kind: Kind | None
    following: str = ""
    role: str | None = None
    tools: bool = False


# --- by their ids ---------------------------------------------------------------------------------------------------


def by_length(here: int, there: int, same: int) -> Reason | None:
    """Whether one goes on where the other ends, of so many tokens, the first ``same`` of which are the same."""
    if same < min(here, there):
        return None
    if here == there:
        return Reason(Cause.SAME, "both are the same to the last token")
    if there < here:
        return Reason(Cause.ENDS, "the conversation goes on where it ends, so all of it can be reused")
    return Reason(Cause.LONGER, "it goes on where the conversation ends, so all of the conversation can be reused")


def by_ids(
    here: Sequence[int],
    there: Sequence[int],
    token_bytes: Callable[[int], bytes],
    control_ids: Collection[int],
    *,
    reply: bool,
) -> Reason | None:
    """Whether the same text follows with other ids. ``here`` and ``there``: what follows the last id that is the
    same; ``reply``: whether that is in a reply of the conversation."""
    mine, other = _joint(here, there, token_bytes)
    if not mine:
        return None
    for ids, where, opposite in ((other, "there", "the conversation"), (mine, "in the conversation", "the other")):
        control = next((token for token in ids if token in control_ids), None)
        if control is not None:
            text = _shown(token_bytes(control).decode("utf-8", "replace"))
            return Reason(Cause.CONTROL, f"{text} is a control token {where} and was typed as data in {opposite}")
    text = _shown(b"".join(map(token_bytes, mine)).decode("utf-8", "replace"))
    kept = "the reply's text is the same, but it was encoded again" if reply else "the text is the same"
    return Reason(
        Cause.ENCODED, f"{kept}: {text} is {len(mine)} tokens in the conversation, {len(other)} others there"
    )


def _joint(
    here: Sequence[int], there: Sequence[int], token_bytes: Callable[[int], bytes]
) -> tuple[Sequence[int], Sequence[int]]:
    """The shortest beginnings that are the same text and behind which the ids are the same again, or one side ends;
    empty when there are none."""
    one, other = b"", b""
    i = j = 0
    while True:
        if len(one) <= len(other) and i < len(here):
            one, i = one + token_bytes(here[i]), i + 1
        elif j < len(there):
            other, j = other + token_bytes(there[j]), j + 1
        else:
            return (), ()
        shorter = min(len(one), len(other))
        if one[:shorter] != other[:shorter]:
            return (), ()
        together = one == other and shorter and (i == len(here) or j == len(there) or here[i] == there[j])
        if together and i and j:
            return here[:i], there[:j]


# --- by their texts -------------------------------------------------------------------------------------------------


def by_text(place: Place) -> Reason:
    """Why two texts part that are different ones."""
    found = (reason for ask in _QUESTIONS if (reason := ask(place)) is not None)
    return next(found, Reason(Cause.TEXT, "the texts differ"))


# How templates begin a list of tools.
_TOOL_LIST = re.compile(r"<tools>|\[AVAILABLE_TOOLS\]|namespace functions|\"type\":\s*\"function\"")


def _tools(place: Place) -> Reason | None:
    """The other has a list of tools here; a conversation has none in its opening."""
    near = slice(max(0, place.at - SHOWN_CHARS), place.at + NEAR_CHARS)
    listed = place.kind is Kind.SYSTEM and _TOOL_LIST.search(place.there[near]) is not None
    if not place.tools and (not listed or _TOOL_LIST.search(place.here[near]) is not None):
        return None
    return Reason(Cause.TOOLS, "its list of tools stands where the conversation has none")


def _missing(place: Place) -> Reason | None:
    """The other has the next entry where this one should be."""
    if place.kind is Kind.ASSISTANT and place.role not in (None, "assistant"):
        return Reason(Cause.MISSING, f"the reply is missing there: a {place.role} message stands in its place")
    words = place.following.strip()[:NEXT_WORDS_CHARS]
    found = place.there.find(words, place.begin, place.at + NEAR_CHARS)
    behind = place.here.find(words, place.end, place.end + NEAR_CHARS)
    if not words or found < 0 or behind < 0 or place.at > found + len(words):
        return None
    # All that stands before those words there must be what the template writes before them here.
    template, gap = (_squashed(t) for t in (place.here[place.end : behind], place.there[place.begin : found]))
    if not template.endswith(gap):
        return None
    what = "the reply" if place.kind is Kind.ASSISTANT else f"the {place.kind} entry"
    return Reason(Cause.MISSING, f"{what} is missing there: what follows it in the conversation stands in its place")


def _squashed(text: str) -> str:
    return re.sub(r"\s+", "", text)


# How models mark their thinking.
_THOUGHTS = tuple(
    re.compile(rf"{re.escape(start)}.*?(?:{re.escape(end)}|\Z)\s*", re.DOTALL)
    for start, end in (
        ("<think>", "</think>"),
        ("<thinking>", "</thinking>"),
        ("<seed:think>", "</seed:think>"),
        ("[THINK]", "[/THINK]"),
        ("<|channel>thought", "<channel|>"),
        ("<|channel|>analysis<|message|>", "<|end|>"),
        ("<|START_THINKING|>", "<|END_THINKING|>"),
    )
)


def _thinking(place: Place) -> Reason | None:
    """The replies are the same, but for their thinking."""
    if place.kind is not Kind.ASSISTANT:
        return None
    mine, other = place.here[place.begin : place.end], place.there[place.begin :]
    for thought in _THOUGHTS:
        # Only blocks of this reply: what comes later in the other is not looked at.
        bare, left = thought.sub("", mine), thought.sub("", other, count=len(thought.findall(mine)) or 1)
        if (bare, left) == (mine, other) or not left.lstrip().startswith(bare.strip()):
            continue
        if thought.search(mine) and not thought.match(other, _first(thought, mine)):
            return Reason(Cause.THINKING, "the reply's thinking was dropped there")
        return Reason(Cause.THINKING, "the reply's thinking differs there")
    return None


def _first(thought: re.Pattern[str], text: str) -> int:
    found = thought.search(text)
    return found.start() if found is not None else 0


def _json(place: Place) -> Reason | None:
    """A JSON value around the place that means the same in both."""
    starts = [m.start() for m in re.finditer(r"[{\[]", place.here[place.begin : place.at])][:JSON_STARTS_MAX]
    for start in [*(place.begin + start for start in starts), place.at]:
        mine, other = _value(place.here, start), _value(place.there, start)
        if mine is not None and other is not None and mine[0] == other[0] and mine[1] != other[1]:
            what = "a tool call's arguments mean" if place.kind is Kind.ASSISTANT else "a JSON value means"
            return Reason(Cause.JSON, f"{what} the same there, but the JSON is written in another way")
    return None


def _value(text: str, start: int) -> tuple[object, str] | None:
    """The object or list that begins at ``start``, also one that is written as a string; and how it is written."""
    try:
        found, end = json.JSONDecoder().raw_decode(text, start)
        if isinstance(found, str):
            found = json.loads(found)
    except (ValueError, RecursionError):
        return None
    return (found, text[start:end]) if isinstance(found, dict | list) else None


def _moving(place: Place) -> Reason | None:
    found = moving.part(place.here, place.there, place.at)
    if found is None:
        return None
    mine, other = _shown(found.here), _shown(found.there)
    return Reason(Cause(found.value.value), f"{found.name} differs: {mine} in the conversation, {other} there")


def _space(place: Place) -> Reason | None:
    """White space is all that differs."""
    begin = len(place.here[: place.at].rstrip())
    mine, other = (_SPACE.match(text, begin) for text in (place.here, place.there))
    assert mine is not None, "it matches nothing, too"
    assert other is not None, "it matches nothing, too"
    if mine[0] == other[0]:
        return None
    one_ends = mine.end() == len(place.here) or other.end() == len(place.there)
    if not one_ends and not moving.agree(place.here, mine.end(), place.there, other.end()):
        return None
    at_end = place.here[mine.end() : mine.end() + 1] in ("", "<", "[")
    shown = f"{_shown(mine[0])} in the conversation, {_shown(other[0])} there"
    return Reason(Cause.SPACE, f"{_which_space(mine[0], other[0], at_end=at_end)}: {shown}")


_SPACE = re.compile(r"\s*")


def _which_space(mine: str, other: str, *, at_end: bool) -> str:
    if _SPACE_LINES.sub("\n", mine) == _SPACE_LINES.sub("\n", other):
        return "line ends differ"
    longer, where = (mine, "there") if len(mine) > len(other) else (other, "in the conversation")
    if (at_end or "\n" in longer) and not longer.startswith("\n"):
        return f"a space at the end is missing {where}"
    return "white space differs"


_SPACE_LINES = re.compile(r"\r\n?")


def _system(place: Place) -> Reason | None:
    if place.kind is not Kind.SYSTEM:
        return None
    moves = moving.named(place.there[place.begin : place.at + NEAR_CHARS])
    if moves is None or moves[1] in place.here[place.begin : place.end]:
        return Reason(Cause.SYSTEM, "the system text differs")
    return Reason(Cause.SYSTEM, f"the system text differs, and there it holds {moves[0]}: {_shown(moves[1])}")


_QUESTIONS: tuple[Callable[[Place], Reason | None], ...] = (
    _tools, _missing, _thinking, _json, _moving, _space, _system
)  # fmt: skip


def _shown(text: str) -> str:
    """A value in quotes, cut to a length that a line bears."""
    cut = text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"
    return json.dumps(cut, ensure_ascii=False)
