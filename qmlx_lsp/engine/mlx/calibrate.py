"""How many rows a pass should have where text is copied: measured once per loaded model, when it is first asked.

More rows a pass copy more ids a pass, and cost more: little where reading the weights is most of the time, much where
every row has experts of its own. Only the machine knows, so it is asked: passes of 1 to 32 rows over real text, on a
state of its own.

How much more rows copy was measured once, on edits of functions of the standard library that were forced on the
drafter: one line of a function changed, and one name changed everywhere in it. ``best_rows`` weighs the two equally.

Invariant: the choice depends on the measured times alone. If it is 1, more rows gain nothing, and nothing is drafted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generation_stream

logger = logging.getLogger(__name__)

# The largest first, so that the others are timed on a state that has read something; the first three say most.
SIZES = (32, 8, 1, 16, 4, 2)
SIZES_MIN = 3
BUDGET_S = 1.5  # after so long no more than these are measured; a size that was not is not chosen
ROUNDS = 2  # passes of each size; the quicker one counts, for the first may build kernels
# A pass of more rows must be better by this share: times of two passes differ by as much for no reason.
GAIN_MIN = 0.03

# Rows of a pass at most -> for the two kinds of edits, ids a pass gave, and rows it had.
COPIED = {
    1: ((1.0, 1.0), (1.0, 1.0)),
    2: ((1.96, 1.97), (1.87, 1.89)),
    4: ((3.77, 3.80), (3.29, 3.43)),
    8: ((6.97, 7.09), (5.21, 5.67)),
    16: ((11.95, 12.32), (7.15, 8.24)),
    32: ((18.13, 19.13), (8.52, 10.61)),
}


def rows_of_a_pass(model: Any, caches: Sequence[Any], ids: Sequence[int]) -> int:
    """The best rows for ``model``; 1 if it cannot be measured."""
    try:
        return best_rows(measure(model, caches, ids))
    except Exception as error:  # noqa: BLE001 - whatever the model's code raises, the reply goes on without proposals
        logger.warning("The rows of a pass could not be measured, nothing is drafted: %s", type(error).__name__)
        return 1


def best_rows(times: Mapping[int, float]) -> int:
    """Of the sizes in ``times`` (rows of a pass -> what it takes) the one that copies most in the same time."""
    best, least = 1, times[1]
    for rows in sorted(times):
        taken = [_between(times, had) / ids for ids, had in COPIED[rows]]
        mean = sum(taken) / len(taken)
        if mean < least * (1 - GAIN_MIN):
            best, least = rows, mean
    return best


def _between(times: Mapping[int, float], rows: float) -> float:
    """What a pass of ``rows`` takes, on the line between the measured sizes beside it."""
    below = max(size for size in times if size <= rows)
    above = min((size for size in times if size >= rows), default=below)
    if above == below:
        return times[below]
    return times[below] + (times[above] - times[below]) * (rows - below) / (above - below)


def measure(
    model: Any, caches: Sequence[Any], ids: Sequence[int], clock: Callable[[], float] = time.perf_counter
) -> dict[int, float]:
    """Seconds of a pass by its rows, on fresh ``caches``; ``ids`` are text, and are repeated."""
    text = cycle(ids)
    began = clock()

    def seconds(rows: int) -> float:
        start = clock()
        with mx.stream(generation_stream):
            tokens = mx.array([list(islice(text, rows))])
            mx.eval(mx.argmax(model(tokens, cache=caches)[0], axis=-1))
        return clock() - start

    times: dict[int, float] = {}
    for rows in SIZES:
        if len(times) >= SIZES_MIN and clock() - began > BUDGET_S:
            break
        times[rows] = min(seconds(rows) for _ in range(ROUNDS))
    return times
