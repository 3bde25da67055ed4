"""What has changed between two texts, as a small unified diff for a model to read.

It must never show a change of line ends as a change of lines, and never take time out of proportion: lines that
occur once on both sides are matched first, in O(n log n), and what lies between them is compared line by line only
within a fixed amount of work; beyond it, it is shown as one replacement.

Invariant: ``unified(a, b)`` is ``""`` if and only if ``a`` and ``b`` are equal with line ends as ``\\n``.
Invariant: applied to ``a`` it gives ``b``, both with line ends as ``\\n``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from qmlx_lsp.workspace.parts import Range, merged
from qmlx_lsp.workspace.positions import split_lines, to_lf

MAX_WORK = 4_000_000
"""Steps of the matcher, at worst, that one diff may cost: some tenths of a second."""

NO_NEWLINE = "\\ No newline at end of file\n"

# (equal, start in old, end in old, start in new, end in new), in lines from 0.
Block = tuple[bool, int, int, int, int]
# (start in old, start in new, lines): a run of equal lines.
_Run = tuple[int, int, int]


def unified(old: str, new: str, *, context_lines: int = 2) -> str:
    """The hunks (``@@ -line,count +line,count @@``) that turn ``old`` into ``new``, without file headers.

    Lines end at the protocol's three terminators and are written with ``\\n``. A last line without a terminator is
    followed by the usual marker. ``context_lines`` unchanged lines stand around each change.
    """
    a, b = split_lines(to_lf(old)), split_lines(to_lf(new))
    if a == b:
        return ""
    out: list[str] = []
    for hunk in _hunks(line_blocks(a, b), context_lines):
        (_, a_start, _, b_start, _), (_, _, a_end, _, b_end) = hunk[0], hunk[-1]
        out.append(f"@@ -{_span(a_start, a_end)} +{_span(b_start, b_end)} @@\n")
        for equal, a_from, a_to, b_from, b_to in hunk:
            if equal:
                out += [_marked(" ", line) for line in a[a_from:a_to]]
            else:
                out += [_marked("-", line) for line in a[a_from:a_to]]
                out += [_marked("+", line) for line in b[b_from:b_to]]
    return "".join(out)


def carried(old: str, new: str, ranges: Sequence[Range], *, context_lines: int = 2) -> list[Range]:
    """Which lines of ``new`` somebody knows who has seen these lines of ``old`` and the diff between the two: the
    same lines where they stand now, and every change with its context. Lines count from 1, both ends included."""
    a, b = split_lines(to_lf(old)), split_lines(to_lf(new))
    known: list[Range] = []
    for equal, a_start, a_end, b_start, b_end in line_blocks(a, b):
        if not equal:
            known.append((max(b_start - context_lines, 0) + 1, min(b_end + context_lines, len(b))))
            continue
        for first, last in ranges:
            start, end = max(first - 1, a_start), min(last, a_end)
            if start < end:
                known.append((start - a_start + b_start + 1, end - a_start + b_start))
    return merged(known)


def _span(start: int, end: int) -> str:
    """A hunk's range, lines from 1; an empty one names the line before it, as patch expects."""
    return f"{start + 1 if end > start else start},{end - start}"


def _marked(mark: str, line: str) -> str:
    return mark + line if line.endswith("\n") else f"{mark}{line}\n{NO_NEWLINE}"


def line_blocks(a: list[str], b: list[str]) -> Iterator[Block]:
    """Alternating equal and changed blocks that cover both sides; the first and the last are equal ones."""
    at_a = at_b = start_a = start_b = 0
    for run_a, run_b, size in [*_runs(a, b), (len(a), len(b), 0)]:
        if (run_a, run_b) != (at_a, at_b):
            yield True, start_a, at_a, start_b, at_b
            yield False, at_a, run_a, at_b, run_b
            start_a, start_b = run_a, run_b
        at_a, at_b = run_a + size, run_b + size
    yield True, start_a, at_a, start_b, at_b


