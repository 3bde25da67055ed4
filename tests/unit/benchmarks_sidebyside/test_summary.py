"""Medians, ratios and goals, from steps whose figures are worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import report as whole
from benchmarks.cachecheck.conversation import CheckError
from benchmarks.sidebyside import plot, summary
from benchmarks.sidebyside.rounds import COLD, CUT_PREFILL, CUT_REPLY, EDIT, FOLLOW_UP, RESTART

MACHINE = {
    "processor": "Some CPU", "cores": 2, "system": "Linux x86_64", "python": "3.11.7", "qmlx-lsp": "0.1.0",
    "mlx": "0.32.4", "mlx-lm": "0.32.2",
}  # fmt: skip


def step(server: str, number: int, scenario: str, computed: int | None, ttft_s: float | None) -> dict[str, Any]:
    return {
        "server": server, "model": "embedded", "tokens": 1_024, "round": number, "scenario": scenario,
        "prompt": 1_000, "computed": computed, "ttft_s": ttft_s,
    }  # fmt: skip


STEPS = [
    step("mlx_lm.server", 1, COLD, 1_000, 8.0), step("mlx_lm.server", 2, COLD, 1_000, 12.0),
    step("mlx_lm.server", 1, FOLLOW_UP, 18, 0.5), step("mlx_lm.server", 2, FOLLOW_UP, 20, 0.5),
    step("mlx_lm.server", 1, RESTART, 1_000, 8.0),
    step("qmlx", 1, COLD, 1_000, 8.0), step("qmlx", 2, COLD, 1_000, 10.0),
    step("qmlx", 1, FOLLOW_UP, 18, 0.4), step("qmlx", 2, FOLLOW_UP, 18, 0.8),
    step("qmlx", 1, RESTART, 20, 0.4), step("qmlx", 2, RESTART, 20, 1.0),
    step("qmlx", 1, CUT_REPLY, 16, 0.5), step("qmlx", 1, CUT_PREFILL, 300, 2.4),
    step("qmlx", 1, EDIT, 120, None), step("qmlx", 2, EDIT, None, 1.5),
]  # fmt: skip
REPORT = {
    "sidebyside": 1, "when": "2026-11-30", "machine": MACHINE, "seed": 1, "load_before": 0.1, "load_after": 1.2,
    "steps": STEPS,
}  # fmt: skip


def test_cell() -> None:
    cell = summary.cell(REPORT, "embedded", 1_024, "qmlx", FOLLOW_UP)
    assert cell is not None
    # Of cold in the same round: 0.4 / 8 and 0.8 / 10.
    assert (cell.median, cell.computed, cell.against_cold) == (pytest.approx(0.6), [18, 18], pytest.approx(0.065))
    assert summary.cell(REPORT, "embedded", 1_024, "mlx_lm.server", EDIT) is None
    peer = summary.cell(REPORT, "embedded", 1_024, "mlx_lm.server", FOLLOW_UP)
    assert peer is not None
    assert peer.most == (20, 1_000)
    untimed = summary.cell(REPORT, "embedded", 1_024, "qmlx", EDIT)
    assert untimed is not None
    assert (untimed.seconds, untimed.computed, untimed.most) == ([1.5], [], None)


def test_table() -> None:
    lines = summary.table(REPORT).splitlines()
    assert lines[0] == "**embedded, 1,024 tokens**, 2 rounds"
    peer, ours = "18 to 20 of 1,000 | 0.50 s (0.50 to 0.50) | 0.052", "18 of 1,000 | 0.60 s (0.40 to 0.80) | 0.065"
    assert f"| follow-up | {peer} | {ours} |" in lines
    assert "| reply cancelled, ask again | – | – | – | 16 of 1,000 | 0.50 s | 0.062 |" in lines
    assert "| a line early in the context edited | – | – | – | not stated | 1.50 s | 0.150 |" in lines


def test_goals() -> None:
    found = {figure.name: (figure.value, figure.goal, figure.verdict) for figure in summary.goals(REPORT)}
    assert found == {
        "follow-up / mlx_lm.server's: embedded, 1,024": (1.2, 1.0, "gate"),
        "after a restart / our own follow-up: embedded, 1,024": (1.17, 1.3, "pass"),
        # Of cold: 0.05 and 0.1, the median 0.075.
        "cold / after a restart: embedded, 1,024": (13.3, 20.0, "MISS"),
        "prefill cancelled at 90 %, ask again / cold: embedded, 1,024": (0.3, 0.15, "MISS"),
        "reply cancelled, ask again, tokens computed: embedded, 1,024": (16, 64, "pass"),
    }


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_pictures_repeat(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("matplotlib")
    pictures = [tmp_path / f"{number}.{kind}" for number in range(2)]
    for picture in pictures:
        plot.draw(REPORT, picture)
    one, other = (picture.read_bytes() for picture in pictures)
    assert one == other
    assert one.startswith(b"\x89PNG" if kind == "png" else b"<?xml")


def test_a_picture_says_what_it_was_made_on(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot.draw(REPORT, tmp_path / "a.svg")
    shown = (tmp_path / "a.svg").read_text(encoding="utf-8")
    title = "Some CPU, 2 cores, Linux x86_64 · 2026-11-30 · qmlx-lsp 0.1.0, mlx 0.32.4, mlx-lm 0.32.2"
    assert f"<!-- {title} · python -m benchmarks.sidebyside -->" in shown
    assert "<!-- qmlx-lsp: after a restart -->" in shown
    with pytest.raises(CheckError, match="must end in"):
        plot.draw(REPORT, tmp_path / "a.jpeg")


@pytest.mark.parametrize(("content", "words"), [("{", "is no report: "), ("[]", "no report of sidebyside")])
def test_what_is_no_report_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, words: str
) -> None:
    file = tmp_path / "report.json"
    file.write_text(content)
    assert plot.main([str(file), str(tmp_path / "a.svg")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_the_whole_report(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    figures = [
        {"name": "restore / read", "value": 0.81234, "unit": "×", "goal": 1.2, "gate": 1.5, "verdict": "pass"},
        {"name": "speed", "value": 2.0, "unit": "×", "goal": 3.0, "gate": None, "verdict": "MISS", "least": True},
    ]
    (tmp_path / "sidebyside.json").write_text(json.dumps(REPORT))
    (tmp_path / "store.json").write_text(json.dumps({"machine": MACHINE, "figures": figures}))
    (tmp_path / "start.json").write_text(
        json.dumps({
            "start": {"version_ms": 56.1}, "machine": MACHINE,
            "demo": [{"step": 2, "name": "follow-up", "factor": 37.6}],
        })
    )  # fmt: skip
    missed = whole.missed(tmp_path)
    assert missed[-1] == "store: speed: 2 × (goal ≥ 3)"
    assert "sidebyside: cold / after a restart: embedded, 1,024: 13.3 × (goal ≥ 20)" in missed
    assert not any("restore / read" in line or "follow-up" in line for line in missed)
    whole.write(tmp_path)
    lines = (tmp_path / "report.md").read_text(encoding="utf-8").splitlines()
    assert "| restore / read | 0.8123 × | 1.2 | reached |" in lines
    assert "| speed | 2 × | ≥ 3 | **missed** |" in lines
    assert "| start: version ms | 56.1 |" in lines
    assert "| demo, 2 follow-up: cold / here | 38 × |" in lines
    assert any(line.startswith("| cold / after a restart: embedded, 1,024 | 13.3 × | ≥ 20 |") for line in lines)
    assert (tmp_path / "sidebyside.png").exists()
