"""A prefill over time: how far it had come when a share of its time was over.

Later tokens look back at more and so cost more: after nine tenths of the time more than nine tenths of the tokens are
read. Where two servers are cut after the same share of the work, the one that says how far it is needs its place in
tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise

Point = tuple[float, float]
"""Seconds since the request, and the share of the prefill that was done then."""


def share_done(points: Sequence[Point], seconds: float) -> float:
    """The share that was done after ``seconds``, straight between the ``points``, which are in order."""
    if not points:
        raise ValueError("nothing was said of the prefill")
    known = [(0.0, 0.0), *points]
    behind = bisect_right([at for at, _ in known], seconds)
    if behind == len(known):
        return known[-1][1]
    (before, low), (after, high) = known[behind - 1], known[behind]
    return low + (high - low) * (seconds - before) / (after - before)


def longest_pass(points: Sequence[Point]) -> Point:
    """The seconds that one pass has taken at most so far, and the largest share that one has added."""
    passes = list(pairwise([(0.0, 0.0), *points]))
    seconds = (after - before for (before, _), (after, _) in passes)
    return max(seconds, default=0.0), max((high - low for (_, low), (_, high) in passes), default=0.0)
