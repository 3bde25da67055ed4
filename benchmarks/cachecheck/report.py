"""What was found, as a table for people and as plain data for programs. Pure.

The data hold every turn of the run, so that whoever doubts a verdict can go back to the figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.cachecheck.verdict import Bug, Finding, Verdict, overall

FORMAT = 1
QUESTIONS = {
    Bug.STABILITY: "what a client changes, or does not, voids what was read",
    Bug.INTERRUPT: "an interrupted reply or prefill is lost",
    Bug.POISON: "other conversations, or a restart, crowd out a long one",
}
NO_NUMBER = "–"
HEAD = ("tokens", "scenario", "prompt", "cached", "computed", "had", "1st token", "of cold", "verdict")


@dataclass(frozen=True)
class Report:
    """Of one run. ``load`` is the machine's load average at its beginning and its end, ``error`` why the run ended
    before that."""

    when: str
    machine: Mapping[str, Any]
    load: tuple[float, float]
    target: Mapping[str, Any]
    options: Mapping[str, Any]
    findings: Sequence[Finding]
    turns: Sequence[Mapping[str, Any]]
    error: str | None = None

    @property
    def bugs(self) -> bool:
        return any(ruling.verdict is Verdict.BUG for ruling in overall(self.findings).values())

    def as_dict(self) -> dict[str, Any]:
        verdicts = {
            bug.value: {"verdict": ruling.verdict.value, "sentence": ruling.sentence}
            for bug, ruling in overall(self.findings).items()
        }
        return {
            "cachecheck": FORMAT, "when": self.when, "machine": dict(self.machine), "load": list(self.load),
            "target": dict(self.target), "options": dict(self.options), "error": self.error,
            "verdicts": verdicts,
            "findings": [finding.as_dict() for finding in self.findings],
            "turns": [dict(turn) for turn in self.turns],
        }  # fmt: skip


def table(report: Report) -> str:
    """The scenarios of each bug with their figures, a sentence below each; then the three verdicts."""
    rows = [HEAD, *(_row(finding) for finding in report.findings)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"{report.target.get('url') or report.target.get('kind')}, {report.when}", "", _aligned(HEAD, widths)]
    for bug in dict.fromkeys(finding.bug for finding in report.findings):
        lines += ["", f"{bug.value}: {QUESTIONS[bug]}?"]
        for finding in report.findings:
            if finding.bug is bug:
                lines += [_aligned(_row(finding), widths), f"    {finding.ruling.sentence}"]
    lines.append("")
    lines += [f"{bug.value}: {ruling.verdict.value.upper()}: {ruling.sentence}" for bug, ruling in
              overall(report.findings).items()]  # fmt: skip
    began, ended = report.load
    lines.append(
        "Tokens are the server's own where it states them; 'had': those of the prompt that it had before. Times hold "
        f"for this run only (load average {began:.1f} at its beginning, {ended:.1f} at its end)."
    )
    return "\n".join(lines)


def _row(finding: Finding) -> tuple[str, ...]:
    turn = finding.turn
    numbers = [None] * 3 if turn is None else [turn.prompt, turn.cached, turn.computed]
    first = None if turn is None else turn.ttft_s
    share = f"{first / finding.cold_s:.2f}" if first is not None and finding.cold_s else NO_NUMBER
    return (
        str(finding.size), finding.scenario, *map(_number, numbers),
        _number(None if finding.had is None else finding.had.whole),
        NO_NUMBER if first is None else f"{first:.2f} s", share, finding.ruling.verdict.value,
    )  # fmt: skip


def _number(value: int | None) -> str:
    return NO_NUMBER if value is None else f"{value:,}"


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    texts = {1, len(cells) - 1}
    return "  ".join(
        cell.ljust(width) if at in texts else cell.rjust(width)
        for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ).rstrip()
