"""Which parts of a file that is too large to be shown whole matter for a question.

A file is cut into sections at lines that begin at its margin behind an empty line (functions, classes, chapters in
most languages). The section somebody looks at comes first, then those that hold the question's words, the rarer the
word the better, then what lies around them; the file's head (what it imports) counts a little.

Invariant: the parts are ranges of whole lines, counted from 1, in order, apart from each other, within the budget.
Invariant: the lines looked at are among them, as many as fit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from qmlx_lsp.workspace.positions import split_lines

Range = tuple[int, int]
"""First and last line, counted from 1, both included."""

SECTION_LINES_MAX = 60
"""Lines of a section at most: what has no margins is cut at this length."""

_WORD = re.compile(r"[^\W\d]\w{2,}")
_CLOSER = re.compile(r"[)\]}]|end\b")
_FAR = 1_000_000.0
_HEAD_WEIGHT = 0.05


def words(question: str) -> frozenset[str]:
    """What of a question may be a name in a file: words of three letters or more."""
    return frozenset(_WORD.findall(question))


def relevant(
    text: str,
    looked_at: Iterable[Range],
    wanted: Iterable[str],
    budget: int,
    count: Callable[[str], int],
    *,
    fill: bool = True,
) -> list[Range]:
    """The parts of ``text`` to show within ``budget`` as ``count`` counts it: for lines that somebody looks at, which
    may reach beyond the text, and for words that were asked about. With ``fill`` the budget is used up with what lies
    around them, or from the head on; without, there may be none."""
    lines = split_lines(text)
    sections = _sections(lines)
    clamped = [(max(1, first), min(len(lines), last)) for first, last in looked_at]
    clamped = [place for place in clamped if place[0] <= place[1]]
    chosen: list[Range] = []
    for first, last in _by_worth(sections, lines, clamped, frozenset(wanted), fill=fill):
        cost = count("".join(lines[first - 1 : last]))
        if cost <= budget:
            chosen.append((first, last))
            budget -= cost
        elif not chosen:
            focus = next((place for place in clamped if not _distance(place, (first, last))), (first, first))
            chosen.append(_around(lines, (max(first, focus[0]), min(last, focus[1])), (first, last), budget, count))
            break
    return merged(chosen)


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The same lines as ranges that neither touch nor overlap, in order."""
    out: list[Range] = []
    for first, last in sorted(ranges):
        if out and first <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], last))
        elif first <= last:
            out.append((first, last))
    return out


def missing(wanted: Iterable[Range], shown: Sequence[Range]) -> list[Range]:
    """The lines of ``wanted`` that are in none of ``shown``, which are apart and in order."""
    out: list[Range] = []
    for first, last in merged(wanted):
        at = first
        for low, high in shown:
            if low > last:
                break
            if at < low:
                out.append((at, low - 1))
            at = max(at, high + 1)
        if at <= last:
            out.append((at, last))
    return out


def _sections(lines: Sequence[str]) -> list[Range]:
    starts = [1]
    for number in range(2, len(lines) + 1):
        line = lines[number - 1]
        margin = bool(line.strip()) and not line[0].isspace() and not _CLOSER.match(line)
        begins = margin and not lines[number - 2].strip()
        if begins or number - starts[-1] >= SECTION_LINES_MAX:
            starts.append(number)
    return [(first, after - 1) for first, after in zip(starts, [*starts[1:], len(lines) + 1], strict=True) if lines]


def _by_worth(
    sections: Sequence[Range], lines: Sequence[str], looked_at: Sequence[Range], wanted: frozenset[str], *, fill: bool
) -> list[Range]:
    found = [wanted.intersection(_WORD.findall("".join(lines[first - 1 : last]))) for first, last in sections]
    often = {word: sum(word in here for here in found) for word in wanted}

    def worth(at: int) -> tuple[float, int]:
        by_words = sum(1 / often[word] for word in found[at])
        distance = min((_distance(sections[at], place) for place in looked_at), default=None)
        near = _FAR if distance == 0 else 0.5 / distance if distance and fill else 0.0
        return by_words + near + (_HEAD_WEIGHT if at == 0 and fill else 0.0), -at

    ranked = sorted(range(len(sections)), key=worth, reverse=True)
    return [sections[at] for at in ranked if fill or worth(at)[0] > 0]


def _distance(one: Range, other: Range) -> int:
    """Lines between two ranges; 0 if they overlap."""
    return max(0, one[0] - other[1], other[0] - one[1])


def _around(lines: Sequence[str], focus: Range, within: Range, budget: int, count: Callable[[str], int]) -> Range:
    """As many lines around ``focus`` as fit, in equal parts above and below; of ``focus`` itself, its head."""
    first, last = focus
    while last > first and count("".join(lines[first - 1 : last])) > budget:
        last = first + (last - first) // 2
    if count("".join(lines[first - 1 : last])) > budget:
        return first, first - 1
    if last < focus[1]:
        return first, last
    low, high = 0, SECTION_LINES_MAX
    while low < high:  # the largest margin that fits
        middle = (low + high + 1) // 2
        top, bottom = max(within[0], first - middle), min(within[1], last + middle)
        if count("".join(lines[top - 1 : bottom])) <= budget:
            low = middle
        else:
            high = middle - 1
    return max(within[0], first - low), min(within[1], last + low)
