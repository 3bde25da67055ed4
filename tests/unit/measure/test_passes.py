"""Passes grow while there is time, on a clock that only they move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from qmlx_lsp.measure.figures import Deadline, Figure
from qmlx_lsp.measure.passes import grown, quickest


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Pass:
    call: Callable[[], None]
    nbytes: float
    flop: float


def measured(seconds: float, unit: str, share: float, power: int = 1) -> tuple[Figure, float]:
    """A pass of size ``n`` takes ``seconds * n**power``, moves 10 n bytes and computes 7 n."""
    clock = Clock()

    def make(size: int) -> Pass:
        def call() -> None:
            clock.now += seconds * size**power

        return Pass(call, 10.0 * size, 7.0 * size)

    deadline = Deadline(clock, clock.now + share)
    found = grown("x", unit, make, (1, 2, 4), "{0} rows", deadline, power=power)  # type: ignore[arg-type]
    return found, clock.now - 100.0


def test_with_time_the_largest_counts() -> None:
    found, _ = measured(1.0, "bytes/s", 1_000.0)
    assert (found.value, found.over) == (pytest.approx(10.0), "4 rows, 5 times")
    assert measured(1.0, "flop/s", 1_000.0)[0].value == pytest.approx(7.0)


def test_the_smallest_is_measured_without_any_time() -> None:
    found, took = measured(1.0, "bytes/s", 0.0)
    assert (found.value, found.over) == (pytest.approx(10.0), "1 rows, 1 times")
    assert took == 1.0


def test_no_larger_one_is_begun_that_would_end_behind_the_deadline() -> None:
    # six calls of 1 s; two of 2 s with a margin of half as much again are 6 s
    assert measured(1.0, "bytes/s", 11.9)[0].over.startswith("1 rows")
    assert measured(1.0, "bytes/s", 12.0)[0].over.startswith("2 rows")
    # as the third power two calls of 8 s, with the margin 24 s
    assert measured(1.0, "bytes/s", 29.9, power=3)[0].over.startswith("1 rows")
    assert measured(1.0, "bytes/s", 30.0, power=3)[0].over.startswith("2 rows")


def test_the_first_call_does_not_count_when_there_are_others() -> None:
    clock, costs = Clock(), iter([1.0, 5.0, 4.0, 9.0])

    def call() -> None:
        clock.now += next(costs)

    assert quickest(call, Deadline(clock, 1_000.0), 3) == (4.0, 3)


def test_a_deadline_gives_shares_and_none_is_longer_than_itself() -> None:
    clock = Clock()
    deadline = Deadline(clock, 110.0)
    assert (deadline.within(4.0).end, deadline.within(40.0).end) == (104.0, 110.0)
    clock.now = 112.0
    assert (deadline.left, deadline.over, deadline.within(5.0).over) == (0.0, True, True)
