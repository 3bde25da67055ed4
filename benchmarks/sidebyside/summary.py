"""What a run says: medians and spreads per scenario, ratios to the cold turn of the same round, goals.

Everything is computed from the report's ``steps``, so a committed report can be read again.

Invariant: a ratio has both its sides in one round of one server, or is named as one between two servers.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.sidebyside.rounds import (
    ALTERNATE,
    COLD,
    CUT_PREFILL,
    CUT_REPLY,
    EDIT,
    FOLLOW_UP,
    RESTART,
    SCENARIOS,
)
from benchmarks.store.figure import Figure

OURS, PEER = "qmlx", "mlx_lm.server"
NAMES = {OURS: "qmlx-lsp", PEER: "mlx_lm.server"}

Report = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """One scenario of one server at one size: seconds to the first token; tokens computed, and of how many each time.
    ``against_cold`` is the median over the rounds of the scenario's seconds / the cold turn's of the same round."""

    seconds: list[float]
    computed: list[int]
    prompts: list[int]
    against_cold: float | None

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def most(self) -> tuple[int, int] | None:
        """The most that was computed, and of how many tokens that was."""
        return max(zip(self.computed, self.prompts, strict=True), default=None)


def sizes(report: Report, model: str) -> list[int]:
    return sorted({step["tokens"] for step in report["steps"] if step["model"] == model})


def models(report: Report) -> list[str]:
    return list(dict.fromkeys(step["model"] for step in report["steps"]))


def cell(report: Report, model: str, tokens: int, server: str, scenario: str) -> Cell | None:
    """None where nothing was measured."""
    of = [s for s in report["steps"] if (s["model"], s["tokens"], s["server"]) == (model, tokens, server)]
    found = [step for step in of if step["scenario"] == scenario and step["ttft_s"] is not None]
    if not found:
        return None
    cold = {step["round"]: step["ttft_s"] for step in of if step["scenario"] == COLD and step["ttft_s"]}
    ratios = [step["ttft_s"] / cold[step["round"]] for step in found if step["round"] in cold]
    stated = [step for step in found if step["computed"] is not None]
    computed, prompts = ([step[key] for step in stated] for key in ("computed", "prompt"))
    ratio = statistics.median(ratios) if ratios else None
    return Cell([step["ttft_s"] for step in found], computed, prompts, ratio)


def table(report: Report) -> str:
    """Markdown: per model and size a line for every scenario, both servers beside each other."""
    parts = []
    for model in models(report):
        for tokens in sizes(report, model):
            rounds = len({s["round"] for s in report["steps"] if (s["model"], s["tokens"]) == (model, tokens)})
            parts += ["", f"**{model}, {tokens:,} tokens**, {rounds} {'round' if rounds == 1 else 'rounds'}", ""]
            columns = ["computed", "first token", "of cold"]
            parts.append(
                "| scenario | " + " | ".join(f"{NAMES[s]}: {c}" for s in (PEER, OURS) for c in columns) + " |"
            )
            parts.append("| --- |" + " ---: |" * 6)
            for scenario in SCENARIOS:
                cells = [_words(cell(report, model, tokens, server, scenario)) for server in (PEER, OURS)]
                parts.append(f"| {scenario} | {' | '.join(cells)} |")
    return "\n".join(parts[1:])


def _words(found: Cell | None) -> str:
    if found is None:
        return "– | – | –"
    spread = "" if len(found.seconds) == 1 else f" ({min(found.seconds):.2f} to {max(found.seconds):.2f})"
    return " | ".join((
        "not stated" if not found.computed else f"{_range(found.computed)} of {_range(found.prompts)}",
        f"{found.median:.2f} s{spread}",
        "–" if found.against_cold is None else f"{found.against_cold:.3f}",
    ))  # fmt: skip


def _range(values: Sequence[int]) -> str:
    least, most = min(values), max(values)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


# --- goals ----------------------------------------------------------------------------------------------------------

FACTOR_WARM, FACTOR_RESTART = 1.0, 1.3
COLD_FACTORS = {1_024: 20.0, 2_048: 50.0}
"""How many times quicker than cold a restarted conversation must go on, by size."""
HYBRID_TOKENS, HYBRID_FACTOR = 32_768, 137.0
"""Published for a 122B on an M3 Ultra: 88 s to 0.64 s."""
CUT_SHARE_MOST = 0.15
QUESTION_MOST = 64
"""Tokens of a short question with all that the template puts around it, more than any here has."""


def goals(report: Report) -> list[Figure]:
    """What was promised, beside what was measured."""
    found = []
    for model in models(report):
        for tokens in sizes(report, model):
            cells = {
                (server, name): cell(report, model, tokens, server, name) for server in NAMES for name in SCENARIOS
            }
            found += _goals(model, tokens, cells)
    return found


def _goals(model: str, tokens: int, cells: Mapping[tuple[str, str], Cell | None]) -> list[Figure]:
    what = f"{model}, {tokens:,}"
    ours = {name: cells[OURS, name] for name in SCENARIOS}
    figures = []
    warm, peers, cold, restart = ours[FOLLOW_UP], cells[PEER, FOLLOW_UP], ours[COLD], ours[RESTART]
    if warm and peers:
        figures.append(_ratio(f"follow-up / {PEER}'s: {what}", warm, peers, FACTOR_WARM))
    if restart and warm:
        figures.append(_ratio(f"after a restart / our own follow-up: {what}", restart, warm, FACTOR_RESTART))
    if restart and cold and restart.against_cold:
        goal = HYBRID_FACTOR if (model, tokens) == ("hybrid", HYBRID_TOKENS) else None
        goal = goal or (COLD_FACTORS.get(tokens) if model == "embedded" else None)
        figures.append(
            Figure(f"cold / after a restart: {what}", round(1 / restart.against_cold, 1), goal=goal, least=True)
        )
    cut = ours[CUT_PREFILL]
    if cut and cut.against_cold is not None:
        figures.append(Figure(f"{CUT_PREFILL} / cold: {what}", round(cut.against_cold, 3), goal=CUT_SHARE_MOST))
    for name in (CUT_REPLY, ALTERNATE, EDIT):
        if (found := ours[name]) and found.computed:
            goal = None if name == EDIT else QUESTION_MOST
            figures.append(Figure(f"{name}, tokens computed: {what}", max(found.computed), "", goal=goal))
    return figures


def _ratio(name: str, one: Cell, other: Cell, goal: float) -> Figure:
    return Figure(
        name, round(one.median / other.median, 2), goal=goal, gate=2 * goal,
        more={"s": round(one.median, 3), "beside_s": round(other.median, 3)},
    )  # fmt: skip
