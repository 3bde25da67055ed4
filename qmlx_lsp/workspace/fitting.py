"""Putting what a model wrote in its place: search/replace blocks into a text, code into the lines it was asked for.

Models lose blanks at line ends, and often the indentation that all lines have in common. Both are put up with where
that can mean one thing only.

Invariant: all search/replace blocks fit, or none is used. Each fits in exactly one place of the text as it was, and
no two of them in the same.
Invariant: lines that a block does not change keep every character that they have in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from qmlx_lsp.workspace.blocks import Change
from qmlx_lsp.workspace.diff import line_blocks
from qmlx_lsp.workspace.edits import bare
from qmlx_lsp.workspace.positions import split_lines


@dataclass(frozen=True, slots=True)
class Fitted:
    """The new text, or ``reason``: one line that says why there is none."""

    text: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Place:
    """Lines ``[first, last)`` of the text, and how the block's lines are written there."""

    first: int
    last: int
    written: Callable[[str], str | None]


def replaced(text: str, changes: Sequence[Change]) -> Fitted:
    """``text`` after ``changes``. Kept lines keep their ends, new ones end with ``\\n``."""
    lines = split_lines(text)
    have = [bare(line) for line in lines]
    places: list[tuple[int, int, list[str]]] = []
    for number, change in enumerate(changes, 1):
        which = f"search/replace block {number}" if len(changes) > 1 else "the search/replace block"
        found = _places(have, _bare_lines(change.search))
        if len(found) != 1:
            return Fitted(reason=f"{which} fits in {len(found) or 'no'} place{'s' * (len(found) > 1)} of the text")
        put = _put(lines, found[0], change)
        if put is None:
            return Fitted(reason=f"it is not clear how {which} is indented")
        places.append((found[0].first, found[0].last, put))
    places.sort(key=lambda place: place[:2])
    for (_, end, _), (start, _, _) in pairwise(places):
        if start < end:
            return Fitted(reason="two search/replace blocks change the same lines")
    at, pieces = 0, []
    for first, last, put in places:
        pieces += [*lines[at:first], *put]
        at = last
    return Fitted("".join([*pieces, *lines[at:]]))


def _places(have: Sequence[str], wanted: Sequence[str]) -> list[_Place]:
    """Where ``wanted`` stands: exactly, or else but for blanks at line ends, or else but for indentation as well."""
    if not any(line.strip() for line in wanted):
        # Nothing is searched for: that can only be meant for a text that has nothing.
        return [] if any(line.strip() for line in have) else [_Place(0, len(have), lambda line: line)]
    exact = _exact(have, wanted)
    if not exact:
        have, wanted = [line.rstrip() for line in have], [line.rstrip() for line in wanted]
        exact = _exact(have, wanted)
    if exact:
        return [_Place(at, at + len(wanted), lambda line: line) for at in exact]
    first = next(line for line in wanted if line).strip()
    ahead = next(at for at, line in enumerate(wanted) if line)
    starts = (at for at in range(len(have) - len(wanted) + 1) if have[at + ahead].endswith(first))
    shifts = ((at, _shift(wanted, have[at : at + len(wanted)])) for at in starts)
    return [_Place(at, at + len(wanted), written) for at, written in shifts if written is not None]


def _exact(have: Sequence[str], wanted: Sequence[str]) -> list[int]:
    """Where exactly these lines stand. Looks at the first one of them first: texts are large."""
    first, size, lines = wanted[0], len(wanted), list(wanted)
    return [at for at, line in enumerate(have) if line == first and have[at : at + size] == lines]


def _shift(lines: Sequence[str], there: Sequence[str]) -> Callable[[str], str | None] | None:
    """How ``lines`` become ``there`` by one indentation that all of them lack or have too much; else None."""
    first = next(at for at, line in enumerate(lines) if line)
    mine, theirs = _indent(lines[first]), _indent(there[first])
    written = _shifter(mine, theirs)
    return written if written and all(written(a) == b for a, b in zip(lines, there, strict=True)) else None


def _shifter(mine: str, theirs: str) -> Callable[[str], str | None] | None:
    """What puts ``theirs`` in the place of ``mine`` at the head of a line that is not blank; its result is None for a
    line that has not got it. None when neither indentation begins with the other."""
    if theirs.startswith(mine):
        more = theirs[len(mine) :]
        return lambda line: f"{more}{line}" if line.strip() else line
    if mine.startswith(theirs):
        less = mine[len(theirs) :]
        return lambda line: line.removeprefix(less) if line.startswith(less) or not line.strip() else None
    return None


def _put(lines: Sequence[str], place: _Place, change: Change) -> list[str] | None:
    """The lines that come into ``place``: of those that the block keeps, the text's own."""
    search, replace = _bare_lines(change.search), _bare_lines(change.replace)
    out: list[str] = []
    for equal, from_a, to_a, from_b, to_b in line_blocks(search, replace):
        if equal:
            out += lines[place.first + from_a : place.first + to_a]
            continue
        for line in replace[from_b:to_b]:
            written = place.written(line)
            if written is None:
                return None
            out.append(f"{written}\n")
    # A line that was the text's last one has no end, and may stand in front of another now.
    return [line if line.endswith(("\n", "\r")) or at == len(out) - 1 else f"{line}\n" for at, line in enumerate(out)]


def _bare_lines(text: str) -> list[str]:
    return [bare(line) for line in split_lines(text)]


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


# --- code for lines ------------------------------------------------------------------------------------------------


def indented_as(target: str, code: str) -> str:
    """``code``, written for the lines ``target``, with their indentation where it was lost or added as a whole.

    That is when all its lines are shifted by what its first line is; or when the first line alone has lost its
    indentation and is otherwise the target's. In any other case it is meant as it is.
    """
    lines, wanted = split_lines(code), split_lines(target)
    mine, theirs = [line for line in lines if line.strip()], [line for line in wanted if line.strip()]
    if not mine or not theirs:
        return code
    first, last = _indent(mine[0]), _indent(theirs[0])
    if first == last:
        return code
    if mine[0].strip() == theirs[0].strip() and _common(mine[1:]) == _common(theirs[1:]) and len(mine) > 1:
        at = lines.index(mine[0])
        return "".join([*lines[:at], last + mine[0].lstrip(" \t"), *lines[at + 1 :]])
    written = _shifter(first, last)
    if written is None or _shifted(_common(mine), written) != _common(theirs):
        return code
    out = [written(line) for line in lines]
    return code if None in out else "".join(line for line in out if line is not None)


def _shifted(indent: str, written: Callable[[str], str | None]) -> str | None:
    line = written(f"{indent}x")
    return None if line is None else line[:-1]


def _common(lines: Sequence[str]) -> str:
    """The indentation that all ``lines`` have; none of them is blank."""
    if not lines:
        return ""
    low, high = min(_indent(line) for line in lines), max(_indent(line) for line in lines)
    same = next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[:same]
