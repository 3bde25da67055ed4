"""What a figure is worth beside its bound, and a run of them: exit codes, table and JSON, worked out by hand."""

from __future__ import annotations

import json
import math

import pytest

from benchmarks.quick.bound import Bounded, Sense, Verdict, exit_code, summary, table

KEPT = Bounded("restored", 25.3, Sense.LEAST, 8.0, "×")
MISSED = Bounded("written", 1.5, Sense.MOST, 1.02, "×")
NOT = Bounded("cut", None, Sense.EXACT, 0, why="nothing was cut")


@pytest.mark.parametrize(
    ("sense", "value", "verdict"),
    [
        (Sense.MOST, 1.5, Verdict.KEPT),
        (Sense.MOST, 1.5001, Verdict.MISSED),
        (Sense.MOST, -1.0, Verdict.KEPT),
        (Sense.LEAST, 1.5, Verdict.KEPT),
        (Sense.LEAST, 1.4999, Verdict.MISSED),
        (Sense.EXACT, 1.5, Verdict.KEPT),
        (Sense.EXACT, 2.5, Verdict.MISSED),
        (Sense.EXACT, 0.5, Verdict.MISSED),
        (Sense.MOST, None, Verdict.UNMEASURED),
        (Sense.MOST, -math.inf, Verdict.UNMEASURED),
        (Sense.LEAST, math.inf, Verdict.UNMEASURED),
        (Sense.EXACT, math.nan, Verdict.UNMEASURED),
    ],
)
def test_a_value_is_kept_on_its_side_of_the_bound(sense: Sense, value: float | None, verdict: Verdict) -> None:
    assert Bounded("figure", value, sense, 1.5).verdict is verdict


def test_one_token_more_than_the_new_ones_is_a_miss() -> None:
    assert Bounded("follow-up", 0, Sense.EXACT, 0).verdict is Verdict.KEPT
    assert Bounded("follow-up", 1, Sense.EXACT, 0).verdict is Verdict.MISSED
    assert Bounded("follow-up", -1, Sense.EXACT, 0).verdict is Verdict.MISSED


def test_a_miss_weighs_more_than_what_could_not_be_measured() -> None:
    assert exit_code([KEPT]) == 0
    assert exit_code([KEPT, MISSED]) == 1
    assert exit_code([KEPT, NOT]) == 2
    assert exit_code([NOT, MISSED, KEPT]) == 1


def test_nothing_measured_is_no_success() -> None:
    assert exit_code([]) == 2
    assert summary([]) == "nothing was measured"


def test_the_table_has_a_line_a_figure_and_says_why() -> None:
    head, *lines = [line.split() for line in table([KEPT, MISSED, NOT]).splitlines()]
    assert head == ["figure", "measured", "bound", "better"]
    assert lines == [
        ["restored", "25.3", "×", "≥", "8", "higher", "kept"],
        ["written", "1.5", "×", "≤", "1.02", "lower", "MISSED"],
        ["cut", "–", "=", "0", "exact", "NOT", "MEASURED:", "nothing", "was", "cut"],
    ]
    assert summary([KEPT, MISSED, NOT, KEPT]) == "2 kept, 1 missed, 1 not measured"


def test_json_has_no_number_where_nothing_was_measured() -> None:
    broken = Bounded("ratio", math.inf, Sense.LEAST, 8.0, "×")
    assert json.loads(json.dumps([one.as_dict() for one in (MISSED, broken)], allow_nan=False)) == [
        {
            "name": "written", "value": 1.5, "unit": "×", "bound": 1.02, "sense": "≤", "better": "lower",
            "verdict": "MISSED", "why": "",
        },
        {
            "name": "ratio", "value": None, "unit": "×", "bound": 8.0, "sense": "≥", "better": "higher",
            "verdict": "NOT MEASURED", "why": "",
        },
    ]  # fmt: skip
