"""Comments that say what is to be done: ``# qmlx: make this iterative``, in the comment signs of any language.

Invariant: what is left of a line without its comment is what stood in front of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qmlx_lsp.workspace.edits import bare, end_of
from qmlx_lsp.workspace.parts import Range
from qmlx_lsp.workspace.positions import split_lines

WISHES_MAX = 20
"""Comments that are taken together at most."""
WISH_CHARS_MAX = 1_000
"""Characters of one wish at most."""

_WHOLE = re.compile(
    r"\s*(?:#+!?|//+!?|--+|;+|<!--+|/\*+|\{-|\(\*|%+|\"+|'|\.\.|REM\b)\s*qmlx:(.*)$", re.IGNORECASE | re.DOTALL
)
_BEHIND = re.compile(r"(.*?\S)\s+(?:#+|//+|/\*+|<!--+)\s*qmlx:(.*)$", re.IGNORECASE | re.DOTALL)
# What ends a comment. Looked for by itself: as a part of the others it would be tried at every blank of the line.
_WHOLE_ENDS = re.compile(r"(?:--+>|\*+/|-\}|\*\)|\"+)\Z")
_BEHIND_ENDS = re.compile(r"(?:--+>|\*+/)\Z")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the comment on ``line`` (from 1) says; ``left`` is what stands in front of it, "" for nothing."""

    line: int
    text: str
    left: str = ""


def wish_on(line: str, number: int = 1) -> Wish | None:
    """The wish that a line says; None when it says none."""
    if "qmlx:" not in line.lower():  # nearly all lines, and somebody may have selected all of a large text
        return None
    row = bare(line)
    if len(row) > 2 * WISH_CHARS_MAX:
        return None
    whole = _WHOLE.match(row)
    if whole:
        text = _said(whole[1], _WHOLE_ENDS)
        return Wish(number, text) if text else None
    behind = _BEHIND.match(row)
    text = _said(behind[2], _BEHIND_ENDS) if behind else ""
    return Wish(number, text, behind[1]) if behind and text else None


def _said(rest: str, ends: re.Pattern[str]) -> str:
    """What a comment says in ``rest``, less what ends it."""
    said = rest.strip()
    end = ends.search(said)
    return (said if end is None else said[: end.start()].rstrip())[:WISH_CHARS_MAX]


def wishes(lines: Sequence[str], span: Range) -> list[Wish]:
    """The wishes of the lines ``span``, first and last from 1, which may reach beyond the text."""
    first, last = max(span[0], 1), min(span[1], len(lines))
    found = (wish_on(lines[at - 1], at) for at in range(first, last + 1))
    return [wish for wish in found if wish is not None][:WISHES_MAX]


def without(lines: Iterable[str], first: int, said: Sequence[Wish]) -> list[str]:
    """``lines``, the first of which is number ``first``, without the comments that say ``said``."""
    at = {wish.line: wish for wish in said}
    out = []
    for number, line in enumerate(lines, first):
        wish = at.get(number)
        if wish is None:
            out.append(line)
        elif wish.left:
            out.append(wish.left + end_of(line))
    return out


def unsaid(code: str, said: Sequence[Wish]) -> str:
    """``code`` less the same comments, where a model has written them once more."""
    texts = {wish.text for wish in said}
    out = []
    for line in split_lines(code):
        wish = wish_on(line)
        if wish is None or wish.text not in texts:
            out.append(line)
        elif wish.left:
            out.append(wish.left + end_of(line))
    return "".join(out)
