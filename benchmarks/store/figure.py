"""A measured value beside its goal, and how two sides are measured fairly on a machine that does other things too.

A *goal* is what the design promises; a *gate* is what a noisy machine must still reach. A run fails on gates alone.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Figure:
    """``gate`` defaults to the goal; without either, the value is shown only. ``least``: larger is better."""

    name: str
    value: float
    unit: str = "×"
    goal: float | None = None
    gate: float | None = None
    least: bool = False
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return "–"
        if self._reaches(self.goal):
            return "pass"
        return "gate" if self.gate is not None and self._reaches(self.gate) else "MISS"

    def _reaches(self, limit: float) -> bool:
        return self.value >= limit if self.least else self.value <= limit

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "value": self.value, "unit": self.unit, "goal": self.goal, "gate": self.gate,
            "verdict": self.verdict, **self.more,
        }  # fmt: skip


def table(figures: Sequence[Figure]) -> str:
    """All figures for people to read, in columns."""
    lines = [("figure", "measured", "goal", "gate", "", "")]
    for figure in figures:
        sign = "≥" if figure.least else "≤"
        limits = ["" if limit is None else f"{sign} {limit:g}" for limit in (figure.goal, figure.gate)]
        more = ", ".join(f"{key} {_short(value)}" for key, value in figure.more.items())
        lines.append((figure.name, f"{_short(figure.value)} {figure.unit}".strip(), *limits, figure.verdict, more))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _short(value: Any) -> str:
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) < 1 else f"{value:.4g}"


def tell(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


def pairs(first: Callable[[], float], second: Callable[[], float], rounds: int) -> list[tuple[float, float]]:
    """``rounds`` measurements of both, next to each other in time and in random order, so that neither side has the
    quiet moments."""
    order = random.Random(rounds)
    found = []
    for _ in range(rounds):
        if order.random() < 0.5:
            one = first()
            found.append((one, second()))
        else:
            two = second()
            found.append((first(), two))
    return found


def ratio(found: Sequence[tuple[float, float]]) -> float:
    """The median of the pairs' ratios."""
    return statistics.median(one / two for one, two in found)


def resident() -> int:
    """Bytes of this process in physical memory just now."""
    if sys.platform == "linux":
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    shown = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, check=True)
    return int(shown.stdout) * 1024


def apart(work: Callable[..., T], *args: Any, fresh: bool = False) -> T:
    """Call ``work`` in a process of its own, which leaves nothing behind in this one.

    ``fresh``: glibc keeps freed blocks of up to 32 MiB, and what is allocated in them afterwards costs no page
    faults. A daemon that restores has no such blocks; so nothing is kept.
    """
    with _environment(MALLOC_MMAP_THRESHOLD_="65536") if fresh else _environment():
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            return pool.submit(work, *args).result()


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    former = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(former)
