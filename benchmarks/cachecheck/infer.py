"""What the time to the first token says of a server that does not say what it computed. Pure.

The same run has cold turns: contexts that the server had never seen. A turn whose first token comes much sooner
than a cold one of its size would was served from a cache; one that comes about as late was read again. In between,
or where the cold turns themselves differ too much, nothing can be told, and the reason is given.

Invariant: a judgement other than ``UNCLEAR`` rests on at least ``COLD_MIN`` cold turns of the same run that agree.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

COLD_MIN = 2
SPREAD_MAX = 2.5
"""The slowest cold turn per token against the fastest; beyond it the machine is too noisy."""
EXPECTED_MIN_S = 0.25
"""Seconds a cold turn must take; below, the reply's first token hides it."""
REUSED_MAX = 0.35
AGAIN_MIN = 0.75
"""Shares of the time of a cold turn of that size, at most and at least."""


class Seen(StrEnum):
    """What the time says."""

    REUSED = "reused"
    AGAIN = "read again"
    UNCLEAR = "cannot tell"


@dataclass(frozen=True, slots=True)
class Cold:
    """A cold turn: its size in tokens or, where they are not stated, in characters."""

    size: int
    ttft_s: float


@dataclass(frozen=True, slots=True)
class Judgement:
    """``reason`` is half a sentence; ``expected_s`` the time of a cold turn of that size, if it can be said."""

    seen: Seen
    reason: str
    expected_s: float | None = None


def judge(ttft_s: float | None, size: int | None, cold: Sequence[Cold]) -> Judgement:
    if ttft_s is None or not size:
        return Judgement(Seen.UNCLEAR, "there is no time to a first token")
    if len(cold) < COLD_MIN:
        return Judgement(Seen.UNCLEAR, f"there are {len(cold)} cold turns to compare with, {COLD_MIN} are needed")
    rates = [one.ttft_s / one.size for one in cold]
    spread = max(rates) / min(rates) if min(rates) > 0 else float("inf")
    if spread > SPREAD_MAX:
        return Judgement(Seen.UNCLEAR, f"cold turns of this run differ by a factor of {spread:.1f} per token")
    expected = statistics.median(rates) * size
    if expected < EXPECTED_MIN_S:
        return Judgement(
            Seen.UNCLEAR, f"a cold turn of this size takes {expected:.2f} s only: use more tokens", expected
        )
    share = ttft_s / expected
    reason = f"the first token took {share:.2f} of a cold turn's time"
    if share <= REUSED_MAX:
        return Judgement(Seen.REUSED, reason, expected)
    return Judgement(Seen.AGAIN if share >= AGAIN_MIN else Seen.UNCLEAR, reason, expected)
