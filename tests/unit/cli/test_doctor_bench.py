"""``doctor --bench`` in words: figures, the table, what is said beforehand. Nothing is measured here."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qmlx_lsp import paths
from qmlx_lsp.cli import doctor_bench
from qmlx_lsp.cli.doctor_bench import measured_lines, rate, seconds, table
from qmlx_lsp.measure.expect import Expectation
from qmlx_lsp.measure.figures import Figure

EXPECTED = Expectation(
    "mlx-community/Some-4bit",
    weight_bytes=4e9,
    needed_bytes=5e9,
    fits=True,
    tokens=32_768,
    measured=False,
    prefill=1_234.5,
    decode=45.67,
    cold_s=26.5,
    restored_s=0.25,
    written_bytes=57e6,
)


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (812e9, "bytes/s", "812.0 GB/s"),
        (26.123e12, "flop/s", "26.12 TFLOP/s"),
        (2.94e9, "flop/s", "2.9 GFLOP/s"),
        (45.67, "tokens/s", "45.7 tok/s"),
        (0.0317, "tokens/s", "0.032 tok/s"),
        (1_234.5, "tokens/s", "1,234 tok/s"),
        (1.234, "times", "1.23 ×"),
        (1.94, "s", "1.9 s"),
    ],
)
def test_figures_have_their_units(value: float, unit: str, said: str) -> None:
    assert rate(value, unit) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.2, "200 ms"), (1, "1.0 s"), (99.9, "99.9 s"), (100, "2 min"), (5_999, "100 min"), (7_200, "2 h")],
)
def test_times(value: float, said: str) -> None:
    assert seconds(value) == said


def test_estimates_are_marked_and_figures_are_not() -> None:
    _, estimated = table([EXPECTED])
    assert estimated.split() == (
        ["Some-4bit", "4.0", "GB", "yes", "~45.7", "~1,234", "~26.5", "s", "~250", "ms", "57.0", "MB"]
    )
    _, measured, beside = table([replace(EXPECTED, measured=True, estimated_decode=60.0, estimated_prefill=2_000.0)])
    assert measured.split()[4:8] == ["45.7", "1,234", "~26.5", "s"]
    assert "the estimate would be ~60.0 and ~2,000 tok/s" in beside


def test_a_measured_model_that_reads_less_says_so() -> None:
    *_, beside = table([replace(EXPECTED, measured=True, tokens=8_192, behind=512)])
    assert beside.strip() == "speeds measured here, writing behind 512 tokens; it reads 8,192 tokens at most"


def test_nothing_is_promised_of_a_model_that_does_not_fit_or_was_not_measured() -> None:
    _, large = table([replace(EXPECTED, fits=False)])
    assert large.split()[3:] == ["no", "needs", "5.0", "GB", "with", "its", "state"]
    _, unknown = table([replace(EXPECTED, fits=None, decode=None, prefill=None, cold_s=None, restored_s=None)])
    assert unknown.split()[3:8] == ["?", "–", "–", "–", "–"]


def test_what_could_not_be_measured_says_why() -> None:
    lines = list(
        measured_lines(
            [
                Figure("ssd_read", None, "bytes/s", note="no space"),
                Figure("load", 2.0, "s", "0.54 GB"),
                Figure("prefill_512", 20.0, "tokens/s", "the first 512 tokens"),
            ],
            "embedded",
        )
    )
    assert lines[0].split("–")[1].strip() == "no space"
    assert lines[1] == "  embedded:"
    assert lines[3].split() == ["reading", "512", "tokens", "20.0", "tok/s", "the", "first", "512", "tokens"]


def warned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, status: dict[str, Any] | None, busy: float) -> str:
    monkeypatch.setenv("QMLX_HOME", str(tmp_path))
    monkeypatch.setattr(doctor_bench, "ask_daemon", lambda _where, _op: status)
    monkeypatch.setattr(os, "getloadavg", lambda: (busy, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    return "\n".join(doctor_bench._warnings(paths.find()))


def test_a_daemon_with_a_model_and_a_busy_machine_are_said_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = warned(monkeypatch, tmp_path, {"model": {"name": "a/b", "state": "ready"}}, 4.1)
    assert "A daemon runs with a/b (ready)" in said
    assert "4.1 of 8 cores" in said
    quiet = warned(monkeypatch, tmp_path, None, 4.0)
    assert "daemon" not in quiet
    assert "cores" not in quiet
    assert "A daemon runs:" in warned(monkeypatch, tmp_path, {"version": "0.0.1", "model": "a/b"}, 0.0)


def test_on_another_system_than_macos_it_is_for_trying_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("platform.system", lambda: "Linux")
    assert "trying out" in warned(monkeypatch, tmp_path, None, 0.0)
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    assert warned(monkeypatch, tmp_path, None, 0.0) == ""
