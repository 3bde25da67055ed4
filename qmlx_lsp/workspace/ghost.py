"""What a model wrote at a cursor becomes what is worth showing there: where it ends, and what of it fits. Pure.

Models go on after what was asked for, close brackets that the editor has closed already, write the next line of the
file once more, put a space where there is one. All of that is mended here, in a fixed order; what is left empty or
says nothing new is not shown.

Invariant: what is shown can be inserted at the cursor as it is: its indentation and line ends are the document's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FENCE = "```"
_OPENERS = (":", "{", "(", "[", ",", "=>", "->", " do", " then", " begin", " else", "\\")
_PAIRS = {")": "(", "]": "[", "}": "{"}
_CLOSING = frozenset(")]}>\"'`;,: ")
_GOES_ON = ("else", "elif", "except", "finally", "catch", "case", "when", "end", "fi", "done", ")", "]", "}")
# Characters of a line's beginning that a model has repeated, at least: fewer may be meant.
_REPEATED_MIN = 3
_SAME_LINES_MAX = 2  # equal lines in a row that are believed


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where something is to be written.

    ``before`` and ``behind`` are the cursor's line on both sides of it, without its end; ``following`` the lines
    after it. ``block``: several lines are wanted, ``max_lines`` at most. ``eol`` and ``indent`` are what the document
    ends its lines and indents with.
    """

    before: str
    behind: str
    following: Sequence[str]
    block: bool
    max_lines: int
    eol: str = "\n"
    indent: str = "    "


def wants_block(before: str, behind: str, *, invoked: bool) -> bool:
    """Whether several lines are wanted at such a place."""
    if behind.strip():
        return False
    return invoked or not before.strip() or before.rstrip().endswith(_OPENERS)


def indent_of(lines: Sequence[str]) -> str:
    """One step of indentation in ``lines``: a tab, or the fewest spaces that any of them is indented by."""
    indented = [line for line in lines if line[:1] in (" ", "\t") and line.strip()]
    tabs = sum(line.startswith("\t") for line in indented)
    if tabs * 2 > len(indented):
        return "\t"
    widths = [width for line in indented if (width := len(line) - len(line.lstrip(" "))) > 1]
    return " " * min(widths, default=4)


# --- where it ends --------------------------------------------------------------------------------------------------


class Ending:
    """Follows what is written and says when no more is needed. ``given`` is what it begins by writing once more."""

    def __init__(self, cursor: Cursor, given: str = "") -> None:
        self._cursor = cursor
        self._given = len(given)
        self._text = ""

    def feed(self, piece: str) -> bool:
        """Whether what has been written decides it."""
        self._text += piece
        written = self._text[self._given :]
        if "\n" not in piece and not written.lstrip(" \t").startswith(FENCE):
            return False
        lines = _until_fence(written)
        if len(lines) < len(written.split("\n")):
            return True
        if not self._cursor.block:
            return bool(lines[0].strip()) or len(lines) > 1
        return len(_block(lines, self._cursor)) < len(lines) or len(lines) > self._cursor.max_lines


def _until_fence(written: str) -> list[str]:
    """The lines before one that is a fence. (Whoever wrote one has finished.)"""
    lines = written.split("\n")
    fence = next((at for at, line in enumerate(lines) if line.lstrip(" \t").startswith(FENCE)), len(lines))
    return lines[:fence]


def _block(lines: Sequence[str], cursor: Cursor) -> list[str]:
    """``lines`` as far as the block at the cursor goes: to a line that is indented less, two empty ones, or what
    follows in the file anyway. The last line may not be finished."""
    opened = cursor.before.strip() and cursor.before.rstrip().endswith(_OPENERS)
    base = _width(cursor.before, cursor.indent)
    next_line = next((line.strip() for line in cursor.following if line.strip()), None)
    for at, line in enumerate(lines):
        if not at:
            continue
        if not line.strip():
            if at > 1 and not lines[at - 1].strip() and at < len(lines) - 1:
                return list(lines[: at - 1])
            continue
        width = _width(line, cursor.indent)
        ends = width < base or (opened and width == base and not line.strip().startswith(_GOES_ON))
        repeats = at < len(lines) - 1 and line.strip() == next_line and width <= base
        if ends or repeats:
            return list(lines[:at])
    return list(lines)


