"""A measured count or ratio beside its bound, and what a run of them amounts to. Pure.

Invariant: a figure that could not be measured never passes: it is neither kept nor missed, and says why.
Invariant: no figure is a time; what is measured in seconds gets here as a ratio of two sides of one run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

KEPT, MISSED, UNMEASURED = 0, 1, 2  # exit codes


class Sense(StrEnum):
    """Which side of the bound a value must be on."""

    MOST = "≤"
    LEAST = "≥"
    EXACT = "="


class Verdict(StrEnum):
    KEPT = "kept"
    MISSED = "MISSED"
    UNMEASURED = "NOT MEASURED"


@dataclass(frozen=True, slots=True)
class Bounded:
    """``value`` is None where it could not be measured; ``why`` says what was in the way."""

    name: str
    value: float | None
    sense: Sense
    bound: float
    unit: str = ""
    why: str = ""

    @property
    def better(self) -> str:
        """Which way is better, for people."""
        return {Sense.MOST: "lower", Sense.LEAST: "higher", Sense.EXACT: "exact"}[self.sense]

    @property
    def verdict(self) -> Verdict:
        if self.value is None or not math.isfinite(self.value):
            return Verdict.UNMEASURED
        kept = {
            Sense.MOST: self.value <= self.bound,
            Sense.LEAST: self.value >= self.bound,
            Sense.EXACT: self.value == self.bound,
        }[self.sense]
        return Verdict.KEPT if kept else Verdict.MISSED

    def as_dict(self) -> dict[str, Any]:
        measured = self.value if self.verdict is not Verdict.UNMEASURED else None
        return {
            "name": self.name, "value": measured, "unit": self.unit, "bound": self.bound, "sense": self.sense.value,
            "better": self.better, "verdict": self.verdict.value, "why": self.why,
        }  # fmt: skip


def exit_code(figures: Sequence[Bounded]) -> int:
    """1 when one missed its bound, 2 when none did but one could not be measured; nothing measured is no success."""
    verdicts = {figure.verdict for figure in figures}
    if Verdict.MISSED in verdicts:
        return MISSED
    return UNMEASURED if Verdict.UNMEASURED in verdicts or not figures else KEPT


def table(figures: Sequence[Bounded]) -> str:
    """All figures in columns; a line for each that says why it could not be measured."""
    rows = [("figure", "measured", "bound", "better", "")]
    rows += [(one.name, _shown(one), f"{one.sense.value} {one.bound:g}", one.better, _ending(one)) for one in figures]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def summary(figures: Sequence[Bounded]) -> str:
    """One line: how many of each."""
    verdicts = [figure.verdict for figure in figures]
    counts = [f"{verdicts.count(one)} {one.value.lower()}" for one in Verdict if one in verdicts]
    return ", ".join(counts) or "nothing was measured"


def _shown(figure: Bounded) -> str:
    if figure.verdict is Verdict.UNMEASURED or figure.value is None:
        return "–"
    return f"{figure.value:.4g} {figure.unit}".strip()


def _ending(figure: Bounded) -> str:
    return f"{figure.verdict.value}: {figure.why}" if figure.why else figure.verdict.value
