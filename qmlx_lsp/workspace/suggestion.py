"""A suggestion that is shown while its user goes on typing: what is left of it, and what became of it. Pure.

Nobody but the text says so: most editors do not report what was accepted. So a suggestion is held together with the
text it was made for, and every later text is compared with it.

Invariant: what is left is a part of what was shown, for a text that differs from the one it was made for by nothing
but a beginning of it (and the brackets that an editor closes by itself).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from qmlx_lsp.workspace.positions import to_lf

# Pairs that editors close by themselves while somebody types.
_CLOSED = {"(": ")", "[": "]", "{": "}", '"': '"', "'": "'", "`": "`"}


class Fate(StrEnum):
    """What became of a suggestion."""

    OPEN = "open"
    PARTLY = "partly"
    ACCEPTED = "accepted"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Shown:
    """``text`` was suggested at a column (code points) of a line (from 0) of ``lines``, which nobody changes."""

    lines: Sequence[str]
    line: int
    column: int
    text: str

    @property
    def before(self) -> str:
        return self.lines[self.line][: self.column]

    @property
    def behind(self) -> str:
        return self.lines[self.line][self.column :]


def remainder(shown: Shown, lines: Sequence[str], line: int, column: int) -> str | None:
    """What is left of it at a cursor in a later text; None if it does not fit, empty when all of it is there."""
    grown = line - shown.line
    if grown < 0 or len(lines) != len(shown.lines) + grown or lines[: shown.line] != shown.lines[: shown.line]:
        return None
    typed = "".join((*lines[shown.line : line], lines[line][:column]))
    if not typed.startswith(shown.before) or lines[line + 1 :] != shown.lines[shown.line + 1 :]:
        return None
    typed, text = to_lf(typed[shown.column :]), to_lf(shown.text)
    if not text.startswith(typed):
        return None
    left, behind = shown.text[_place(shown.text, len(typed)) :], lines[line][column:]
    if behind == shown.behind:
        return left
    closed = behind.removesuffix(shown.behind) if shown.behind else behind
    if behind.endswith(shown.behind) and closed and closed == _closing(typed):
        return _less(left, closed)
    return None


def fate(shown: Shown, lines: Sequence[str]) -> tuple[Fate, int]:
    """What a later text says of it, and how many characters of it stand there."""
    grown = len(lines) - len(shown.lines)
    end = shown.line + grown
    if grown < 0 or end >= len(lines) or lines[: shown.line] != shown.lines[: shown.line]:
        return Fate.REJECTED, 0
    now, was = to_lf("".join(lines[shown.line : end + 1])), to_lf(shown.before)
    behind = to_lf(shown.behind)
    if not now.startswith(was) or not now.endswith(behind) or lines[end + 1 :] != shown.lines[shown.line + 1 :]:
        return Fate.REJECTED, 0
    there = now[len(was) : len(now) - len(behind)] if len(now) >= len(was) + len(behind) else ""
    text = to_lf(shown.text)
    taken = _shared(there, text)
    if there[len(taken) :] not in ("", _closing(taken)):
        return Fate.REJECTED, 0
    if taken == text:
        return Fate.ACCEPTED, len(text)
    return (Fate.PARTLY if taken else Fate.OPEN), len(taken)


def _shared(one: str, other: str) -> str:
    """What both begin with."""
    size = min(len(one), len(other))
    return one[: next((at for at in range(size) if one[at] != other[at]), size)]


def _place(text: str, plain: int) -> int:
    """Where in ``text`` so many characters have passed when every line end counts as one."""
    if "\r" not in text:
        return plain
    at = passed = 0
    while passed < plain:
        at += 2 if text.startswith("\r\n", at) else 1
        passed += 1
    return at


def _closing(typed: str) -> str:
    """What an editor has put behind what was ``typed``: the brackets and quotes that are open in it."""
    held = ""
    for character in typed:
        if held.startswith(character):
            held = held[1:]
        elif character in _CLOSED:
            held = _CLOSED[character] + held
    return held


def _less(left: str, closed: str) -> str:
    """What is left, less the brackets that have been closed, which the rest of it would close again."""
    return left.removesuffix(closed) if left.endswith(closed) else ""
