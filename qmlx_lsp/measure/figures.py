"""One figure of this machine, and the time in which figures may be taken.

Invariant: a figure says over how much it was measured; what was stopped by its share of the time says so by that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# The units of figures. Everything is in bytes, tokens, operations and seconds; the words for people are made later.
BYTES_S, FLOP_S, TOKENS_S, SECONDS, TIMES = "bytes/s", "flop/s", "tokens/s", "s", "times"
CLOCK_S = 1e-9  # nothing takes less, so that a clock that stood still divides nothing by 0


@dataclass(frozen=True, slots=True)
class Figure:
    """``value`` in ``unit``, measured ``over`` so much; or None, and ``note`` says why."""

    name: str
    value: float | None
    unit: str
    over: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a measurement must stop, on ``clock``, which gives seconds."""

    clock: Callable[[], float]
    end: float

    @property
    def left(self) -> float:
        return max(0.0, self.end - self.clock())

    @property
    def over(self) -> bool:
        return self.clock() >= self.end

    def within(self, seconds: float) -> Deadline:
        """A share of it: ``seconds`` from now, and never later than this one."""
        return Deadline(self.clock, min(self.end, self.clock() + seconds))


def gigabytes(nbytes: float) -> str:
    """So many bytes, for people."""
    return f"{nbytes / 1e9:.2f} GB"


def figure(found: dict[str, Figure], name: str) -> float | None:
    """The value of one of ``found``, if it was measured."""
    return found[name].value if name in found else None
