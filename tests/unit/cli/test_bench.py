"""``doctor --bench``: what it prints and writes, with a clock that is injected; and once on a tiny model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from qmlx_lsp import paths
from qmlx_lsp.cli import bench
from qmlx_lsp.cli.bench import Measured
from qmlx_lsp.cli.main import main
from qmlx_lsp.settings import Settings

FOUND = [
    Measured("memory, read", 100.0, "GB/s", "256.0 MB"),
    Measured("matrix product", 10.0, "TFLOP/s", "float16"),
    Measured("disk, written", 3.0, "GB/s", "256.0 MB"),
    Measured("disk, read", 5.0, "GB/s", "256.0 MB"),
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("QMLX_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("QMLX_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(*_: Any) -> Iterator[Measured]:
        yield from FOUND

    monkeypatch.setattr(bench, "measure", found)
    monkeypatch.setattr(bench, "memory", lambda: 64 << 30)


@pytest.mark.usefixtures("measured")
def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--bench"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["memory,", "read", "100", "GB/s", "256.0", "MB"]
    (row,) = [line.split() for line in lines if line.startswith("Qwen2.5-Coder-7B")]
    # 7.6 billion weights: 100 GB/s of 4.275 GB a token; 10 TFLOP/s of 15.2 GFLOP; 32,768 tokens of that;
    # 32,768 x 56 KiB at 5 GB/s.
    assert row[-7:] == ["yes", "23.4/s", "658/s", "50", "s", "0.38", "s"]
    (large,) = [line.split() for line in lines if line.startswith("Qwen3.5-122B")]
    assert "no" in large


@pytest.mark.usefixtures("measured")
def test_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--bench", "--json"]) == 0
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert objects[0] == {
        "measured": {"what": "memory, read", "value": 100.0, "unit": "GB/s", "over": "256.0 MB"}
    }  # fmt: skip
    expected = {one["expected"]["model"]: one["expected"] for one in objects if "expected" in one}
    assert expected["Qwen2.5-Coder-7B"]["decode_per_s"] == pytest.approx(100 / 4.275)
    assert expected["Qwen3.5-122B-A10B"]["fits"] is False


def test_what_was_restored_stands_before_what_the_disk_can() -> None:
    assert bench.machine_of(FOUND, None).restore_per_s == 5e9
    assert bench.machine_of([*FOUND, Measured("restored", 2.0, "GB/s", "")], None).restore_per_s == 2e9
    assert bench.machine_of(FOUND[:2], None).restore_per_s == 100e9


def test_the_disk_is_measured_and_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "DISK_BYTES", 1 << 20)
    monkeypatch.setattr(bench, "BLOCK_BYTES", 1 << 18)
    ticks = count()
    written, read = bench.disk(tmp_path, lambda: float(next(ticks)))  # every look at the clock is a second later
    assert (written.what, written.value) == ("disk, written", pytest.approx((1 << 20) / 1e9))
    assert (read.what, read.value) == ("disk, read", pytest.approx((1 << 20) / 1e9))


def test_a_full_disk_is_not_written_to(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlx.core", exc_type=ImportError, reason="MLX has no wheel here")
    for name in ("MEMORY_S", "PRODUCT_S"):
        monkeypatch.setattr(bench, name, 0.0)
    monkeypatch.setattr(bench, "_room", lambda *_: 0)
    where = paths.find()
    where.prepare()
    found = [one.what for one in bench.measure(where, Settings(), lambda: 0.0)]
    assert found == ["memory, read", "matrix product"]
    assert not list(where.cache.glob("bench-*"))
