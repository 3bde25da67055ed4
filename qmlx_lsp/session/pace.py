"""When everything on disk is looked at and when watchers are made again: decisions from times, without a clock.

Invariant: while nothing happens, looking costs no more than a fixed share of a core, however large the project is.
"""

from __future__ import annotations

from typing import Literal

BURST_EVENTS = 1_000  # events in one step above which single ones are not looked at
BURST_S = 5.0  # seconds of events without a pause after which everything is looked at nevertheless
BURST_SHARE = 20.0  # … and so many times what such a look costs
VERIFY_S = 300.0  # seconds between two looks at everything while events come, at least
VERIFY_SHARE = 1_000.0  # … and so many times what a look costs: 0.1 % of a core
POLL_SHARE = 200.0  # the same where there are no events: 0.5 %
RETRY_S = 300.0  # seconds until a watcher that could not be made is tried again
BROKEN_S = 60.0  # seconds that a watcher must have lived to be made again at once


class Pace:
    """``now`` is always seconds of one clock that never goes back; costs are seconds of a core."""

    def __init__(self, poll_s: float, step_s: float) -> None:
        self._poll_s = poll_s
        self._step_s = step_s
        self._cost = 0.0
        self._look_at = self._make_at = self._made_at = 0.0
        self._burst_since: float | None = None

    def wait_s(self, now: float, *, events: bool) -> float:
        """Until the next step; ``events``: whether they come, or looking is all there is."""
        if self._burst_since is not None:
            return self._step_s
        left = max(0.0, self._look_at - now)
        return min(self._step_s, left) if events else left

    def due(self, now: float) -> bool:
        """Whether to look at everything."""
        return self._burst_since is None and now >= self._look_at

    def soon(self, now: float) -> None:
        """Something has happened that only a look at everything can tell."""
        self._look_at = now

    def looked(self, now: float, cost: float, *, events: bool) -> None:
        """Everything was looked at."""
        self._cost = cost
        rest = max(VERIFY_S, VERIFY_SHARE * cost) if events else max(self._poll_s, POLL_SHARE * cost)
        self._look_at = now + rest

    def burst(self, now: float, count: int) -> Literal["none", "goes on", "over"]:
        """What so many events in one step mean: none, one to wait for the end of, or one that is over."""
        if self._burst_since is None:
            if count <= BURST_EVENTS:
                return "none"
            self._burst_since = now
        if count and now - self._burst_since < max(BURST_S, BURST_SHARE * self._cost):
            return "goes on"
        self._burst_since = None
        return "over"

    def may_make(self, now: float) -> bool:
        """Whether to try to make watchers."""
        return now >= self._make_at

    def made(self, now: float) -> None:
        """Watchers were made; what happened meanwhile is not known yet."""
        self._made_at = self._look_at = now

    def refused(self, now: float) -> None:
        """None could be made."""
        self._make_at = now + RETRY_S

    def broke(self, now: float) -> None:
        """One that was made has failed, and what happened is not known."""
        self._burst_since = None
        self._make_at = now if now - self._made_at >= BROKEN_S else now + BROKEN_S
        self._look_at = now