def _runs(a: list[str], b: list[str]) -> Iterator[_Run]:
    """Runs of equal lines in increasing order; runs may touch, and some may be missed."""
    work = MAX_WORK
    head, tail = _common_ends(a, b)
    end_a, end_b = len(a) - tail, len(b) - tail
    yield 0, 0, head
    from_a = from_b = head
    for to_a, to_b in [*_anchors(a, b, head, end_a, end_b), (end_a, end_b)]:
        gap_a, gap_b = a[from_a:to_a], b[from_b:to_b]
        cost = _cost(gap_a, gap_b)
        if cost:
            if cost <= work:
                work -= cost
                # The work is bounded here, and frequent lines (closing brackets) matter: no junk heuristic.
                matcher = SequenceMatcher(None, gap_a, gap_b, autojunk=False)
                yield from ((from_a + i, from_b + j, size) for i, j, size in matcher.get_matching_blocks() if size)
            else:
                near, far = _common_ends(gap_a, gap_b)
                yield from ((from_a, from_b, near), (to_a - far, to_b - far, far))
        if (to_a, to_b) != (end_a, end_b):
            yield to_a, to_b, 1
        from_a, from_b = to_a + 1, to_b + 1
    yield end_a, end_b, tail


def _common_ends(a: list[str], b: list[str]) -> tuple[int, int]:
    """How many lines are equal at the head and, of the rest, at the tail."""
    shorter = min(len(a), len(b))
    head = next((at for at in range(shorter) if a[at] != b[at]), shorter)
    tail = next((at for at in range(shorter - head) if a[-1 - at] != b[-1 - at]), shorter - head)
    return head, tail


def _anchors(a: list[str], b: list[str], start: int, end_a: int, end_b: int) -> list[tuple[int, int]]:
    """Pairs of places of lines that occur once on either side: the longest list that increases on both."""
    once_a, once_b = Counter(a[start:end_a]), Counter(b[start:end_b])
    where = {line: start + at for at, line in enumerate(b[start:end_b]) if once_b[line] == 1}
    pairs = [
        (start + at, where[line]) for at, line in enumerate(a[start:end_a]) if once_a[line] == 1 and line in where
    ]
    # Longest increasing subsequence: ``best[k]`` is the smallest end of one of k + 1 pairs, ``tops[k]`` its index.
    best: list[int] = []
    tops: list[int] = []
    before: list[int] = []
    for at, (_, place) in enumerate(pairs):
        length = bisect_left(best, place)
        before.append(tops[length - 1] if length else -1)
        best[length : length + 1], tops[length : length + 1] = [place], [at]
    chosen = []
    at = tops[-1] if tops else -1
    while at >= 0:
        chosen.append(pairs[at])
        at = before[at]
    return chosen[::-1]


def _cost(a: list[str], b: list[str]) -> int:
    """The matcher's steps at worst, as it looks at every pair of equal lines for every run; 0 if there is no pair."""
    if not a or not b:
        return 0
    counts = Counter(a)
    pairs = sum(counts[line] for line in b)
    return min(len(a), len(b)) * (len(a) + pairs) if pairs else 0


def _hunks(blocks: Iterator[Block], context: int) -> Iterator[list[Block]]:
    """Changes with up to ``context`` equal lines around them; changes closer than twice that share a hunk."""
    hunk: list[Block] = []
    before: Block | None = None
    for block in blocks:
        equal, a_start, a_end, b_start, b_end = block
        if not equal:
            hunk = hunk or ([before] if before else [])
            hunk.append(block)
            continue
        size = a_end - a_start
        if hunk and size > 2 * context:
            hunk.append((True, a_start, a_start + context, b_start, b_start + context))
            yield hunk
            hunk = []
        elif hunk:
            hunk.append(block)
        keep = min(size, context)
        before = (True, a_end - keep, a_end, b_end - keep, b_end)
    if hunk:
        # The last block is an equal one; of it, only the context is wanted.
        _, a_start, a_end, b_start, b_end = hunk.pop()
        keep = min(a_end - a_start, context)
        hunk.append((True, a_start, a_start + keep, b_start, b_start + keep))
        yield hunk