def _width(line: str, indent: str) -> int:
    lead = line[: len(line) - len(line.lstrip(" \t"))]
    return len(lead.replace("\t", "    " if indent == "\t" else indent))


# --- what of it fits ------------------------------------------------------------------------------------------------


def fitted(written: str, cursor: Cursor) -> str:
    """What to insert at the cursor of all that was ``written`` there; empty when that is nothing worth showing."""
    lines = _until_fence(written.replace("\r\n", "\n").replace("\r", "\n").rstrip("\ufffd"))
    if not lines:
        return ""
    lines[0] = _joined(lines[0], cursor.before)
    if cursor.block:
        lines = _block(lines, cursor)[: cursor.max_lines]
    elif lines[0].strip():
        lines = lines[:1]
    else:
        return ""
    lines = [lines[0], *(_indented(line, cursor.indent) for line in lines[1:])]
    lines = _not_repeated(_without_following(lines, cursor))
    if lines:
        lines[-1] = _without_behind(lines[-1], cursor.behind)
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines or not "".join(lines).strip():
        return ""
    lines[-1] = lines[-1].rstrip() if not cursor.behind.strip() else lines[-1]
    return cursor.eol.join(lines)


def _joined(first: str, before: str) -> str:
    """The first line behind what stands before it: not said twice, and one space where two would meet."""
    said = before.strip()
    if len(said) >= _REPEATED_MIN and first.lstrip().startswith(said):
        first = first.lstrip()[len(said) :]
    return first.lstrip(" ") if said and before.endswith(" ") else first


def _indented(line: str, indent: str) -> str:
    """``line`` indented as the document is."""
    body = line.lstrip(" \t")
    lead = line[: len(line) - len(body)]
    if not body:
        return ""
    if indent == "\t" and "\t" not in lead:
        return "\t" * (len(lead) // 4) + " " * (len(lead) % 4) + body
    return lead.replace("\t", indent) + body


def _without_following(lines: list[str], cursor: Cursor) -> list[str]:
    """Less the last lines that stand behind the cursor anyway."""
    there = [line.rstrip() for line in cursor.following if line.strip()]
    kept = [line.rstrip() for line in (cursor.before + lines[0], *lines[1:])]
    while kept and not kept[-1]:
        kept.pop()
    for count in range(min(len(kept) - 1, len(there)), 0, -1):
        if kept[-count:] == there[:count]:
            return lines[: len(kept) - count]
    return [] if [line.strip() for line in kept] == [line.strip() for line in there[: len(kept)]] else lines


def _not_repeated(lines: list[str]) -> list[str]:
    """Up to where a line comes again and again."""
    for at in range(len(lines) - _SAME_LINES_MAX):
        same = lines[at : at + _SAME_LINES_MAX + 1]
        if same[0].strip() and len({line.strip() for line in same}) == 1:
            return lines[: at + 1]
    return lines


def _without_behind(last: str, behind: str) -> str:
    """Less what the rest of the cursor's line says already, its closing brackets among it."""
    rest = behind.rstrip()
    if not rest.strip():
        return last
    for size in range(min(len(rest), len(last)), 0, -1):  # of a line of a megabyte no more than could be repeated
        if last.endswith(rest[:size]) and (size == len(rest) or _CLOSING.issuperset(rest[:size])):
            return last[:-size]
    stray = _stray_closer(last)
    return last[:stray] if stray is not None and rest.lstrip().startswith(last[stray]) else last


def _stray_closer(line: str) -> int | None:
    """Where ``line`` closes a bracket that it has not opened."""
    held: list[str] = []
    for at, character in enumerate(line):
        if character in _PAIRS.values():
            held.append(character)
        elif character in _PAIRS and (not held or held.pop() != _PAIRS[character]):
            return at
    return None
