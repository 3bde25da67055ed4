"""Where a stored chain of ids, or another conversation, parts from a conversation's token log.

It must never read more of a file than its header and its ids.

Invariant: digests find the segment in which two chains part; its ids, compared one by one, say where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from qmlx_lsp.storage.lookup import Digests
from qmlx_lsp.storage.row import Kind, Row
from qmlx_lsp.transcript.tokens import TokenLog

BEFORE_TOKENS = 40  # shown before the place …
BEHIND_TOKENS = 40  # … and of both continuations
FORKS_READ = 256  # most recently used segments whose ids are read at most

ReadIds = Callable[[Row], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Parting:
    """``at``: how many tokens are the same. ``before``: the last of them; ``here`` and ``there``: what comes then,
    in the log and in the other. ``length``: how many tokens the other has."""

    at: int
    before: list[int]
    here: list[int]
    there: list[int]
    length: int


def part(log: TokenLog, other: TokenLog) -> Parting | None:
    """Where two logs part; None when one goes on where the other ends, or both end there. Pure."""
    at = common(log.ids(), other.ids())
    if at == min(len(log), len(other)):
        return None
    there = other.ids(at, at + BEHIND_TOKENS)
    return Parting(at, log.ids(max(0, at - BEFORE_TOKENS), at), log.ids(at, at + BEHIND_TOKENS), there, len(other))


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids are the same from the beginning on."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def part_from_stored(log: TokenLog, rows: Iterable[Row], read: ReadIds) -> tuple[Parting, Row] | None:
    """Of one model's chains that leave the log, the one that does so last, and of equals the longest; with the
    segment at its end. ``read`` gives a segment's ids, or none if it cannot. None when
    no chain leaves the log before it ends."""
    segments = sorted((row for row in rows if row.kind is Kind.SEGMENT), key=lambda row: (row.a, row.b))
    longest = _longest(segments)
    best: tuple[int, int, Row] | None = None
    for fork in sorted(_forks(log, segments), key=lambda row: -row.last_used)[:FORKS_READ]:
        ids = read(fork)
        if not ids:
            continue
        same = common(log.ids(fork.a, fork.b), ids)
        end = longest[fork.b, fork.digest][0] if (fork.b, fork.digest) in longest else fork.b
        if fork.a + same < len(log) and (best is None or (fork.a + same, end) > best[:2]):
            best = fork.a + same, end, fork
    if best is None:
        return None
    at, length, fork = best
    there = list(read(fork)[at - fork.a : at - fork.a + BEHIND_TOKENS])
    last = fork
    while (last.b, last.digest) in longest:
        last = longest[last.b, last.digest][1]
        if len(there) < BEHIND_TOKENS:
            there += list(read(last)[: BEHIND_TOKENS - len(there)])
    here = log.ids(at, at + BEHIND_TOKENS)
    return Parting(at, log.ids(max(0, at - BEFORE_TOKENS), at), here, there, length), last


def _longest(segments: Sequence[Row]) -> dict[tuple[int, bytes], tuple[int, Row]]:
    """For every point at which a segment begins: how far segments lead from there, and the first on that way."""
    longest: dict[tuple[int, bytes], tuple[int, Row]] = {}
    for row in reversed(segments):  # whatever begins at a row's end begins behind its own beginning
        end = longest[row.b, row.digest][0] if (row.b, row.digest) in longest else row.b
        if end > longest.get((row.a, row.parent), (0, row))[0]:
            longest[row.a, row.parent] = end, row
    return longest


def _forks(log: TokenLog, segments: Iterable[Row]) -> list[Row]:
    """Segments that begin where a chain has followed the log, and end where it has left it."""
    digests = Digests(log)
    reached = {0}
    forks: list[Row] = []
    for row in segments:
        if row.a in reached and digests.match(row.a, row.parent):
            if digests.match(row.b, row.digest):
                reached.add(row.b)
            else:
                forks.append(row)
    return forks
