"""Guessing what comes next from a text that is likely to be copied (prompt lookup). Pure; knows no model.

A rewrite of existing code repeats most of it. The drafter keeps a *cursor* in that text, its source: the place where
the reply probably is by now. The last ids of the reply are looked for in the source, the longest run first (four ids
down to one); of all places where it stands the nearest to the cursor is taken, and what follows there is proposed.
The model then says how much of the proposal it would have written itself.

How much is proposed adapts: twice as much after a proposal that was right as a whole, little more than was right
after another. Where the reply has left the source, proposals cost more than they give: after a few misses in a row
the drafter *rests*, and wakes when the last four ids occur in the source, or after some ids, to look again.

It must never decide what is generated: a bad guess costs time, nothing else.

Invariant: a proposal is a run of the source, at most as long as asked for.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

RUN_MAX = 4  # ids of the reply that are looked for in the source at most
FIRST = 8  # ids of the first proposal
AFTER_MISS = 4  # ids of the proposal behind one that was wrong from its first id on
MISSES_MAX = 3  # misses in a row, then it rests
REST_TOKENS = 16  # ids after which a resting drafter looks again
# Ids of a source that are looked at; the index of so many takes 25 MB and is made in an eighth of a second.
SOURCE_MAX = 32_768


class Drafter:
    """Proposals from ``source`` for one reply, in passes of at most ``rows_max`` rows: the id that is known, and the
    proposal behind it."""

    def __init__(self, source: Sequence[int], rows_max: int) -> None:
        self._source = tuple(source[:SOURCE_MAX])
        self._most = rows_max - 1
        # Where each run of ids ends in the source, ascending.
        self._ends: list[dict[tuple[int, ...], list[int]]] = [_ends(self._source, n) for n in range(1, RUN_MAX + 1)]
        self._cursor = 0
        self._length = min(FIRST, self._most)
        self._proposed: tuple[int, int] | None = None  # where in the source, and how many ids
        self._misses = 0 if self._most > 0 and self._source else MISSES_MAX
        self._rested = 0

    @property
    def resting(self) -> bool:
        """Whether it would rather not be asked."""
        return self._misses >= MISSES_MAX

    def propose(self, tail: Sequence[int], room: int) -> list[int]:
        """What may follow ``tail``, the last ids of the reply; at most ``room`` ids. Call ``judged`` next."""
        at = self._place(tail)
        length = min(self._length, room)
        if at is None or length <= 0:
            self._proposed = None
            return []
        found = self._source[at : at + length]
        self._proposed = (at, len(found))
        return list(found)

    def judged(self, right: int) -> None:
        """``right`` ids of the last proposal were what the model chose; behind them it has chosen one more."""
        if self._proposed is None:
            self._missed(self._cursor)
            return
        at, length = self._proposed
        self._proposed = None
        if right == 0:
            self._missed(at)
            self._length = min(AFTER_MISS, self._most)
            return
        self._misses = 0
        # The id behind them stands for one of the source, whether it is the same or not.
        self._cursor = min(at + right + 1, len(self._source))
        self._length = min(2 * self._length if right == length else 2 * right + 2, self._most)

    def passed(self, tail: Sequence[int]) -> None:
        """While it rests: an id went by without it; ``tail`` ends in that id."""
        if self._most <= 0 or not self._source:
            return
        self._rested += 1
        if self._rested >= REST_TOKENS or tuple(tail[-RUN_MAX:]) in self._ends[RUN_MAX - 1]:
            self._misses = MISSES_MAX - 1  # one more miss, and it rests again

    def _missed(self, at: int) -> None:
        self._cursor = min(at + 1, len(self._source))
        self._misses += 1
        self._rested = 0

    def _place(self, tail: Sequence[int]) -> int | None:
        """Behind which place of the source the reply probably goes on."""
        for n in range(min(RUN_MAX, len(tail)), 0, -1):
            ends = self._ends[n - 1].get(tuple(tail[-n:]))
            if ends is not None:
                return _nearest(ends, self._cursor)
        return None


def _ends(source: tuple[int, ...], n: int) -> dict[tuple[int, ...], list[int]]:
    """The places behind each run of ``n`` ids, but not the end of the source: nothing follows there."""
    found: dict[tuple[int, ...], list[int]] = {}
    for end in range(n, len(source)):
        found.setdefault(source[end - n : end], []).append(end)
    return found


def _nearest(ascending: list[int], place: int) -> int:
    """Of ``ascending`` the one nearest to ``place``; of two as near the later one, for a reply goes forward."""
    index = bisect_left(ascending, place)
    near = ascending[max(0, index - 1) : index + 1]
    return min(near, key=lambda end: (abs(end - place), -end))
