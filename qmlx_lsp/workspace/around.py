"""The lines that are meant when somebody points at one line: the function, the block, the paragraph around it.

It looks at indentation and brackets, and knows no language; it must never take more than ``AROUND_LINES_MAX`` lines.

Invariant: the line that was pointed at is among the lines, which neither begin nor end with a blank one, unless
there are only blank ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from qmlx_lsp.workspace.edits import bare
from qmlx_lsp.workspace.parts import Range

AROUND_LINES_MAX = 200
"""Lines that are meant by one at most."""
SEEN_LINES_MAX = 1_000
"""Lines above and below a line that are looked at at most, for somebody waits."""

_CLOSER = re.compile(r"\s*(?:[)\]}]|end\b|fi\b|done\b|esac\b)")
_OPENER = re.compile(r"\s*[{(]\s*$")
_CONTROL = re.compile(
    r"\s*(?:[}\])]\s*)?(?:if|else|elif|elsif|for|foreach|while|do|switch|case|match|try|except|catch|finally|with|"
    r"when|unless|until|loop|default|select|begin|ensure|rescue|then|return|yield|raise|throw|assert|await)\b"
)
_VALUE = re.compile(r"(?:\[|[=:]\s*[({])$")  # a list, or what a name is given, over several lines
_ABOVE = re.compile(r"\s*(?:@\w|#\[|//|#|--|/\*|\*|\"\"\")")


def around(lines: Sequence[str], line: int) -> Range:
    """The lines around ``line``, first and last, from 1; ``lines`` may have terminators, ``line`` is clamped."""
    pointed = min(max(line, 1), max(len(lines), 1)) - 1
    skipped = max(0, pointed - SEEN_LINES_MAX)
    first, last = _around(
        [bare(row).rstrip() for row in lines[skipped : pointed + SEEN_LINES_MAX]], pointed - skipped
    )
    return first + skipped, last + skipped


def _around(rows: Sequence[str], pointed: int) -> Range:
    at = _row(rows, pointed)
    if not rows or not rows[at]:
        return at + 1, at + 1
    below = _below(rows, at)
    head = _head(rows, below)
    first, last = _paragraph(rows, below) if head is None else (_with_above(rows, head), _end(rows, head))
    if not first <= at <= last:  # the line belongs to something else
        first, last = _paragraph(rows, at)
    if last - first >= AROUND_LINES_MAX:
        first = max(first, at - AROUND_LINES_MAX // 2)
        last = min(last, first + AROUND_LINES_MAX - 1)
    return trimmed(rows, first + 1, last + 1)


def trimmed(lines: Sequence[str], first: int, last: int) -> Range:
    """Lines ``first`` to ``last``, from 1, less blank ones at either end; all of them where there are no others."""
    full = [at for at in range(first, last + 1) if lines[at - 1].strip()]
    return (full[0], full[-1]) if full else (first, last)


def _row(rows: Sequence[str], at: int) -> int:
    """A blank row means the one below it, or else the one above."""
    return next((near for near in (at, at + 1, at - 1) if 0 <= near < len(rows) and rows[near]), at)


def _below(rows: Sequence[str], at: int) -> int:
    """What decorators and comments stand right above."""
    while at + 1 < len(rows) and rows[at + 1] and _ABOVE.match(rows[at]):
        at += 1
    return at


def _indent(row: str) -> int:
    return len(row) - len(row.lstrip())


def _head(rows: Sequence[str], at: int) -> int | None:
    """The row that begins what ``at`` is in: the nearest around it that is no mere branch, loop or value, or else
    the outermost; None when ``at`` is in nothing."""
    begins = _begin(rows, at)
    heads = [begins] if _has_body(rows, begins) else []
    while _indent(rows[begins]):
        depth = _indent(rows[begins])
        above = next((up for up in range(begins - 1, -1, -1) if rows[up] and _indent(rows[up]) < depth), None)
        if above is None:
            break
        begins = _begin(rows, above)
        heads.append(begins)
    whole = (head for head in heads if not (_CONTROL.match(rows[head]) or _VALUE.search(rows[head])))
    return next(whole, heads[-1] if heads else None)


def _begin(rows: Sequence[str], at: int) -> int:
    """Where the statement begins that row ``at`` ends, or goes on: a closing bracket belongs to what it closes."""
    while at and (_CLOSER.match(rows[at]) or _OPENER.match(rows[at])):
        same = (up for up in range(at - 1, -1, -1) if rows[up] and _indent(rows[up]) <= _indent(rows[at]))
        up = next(same, None)
        if up is None or _indent(rows[up]) < _indent(rows[at]):
            return at
        at = up
    return at


def _has_body(rows: Sequence[str], at: int) -> bool:
    below = next((row for row in rows[at + 1 :] if row), "")
    return bool(below) and (_indent(below) > _indent(rows[at]) or bool(_OPENER.match(below)))


def _end(rows: Sequence[str], head: int) -> int:
    """The last row of what begins at ``head``."""
    last, depth = head, _indent(rows[head])
    for at in range(head + 1, len(rows)):
        row = rows[at]
        if not row:
            continue
        belongs = _CLOSER.match(row) or _OPENER.match(row) or (_CONTROL.match(row) and _CONTROL.match(rows[head]))
        if _indent(row) < depth or (_indent(row) == depth and not belongs):
            break
        last = at
    return last


def _with_above(rows: Sequence[str], head: int) -> int:
    """With decorators, attributes and comments that stand right above."""
    depth = _indent(rows[head])
    while head and _ABOVE.match(rows[head - 1]) and depth <= _indent(rows[head - 1]) <= depth + 1:
        head -= 1
    return head


def _paragraph(rows: Sequence[str], at: int) -> Range:
    """The rows around ``at`` without a blank one between them, from 0; nothing that has a body of its own."""
    first = last = at
    while first and rows[first - 1] and _indent(rows[first - 1]) >= _indent(rows[at]):
        first -= 1
    while last + 1 < len(rows) and rows[last + 1] and not _has_body(rows, last + 1):
        last += 1
    return first, last
