"""The picture of a run: ``python -m benchmarks.sidebyside.plot REPORT.json PICTURE.svg``.

Seconds to the first token over the size of the context, both logarithmic, a panel for each model. A server has a
colour (of a palette that colour-blind people can tell apart, and that differs in print by lightness), a scenario a
sign and a kind of line. The raw points are shown, the lines join medians.

Invariant: drawing changes nothing else; the same report gives the same picture, byte for byte.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cachecheck.conversation import CheckError
from benchmarks.cachecheck.plot import pyplot, write
from benchmarks.sidebyside import summary
from benchmarks.sidebyside.rounds import COLD, EDIT, FOLLOW_UP, RESTART
from benchmarks.sidebyside.summary import NAMES, OURS, PEER, Report
from qmlx_lsp.errors import QmlxError

COLOURS = {PEER: "#D55E00", OURS: "#0072B2"}
LINES = {COLD: ("o", "-"), RESTART: ("s", "--"), EDIT: ("D", "-."), FOLLOW_UP: ("^", ":")}
PANEL_INCHES, HEIGHT_INCHES = 5.0, 5.0


def draw(report: Report, picture: Path) -> None:
    """Raises CheckError when matplotlib is missing or the picture's name has no known ending."""
    plt = pyplot(picture, "sidebyside")
    names = summary.models(report)
    figure, panels = plt.subplots(
        1, len(names), figsize=(PANEL_INCHES * len(names), HEIGHT_INCHES), layout="constrained", squeeze=False
    )
    for axes, name in zip(panels[0], names, strict=True):
        _panel(axes, report, name)
    panels[0][0].set_ylabel("seconds to the first token")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8)
    figure.suptitle(title(report), fontsize=8)
    write(plt, figure, picture)


def _panel(axes: Any, report: Report, model: str) -> None:
    from matplotlib.ticker import FuncFormatter, NullLocator

    sizes = summary.sizes(report, model)
    for server, colour in COLOURS.items():
        for scenario, (sign, line) in LINES.items():
            cells = {size: summary.cell(report, model, size, server, scenario) for size in sizes}
            found = {size: one for size, one in cells.items() if one is not None}
            for size, one in found.items():
                axes.plot(
                    [size] * len(one.seconds), one.seconds, sign, color=colour, markerfacecolor="none", alpha=0.6
                )
            axes.plot(
                list(found), [one.median for one in found.values()], line, marker=sign, markersize=4, color=colour,
                label=f"{NAMES[server]}: {scenario}",
            )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="tokens of the conversation", title=model)
    axes.set_xticks(sizes)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _at: f"{size / 1024:g}k"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _at: f"{seconds:g}"))
    axes.grid(visible=True, which="both", color="#dddddd", linewidth=0.5)


def title(report: Report) -> str:
    """Machine, date, versions and the command."""
    about = report["machine"]
    return (
        f"{about['processor']}, {about['cores']} cores, {about['system']} · {report['when']} · qmlx-lsp "
        f"{about['qmlx-lsp']}, mlx {about['mlx']}, mlx-lm {about['mlx-lm']} · python -m benchmarks.sidebyside"
    )


def main(arguments: Sequence[str]) -> int:
    if len(arguments) < 2:
        print("usage: python -m benchmarks.sidebyside.plot REPORT.json PICTURE.svg|png …", file=sys.stderr)
        return 2
    try:
        report = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
        if not isinstance(report, dict) or "sidebyside" not in report:
            raise CheckError(f"{arguments[0]} is no report of sidebyside.")
        for picture in arguments[1:]:
            draw(report, Path(picture))
    except ValueError as error:
        print(f"sidebyside: {arguments[0]} is no report: {error}.", file=sys.stderr)
        return 2
    except (QmlxError, OSError) as error:
        print(f"sidebyside: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
