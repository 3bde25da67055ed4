"""One or several runs in one picture: ``python -m benchmarks.cachecheck.plot REPORT.json … PICTURE.svg``.

What a server had to compute, at least, is on one axis, and what it computed on the other, both logarithmic: on the
diagonal nothing is read twice, on the upper edge of the cloud everything is read again. Each server has a colour (of
a palette that colour-blind people can tell apart, and that differs in print by lightness) and each bug a sign; the
raw points are shown, nothing is averaged. What a server does not state is not in the picture, nor are prefills that
were cut: how far they had come is not known.

Invariant: drawing changes nothing else; the same reports give the same picture, byte for byte.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cachecheck.conversation import CheckError
from qmlx_lsp.errors import QmlxError

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000")
SIGNS = {"stability": "o", "interrupt": "s", "poison": "^"}
KINDS = (".svg", ".png")
INCHES, DPI = (8.0, 6.0), 160
SIDES = (3, -9)  # points above and below a sign, in turns, for signs of a kind stand close together
LABELS_MAX = 8
"""Scenarios that are named in the picture: the bugs that cost most."""

Report = Mapping[str, Any]


def draw(reports: Sequence[Report], picture: Path) -> None:
    """Raises CheckError when matplotlib is missing or the picture's name has no known ending."""
    plt = pyplot(picture, "cachecheck")
    from matplotlib.lines import Line2D

    figure, axes = plt.subplots(figsize=INCHES, layout="constrained")
    handles = []
    for report, colour in zip(reports, COLOURS * len(reports), strict=False):
        for found in points(report):
            filled = colour if found["verdict"] == "bug" else "none"
            axes.plot(
                found["least"], found["computed"], SIGNS[found["bug"]], color=colour, markerfacecolor=filled,
                markersize=8, alpha=0.9,
            )  # fmt: skip
        handles.append(Line2D([], [], marker="o", linestyle="", color=colour, label=name_of(report)))
    handles += [
        Line2D([], [], marker=sign, linestyle="", color="#666666", markerfacecolor="none", label=bug)
        for bug, sign in SIGNS.items()
    ]
    handles.append(Line2D([], [], marker="o", linestyle="", color="#666666", label="filled: a bug"))
    _name_the_worst(axes, reports)
    _finish(axes, reports)
    axes.legend(handles=handles, loc="lower right", fontsize=8, framealpha=0.9)
    write(plt, figure, picture)


def pyplot(picture: Path, salt: str) -> Any:
    """Matplotlib's, without a screen; ``salt`` makes the ids in an SVG, which are else drawn by chance. Raises
    CheckError when it is missing or ``picture`` has no known ending."""
    if picture.suffix not in KINDS:
        raise CheckError(f"{picture} is no picture: its name must end in {' or '.join(KINDS)}.")
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise CheckError("Plots need matplotlib: pip install '.[bench]'.") from error
    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = salt
    from matplotlib import pyplot as plt

    return plt


def write(plt: Any, figure: Any, picture: Path) -> None:
    """The same bytes for the same figure: no dates, no versions."""
    metadata = {"Date": None} if picture.suffix == ".svg" else {"Software": None}
    figure.savefig(picture, dpi=DPI, metadata=metadata)
    plt.close(figure)


def points(report: Report) -> list[dict[str, Any]]:
    """The findings that can be drawn: at least to compute, and computed. An axis of logarithms has no 0, so 1."""
    found = []
    for finding in report["findings"]:
        evidence = finding["evidence"]
        prompt, computed, had = (evidence.get(name) for name in ("prompt", "computed", "had"))
        if prompt is None or computed is None or had is None:
            continue
        found.append({
            "bug": finding["bug"], "scenario": finding["scenario"], "verdict": finding["verdict"],
            "least": max(1, prompt - had), "computed": max(1, computed), "again": finding["again"] or 0,
        })  # fmt: skip
    return found


def name_of(report: Report) -> str:
    target = report["target"]
    return str(report.get("name") or (target.get("url") if target["kind"] == "openai" else "qmlx-lsp"))


def _name_the_worst(axes: Any, reports: Sequence[Report]) -> None:
    bugs = [found for report in reports for found in points(report) if found["verdict"] == "bug"]
    named: set[str] = set()
    for found in sorted(bugs, key=lambda found: -found["again"]):
        if found["scenario"] not in named and len(named) < LABELS_MAX:
            named.add(found["scenario"])
            axes.annotate(
                found["scenario"], (found["least"], found["computed"]), xytext=(8, SIDES[len(named) % 2]), fontsize=7,
                textcoords="offset points",
            )  # fmt: skip


def _finish(axes: Any, reports: Sequence[Report]) -> None:
    values = [found[name] for report in reports for found in points(report) for name in ("least", "computed")]
    ends = [min(values, default=1), max(values, default=1_000)]
    axes.plot(ends, ends, "-", color="#999999", linewidth=1, zorder=0)
    axes.annotate(
        "nothing read twice", ends[:1] * 2, xytext=(12, 2), textcoords="offset points", fontsize=7, rotation=0
    )
    axes.set(
        xscale="log", yscale="log", xlabel="tokens that had to be computed at least, had the client changed nothing",
        ylabel="tokens computed, as the server states",
    )  # fmt: skip
    axes.set_title(_title(reports), fontsize=9)
    axes.grid(visible=True, which="both", color="#dddddd", linewidth=0.5)


def _title(reports: Sequence[Report]) -> str:
    first = reports[0]
    about = first["machine"]
    sizes = "/".join(str(size) for size in first["options"]["tokens"])
    return f"cachecheck, contexts of {sizes} tokens · {about['processor']}, {about['cores']} cores · {first['when']}"


def main(arguments: Sequence[str]) -> int:
    if len(arguments) < 2:
        print("usage: python -m benchmarks.cachecheck.plot [NAME=]REPORT.json … PICTURE.svg|png", file=sys.stderr)
        return 2
    try:
        draw([_read(given) for given in arguments[:-1]], Path(arguments[-1]))
    except (QmlxError, OSError) as error:
        print(f"cachecheck: {error}", file=sys.stderr)
        return 2
    return 0


def _read(given: str) -> Report:
    """A report, under another name if one is given before ``=``."""
    name, _, file = given.rpartition("=")
    try:
        report = json.loads(Path(file).read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckError(f"{file} is no report: {error}.") from error
    if not isinstance(report, dict) or "cachecheck" not in report:
        raise CheckError(f"{file} is no report of cachecheck.")
    return {**report, "name": name or None}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
