"""Where a turn starts: pure decision over positions.

The live state and every stored checkpoint are prefixes of the wanted ids by the time they come here (the log only
grows; checkpoints are found by digest and compared by id), so positions are all there is to decide on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Start(StrEnum):
    """Where the model's state for a turn comes from."""

    LIVE = "live"
    RESTORE = "restore"
    COLD = "cold"


@dataclass(frozen=True, slots=True)
class Plan:
    """Start at ``position`` tokens. ``candidate`` is the index of the checkpoint to restore, if that is the start."""

    start: Start
    position: int
    candidate: int | None = None


def restore_points(start: int, end: int, spacing: int, most: int) -> list[int]:
    """Positions inside a prefill of ``[start, end)`` at which its state is worth a checkpoint.

    They lie on a grid that does not depend on ``start``, so that two conversations with the same opening have them
    in common. The grid's step is ``spacing`` tokens, doubled until there are at most ``most`` points. None lies so
    close to either end that it would save next to nothing.
    """
    step = spacing
    while (end - start) // step > most:
        step *= 2
    first = (start // step + 1) * step
    return [point for point in range(first, end, step) if 2 * min(point - start, end - point) >= step]


def resume_plan(wanted: int, live: int | None, stored: Sequence[int], restore_gain_tokens: int) -> Plan:
    """Choose the start for a turn over ``wanted`` tokens.

    Args:
        wanted: tokens the model must have read before the reply's header.
        live: position of the live state, or None when there is none.
        stored: positions of the restorable checkpoints, longest first.
        restore_gain_tokens: a checkpoint must be this much further on than the live state to be worth reading.
    """
    if live is not None and live > wanted:
        live = None  # it has read what is no longer wanted; states cannot be cut
    for index, position in enumerate(stored):
        if position > wanted or position == 0:
            continue
        if live is None or position - live >= restore_gain_tokens:
            return Plan(Start.RESTORE, position, index)
        break
    if live:
        return Plan(Start.LIVE, live)
    return Plan(Start.COLD, 0)
