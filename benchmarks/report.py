"""``report.md`` of a run, and what the README shows of it, made from the raw data beside it.

Invariant: every number in the report comes from a file in its folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import figures
from benchmarks.sidebyside import plot, summary
from benchmarks.sidebyside.rounds import COLD, CUT_PREFILL, CUT_REPLY, EDIT, FOLLOW_UP, RESTART
from benchmarks.sidebyside.summary import OURS, PEER
from benchmarks.store.figure import Figure

NAME = "report.md"
ROOT = Path(__file__).parents[1]
README_SCENARIOS = (COLD, FOLLOW_UP, RESTART, CUT_REPLY, CUT_PREFILL, EDIT)
README_SIZES = (("embedded", 2_048), ("hybrid", 32_768))
APPLE = "| Apple Silicon | nobody has run it yet: `make bench`, then `python -m benchmarks --report --readme` | | | |"


def write(folder: Path) -> None:
    """The report, and the pictures anew."""
    found = _found(folder)
    parts = []
    if side := found.get("sidebyside"):
        for kind in (".svg", ".png"):
            plot.draw(side, folder / f"sidebyside{kind}")
        parts += [*_about(side), "## Side by side with mlx_lm.server", "", "![seconds](sidebyside.svg)", ""]
        parts += [summary.table(side), "", "### Goals", "", *_figures(_with_goals(found)["sidebyside"])]
    for name, one in found.items():
        if name != "sidebyside":
            parts += ["", f"## {name}", "", f"Measured {one.get('when', 'at a time that is not known')}.", ""]
            parts += [*(_figures(one["figures"]) if "figures" in one else _values(one))]
    (folder / NAME).write_text("\n".join(["# Figures", "", *parts]) + "\n", encoding="utf-8")


def _about(side: dict[str, Any]) -> list[str]:
    about = side["machine"]
    versions = f"qmlx-lsp {about['qmlx-lsp']}, mlx {about['mlx']}, mlx-lm {about['mlx-lm']}"
    return [
        f"{about['processor']}, {about['cores']} cores, {about['system']}, Python {about['python']}, {versions};",
        f"{side['when']}; load {side['load_before']} before, {side.get('load_after', '?')} at the end; seed",
        f"{side['seed']}. Made by `make bench`.",
        "",
    ]


def missed(folder: Path) -> list[str]:
    """A line for every figure that is beyond its gate."""
    return [
        f"{part}: {one['name']}: {one['value']:.4g} {one['unit']}".rstrip() + f" (goal {_goal(one)})"
        for part, measured in _with_goals(_found(folder)).items()
        for one in measured
        if one["verdict"] == "MISS"
    ]


def _found(folder: Path) -> dict[str, Any]:
    """The raw data, by the name of the part."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}


def _with_goals(found: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """What may have a goal, part by part."""
    listed = {name: one["figures"] for name, one in found.items() if "figures" in one}
    side = found.get("sidebyside")
    return listed if side is None else {"sidebyside": [_plain(one) for one in summary.goals(side)], **listed}


def _plain(figure: Figure) -> dict[str, Any]:
    return {**figure.as_dict(), "least": figure.least}


def _figures(figures: list[dict[str, Any]]) -> list[str]:
    rows = [
        f"| {one['name']} | {one['value']:.4g} {one['unit']} | {_goal(one)} | {_verdict(one['verdict'])} |"
        for one in figures
    ]
    return ["| figure | measured | goal | |", "| --- | ---: | ---: | --- |", *rows]


def _goal(one: dict[str, Any]) -> str:
    return "" if one.get("goal") is None else f"{'≥ ' if one.get('least') else ''}{one['goal']:g}"


def _verdict(word: str) -> str:
    return {"pass": "reached", "gate": "missed, within its gate", "MISS": "**missed**"}.get(word, "")


def _values(one: dict[str, Any]) -> list[str]:
    """Of what has no figures with goals: its numbers."""
    lines = ["| value | measured |", "| --- | ---: |"]
    for key, value in one.items():
        if isinstance(value, dict) and key != "machine":
            lines += [f"| {key}: {name.replace('_', ' ')} | {number} |" for name, number in value.items()]
    for step in one.get("demo", ()):
        lines.append(f"| demo, {step['step']} {step['name']}: cold / here | {step['factor']:.0f} × |")
    return lines


# --- the README -----------------------------------------------------------------------------------------------------


def put_into_readme(folder: Path) -> None:
    """The main table and picture, and the demo's table where it was measured."""
    figures.put_into_readme("bench", "\n".join(readme_part(folder)))
    if (start := folder / "start.json").exists():
        found = json.loads(start.read_text(encoding="utf-8"))
        figures.put_into_readme("demo", figures.demo_table(found))


def readme_part(folder: Path) -> list[str]:
    """The picture and the table, and what they were measured on."""
    side = json.loads((folder / "sidebyside.json").read_text(encoding="utf-8"))
    about, shown = side["machine"], folder.resolve().relative_to(ROOT)
    lines = [
        f"![Seconds to the first token over the size of the conversation, both logarithmic]({shown}/sidebyside.png)",
        "",
        "| | | mlx_lm.server | qmlx-lsp | tokens computed: mlx_lm.server; qmlx-lsp |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    for model, tokens in README_SIZES:
        for number, scenario in enumerate(README_SCENARIOS):
            peer, ours = (summary.cell(side, model, tokens, server, scenario) for server in (PEER, OURS))
            if peer is None or ours is None:
                continue
            what = "" if number else f"{model}, {tokens // 1024}k tokens"
            times = f"{peer.median:.2f} s | {ours.median:.2f} s"
            lines.append(f"| {what} | {scenario} | {times} | {_tokens(peer)}; {_tokens(ours)} |")
    lines += [APPLE, ""]
    lines += [
        f"Seconds to the first token, medians. {about['processor']}, {about['cores']} cores, {about['system']},",
        f"no GPU, mlx {about['mlx']}, mlx-lm {about['mlx-lm']}, {side['when']}. `embedded` is SmolLM2-135M, `hybrid`",
        "a tiny Qwen3.5-shaped model with random weights, for sizes that a real one cannot read on CPU cores.",
        f"Made by `make bench`; [the whole report]({shown}/{NAME}) has every size, the spreads and the raw data.",
    ]
    return lines


def _tokens(cell: summary.Cell) -> str:
    return "not stated" if cell.most is None else "{:,} of {:,}".format(*cell.most)
