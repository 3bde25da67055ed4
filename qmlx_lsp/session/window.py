"""What an inline completion is shown of its document: a window of lines around the cursor. Pure.

Invariant: while somebody types in a line, everything in the window but that line's beginning stays as it is, so that
of the prompt only the end changes. Its first line moves in jumps of half a window.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from qmlx_lsp.settings import Inline
from qmlx_lsp.transcript.gap import Gap
from qmlx_lsp.workspace.fence import fence_for, fenced
from qmlx_lsp.workspace.ghost import Cursor, indent_of, wants_block
from qmlx_lsp.workspace.positions import to_lf
from qmlx_lsp.workspace.shown import shown

_NO_WORD = re.compile(r"[^\w+#.-]")
_LANGUAGE_CHARS_MAX = 32
_EOL_LINES = 200  # lines that are looked at to find out how a document ends and indents its lines


@dataclass(frozen=True, slots=True)
class Place:
    """A cursor in a document: ``line`` and ``column`` (code points) from 0, ``lines`` with their ends. ``selected``
    is what the editor's menu would put there, in the place of so many ``covered`` code points; ``column`` is then
    where that begins."""

    path: str
    language: str
    lines: Sequence[str]
    line: int
    column: int
    invoked: bool
    selected: str = ""
    covered: int = 0


@dataclass(frozen=True, slots=True)
class Window:
    """``before`` is the text before the cursor from the window's first line on, with ``\\n`` ends."""

    before: str
    gap: Gap
    cursor: Cursor


def window(place: Place, settings: Inline, max_lines: int) -> Window | None:
    """What is shown at ``place``; None where the line is too long to be looked at."""
    limit = settings.window_kb * 1024
    whole = place.lines[place.line]
    line = whole.rstrip("\r\n")
    at = min(place.column, len(line))
    before, rest = line[:at] + place.selected, line[at + place.covered :]
    if len(before) > limit:
        return None
    known = to_lf("".join((*place.lines[_first(place, settings, limit) : place.line], before)))
    following = _following(place, settings, limit)
    gap = _gap(place, known, "".join(following))
    cursor = Cursor(
        before=before,
        behind=rest,
        following=[one.rstrip("\n") for one in following],
        block=wants_block(before, rest, invoked=place.invoked),
        max_lines=max_lines,
        eol=_eol(place.lines, whole),
        indent=indent_of(place.lines[max(0, place.line - _EOL_LINES) : place.line + 1]),
    )
    return Window(known, gap, cursor)


def _first(place: Place, settings: Inline, limit: int) -> int:
    """The window's first line."""
    half = settings.before_lines // 2
    first = max(0, (place.line // half - 1) * half)
    while first < place.line and sum(map(len, place.lines[first : place.line])) > limit:
        first += max(1, (place.line - first) // 2)
    return first


def _following(place: Place, settings: Inline, limit: int) -> list[str]:
    """The lines behind the cursor's own, as long as they have room."""
    found: list[str] = []
    left = limit
    for line in place.lines[place.line + 1 : place.line + 1 + settings.behind_lines]:
        left -= len(line)
        if left < 0:
            break
        found.append(to_lf(line))
    return found


def _gap(place: Place, before: str, behind: str) -> Gap:
    name, language = shown(place.path), _NO_WORD.sub("", place.language)[:_LANGUAGE_CHARS_MAX]
    stands = f"Behind the cursor's line stands:\n{fenced(behind, language)}" if behind.strip() else ""
    return Gap(
        about=f"{name}\n",
        request=f"Go on with {name} at the cursor. {stands}\nAnswer with the code alone, from before the cursor on.",
        behind=behind,
        lead=f"{fence_for(before)}{language}\n",
    )


def _eol(lines: Sequence[str], whole: str) -> str:
    """What the cursor's line ends with; where it ends with nothing, the document's first line."""
    for line in (whole, *lines[:1]):
        if line.endswith("\n"):
            return "\r\n" if line.endswith("\r\n") else "\n"
        if line.endswith("\r"):
            return "\r"
    return "\n"
