"""Timing what MLX does, within a share of the time: what memory gives, and what weights cost.

The size of a pass is not known beforehand, for machines differ by a factor of a thousand: it grows from a small one
while there is time for the next, and the largest one counts.

Invariant: no pass is begun that would, by what the one before it took, end behind its deadline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from qmlx_lsp.measure.figures import BYTES_S, CLOCK_S, Deadline, Figure

if TYPE_CHECKING:
    from qmlx_lsp.engine.mlx.measuring import Pass

ROUNDS = 5  # timed calls of one size at most; the quickest counts, for others only add to it
GROWTH_MARGIN = 1.5  # a larger pass may take this much more than its size says


def quickest(one: Callable[[], None], deadline: Deadline, rounds: int = ROUNDS) -> tuple[float, int]:
    """Seconds of the quickest call, and of how many; the first, which may build kernels, counts only when alone."""
    clock, times = deadline.clock, []
    for _ in range(rounds + 1):
        began = clock()
        one()
        times.append(clock() - began)
        if deadline.left < times[-1]:
            break
    return min(times[1:] or times), max(1, len(times) - 1)


def grown(
    name: str,
    unit: str,
    make: Callable[[int], Pass],
    sizes: Sequence[int],
    words: str,
    deadline: Deadline,
    *,
    power: int = 1,
) -> Figure:
    """The throughput of the largest of ``sizes`` (ascending) for which there was time.

    ``words`` names a size, as ``{0:,}``; the work of one grows with its ``power``.
    """
    value, over = 0.0, ""
    for size, larger in zip(sizes, [*sizes[1:], 0], strict=True):
        one = make(size)
        seconds, rounds = quickest(one.call, deadline)
        value = (one.nbytes if unit == BYTES_S else one.flop) / max(seconds, CLOCK_S)
        over = f"{words.format(size)}, {rounds} times"
        if not larger or deadline.left < 2 * GROWTH_MARGIN * (larger / size) ** power * seconds:
            break
        del one  # before the larger one is made
    return Figure(name, value, unit, over)
