"""What a figure's bound says of it, and what a run of figures amounts to."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from benchmarks.quick import __main__ as quick
from benchmarks.quick.bound import Bounded, Sense, Verdict, exit_code, summary, table
from benchmarks.quick.counts import cut_at, project
from benchmarks.quick.ratios import settled

KEPT = Bounded("tokens again", 0, Sense.EXACT, 0)
MISSED = Bounded("restored start", 2.5, Sense.LEAST, 8.0, "×")
BROKEN = Bounded("cut", None, Sense.MOST, 0.15, why="nothing was cut")


@pytest.mark.parametrize(
    ("value", "sense", "verdict"),
    [
        (1.5, Sense.MOST, Verdict.KEPT), (1.51, Sense.MOST, Verdict.MISSED), (1.5, Sense.LEAST, Verdict.KEPT),
        (1.49, Sense.LEAST, Verdict.MISSED), (1.5, Sense.EXACT, Verdict.KEPT), (1.0, Sense.EXACT, Verdict.MISSED),
        (None, Sense.MOST, Verdict.UNMEASURED), (math.nan, Sense.MOST, Verdict.UNMEASURED),
        (math.inf, Sense.LEAST, Verdict.UNMEASURED),
    ],
)  # fmt: skip
def test_verdicts(value: float | None, sense: Sense, verdict: Verdict) -> None:
    assert Bounded("a", value, sense, 1.5).verdict is verdict


def test_exit_codes() -> None:
    assert exit_code([KEPT]) == 0
    assert exit_code([KEPT, MISSED]) == 1
    assert exit_code([KEPT, BROKEN]) == 2
    assert exit_code([BROKEN, MISSED]) == 1
    assert exit_code([]) == 2  # nothing measured is no success


def test_table() -> None:
    lines = table([KEPT, MISSED, BROKEN]).splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["tokens", "again", "0", "=", "0", "exact", "kept"],
        ["restored", "start", "2.5", "×", "≥", "8", "higher", "MISSED"],
        ["cut", "–", "≤", "0.15", "lower", "NOT", "MEASURED:", "nothing", "was", "cut"],
    ]
    assert summary([KEPT, MISSED, BROKEN]) == "1 kept, 1 missed, 1 not measured"


def test_a_ratio_that_misses_has_another_try_and_the_better_counts() -> None:
    for values, expected in (([2.0, 9.0], 9.0), ([2.0, 1.0], 2.0), ([9.0], 9.0)):
        left = iter(values)
        found = settled(lambda left=left: Bounded("a", next(left), Sense.LEAST, 8.0))  # type: ignore[misc]
        assert found.value == expected
        assert next(left, None) is None


def test_a_broken_part_is_told_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken():
        yield KEPT
        raise RuntimeError("no such model\nand more")

    monkeypatch.setattr(quick, "PARTS", {"one": broken, "two": lambda: iter([KEPT])})
    assert quick.main(["--json", str(tmp_path / "a.json")]) == 2
    figures = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["figures"]
    assert [(one["name"], one["verdict"]) for one in figures] == [
        ("tokens again", "kept"), ("one: all of it", "NOT MEASURED"), ("tokens again", "kept")
    ]  # fmt: skip
    assert figures[1]["why"] == "RuntimeError: no such model"
    assert "2 kept, 1 not measured" in capsys.readouterr().out
    assert quick.main(["--json", str(tmp_path / "none" / "a.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_where_a_prefill_is_cut() -> None:
    stop = cut_at(0.9, 1_000, known=100)
    assert not stop([256, 256, 256])
    assert stop([256, 256, 256, 32])  # 100 that were known, and 800


def test_projects_share_no_line(tmp_path: Path) -> None:
    one, two = ((project(tmp_path, name, 50) / "module.py").read_text(encoding="utf-8") for name in ("one", "two"))
    assert len(one) == len(two)
    assert not set(one.splitlines()) & set(two.splitlines())
