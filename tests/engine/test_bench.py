"""``doctor --bench`` with MLX, small and on clocks that are told: what it measures, how it ends, what it leaves."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from qmlx_lsp.cli import doctor, doctor_bench
from qmlx_lsp.cli.main import main
from qmlx_lsp.engine.mlx import measuring
from qmlx_lsp.engine.mlx.backend import MlxBackend
from qmlx_lsp.engine.mlx.measuring import LARGE, Noise, Shape
from qmlx_lsp.errors import CheckpointRejected, StoreError
from qmlx_lsp.measure import bench, disk, passes, states
from qmlx_lsp.measure.bench import Shares
from qmlx_lsp.measure.figures import Deadline, Figure
from qmlx_lsp.measure.model import ModelMeasure

SMALL = Shape(full=2, heads=2, width=32, recurrent=1, state=(1, 2, 4, 8), conv=(1, 3, 16))
# Every kind of pass at its smallest size only, the disk with a slice, no restore.
TINY = Shares(memory_s=0.001, matmul_s=0.001, weights_s=0.001, write_s=0.001, read_s=5.0, restore_s=5.0)
FIGURES = ["memory", "matmul", "weights_row", "weights_chunk", "weights_experts", "ssd_write", "ssd_read", "restore"]


def endless() -> Deadline:
    return Deadline(time.monotonic, math.inf)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("QMLX_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("QMLX_HOME", str(tmp_path))
    monkeypatch.setenv("QMLX_FREE_FLOOR_GIB", "0")
    monkeypatch.setattr(
        doctor, "memory_bytes", lambda: 1 << 30
    )  # of which a sixteenth is held: too little to restore
    return tmp_path


def test_a_run_from_end_to_end(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor_bench.run(as_json=True, shares=TINY, file_bytes=disk.SLICE_BYTES) == 0
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert [one["kind"] for one in lines] == ["machine", *["figure"] * len(FIGURES), *["model"] * 7]
    assert [one["name"] for one in lines[1 : len(FIGURES) + 1]] == FIGURES
    values = {one["name"]: one["value"] for one in lines if one["kind"] == "figure"}
    assert all(values[name] > 0 for name in FIGURES[:-1])
    assert values["restore"] is None, "its smallest state is more than may be held"
    first = next(one for one in lines if one["kind"] == "model")
    assert first["decode"] == pytest.approx(values["weights_row"] / (1.74e9 + 36_864 * 32_768))
    assert (first["fits"], first["measured"], lines[0]["memory_bytes"]) == (False, False, 1 << 30)
    assert "embedded is not on this disk" in err
    assert not (home / "cache" / "bench").exists()


def test_for_people(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With no time at all every line is there and says so."""
    assert doctor_bench.run(as_json=False, shares=Shares(total_s=0.0)) == 0
    out = capsys.readouterr().out
    assert out.count("no time was left") == len(FIGURES)
    assert "Qwen3.5-122B-A10B-4bit" in out
    assert "model pull mlx-community/NAME" in out
    assert not (home / "cache" / "bench").exists()


def test_ctrl_c_is_one_line_and_leaves_nothing(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(file: Path, *_: Any) -> Figure:
        file.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(disk, "writing", interrupted)
    monkeypatch.setattr(passes, "grown", lambda name, unit, *_, **__: Figure(name, 1.0, unit))
    assert main(["doctor", "--bench", "--json"]) == 130
    assert capsys.readouterr().err.splitlines()[-1].startswith("qmlx-lsp: interrupted")
    assert not (home / "cache" / "bench").exists()


def test_a_disk_without_space_is_skipped_and_the_rest_is_measured(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "grown", lambda name, unit, *_, **__: Figure(name, 1.0, unit))
    usage = shutil.disk_usage(home)._replace(free=(1 << 31) - 1)  # twice the file
    monkeypatch.setattr(shutil, "disk_usage", lambda _place: usage)
    assert main(["doctor", "--bench", "--json"]) == 0
    found = {one["name"]: one for one in map(json.loads, capsys.readouterr().out.splitlines()) if "value" in one}
    assert [found[name]["value"] for name in FIGURES] == [1.0] * 5 + [None] * 3
    assert found["ssd_write"]["note"].startswith("2.15 GB must be free")


def test_what_a_measurement_raises_is_its_finding(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_size: int, _most: int) -> measuring.Pass:
        raise RuntimeError("[metal] no such kernel\nmore")

    def full(*_: Any) -> Figure:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(measuring, "expert_chunk", broken)
    monkeypatch.setattr(disk, "writing", full)
    assert doctor_bench.run(as_json=True, shares=TINY) == 0
    found = {one["name"]: one for one in map(json.loads, capsys.readouterr().out.splitlines()) if "value" in one}
    assert found["weights_experts"]["note"] == "[metal] no such kernel"
    assert "No space left" in found["ssd_write"]["note"]
    assert found["ssd_read"]["value"] is None
    assert list(found) == FIGURES


def test_one_run_at_a_time_and_what_a_killed_one_left_goes(tmp_path: Path) -> None:
    place = tmp_path / "bench"
    (place / "store").mkdir(parents=True)
    (place / "file").write_bytes(b"left")
    with bench.folder(place) as held:
        assert list(held.iterdir()) == []
        with pytest.raises(StoreError, match="Another"), bench.folder(place):
            pass
        assert held.is_dir(), "who came second takes nothing away"
    assert not place.exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be used"), bench.folder(tmp_path / "file" / "bench"):
        pass


def test_a_checkpoint_is_restored_whole(tmp_path: Path) -> None:
    restored, ratio = states.restoring(tmp_path, 1 << 30, None, endless(), SMALL)
    files = [file for name in ("segments", "snapshots") for file in (tmp_path / name).iterdir()]
    assert "32,768 tokens in 9 files" in restored.over
    assert len(files) == 9
    assert (restored.unit, ratio.unit, restored.note.startswith("verified")) == ("bytes/s", "times", True)
    assert restored.value
    assert ratio.value


def test_a_damaged_checkpoint_is_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(file: Path) -> bool:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        return True

    monkeypatch.setattr(states, "uncache", damaged)
    with pytest.raises(CheckpointRejected):
        list(states.restoring(tmp_path, 1 << 30, None, endless(), SMALL))


def test_a_state_is_as_long_as_memory_disk_and_time_allow() -> None:
    # the large shape: 24 KiB a token, and 36 times 4 MiB and 72 KiB beside them
    assert LARGE.row_bytes == 24_576
    assert states.snapshot_bytes(LARGE) == 36 * (64 * 128 * 128 * 4 + 3 * 12_288 * 2) == 153_649_152
    whole = 153_649_152 + 32_768 * 24_576
    assert states.affordable(LARGE, whole, None, 1.0) == 32_768
    assert states.affordable(LARGE, whole - 1, None, 1.0) == 16_384
    assert states.affordable(LARGE, whole, whole / 2, 2.0) == 32_768
    assert states.affordable(LARGE, whole, whole / 2, 1.9) == 16_384
    assert states.affordable(LARGE, 153_649_152, None, 1.0) == 0


def test_noise_has_the_size_that_is_reckoned_with() -> None:
    noise = Noise(SMALL, 16)
    assert noise.copy(4, 16, snapshot=False).nbytes == 12 * SMALL.row_bytes
    assert noise.copy(16, 16, snapshot=True).nbytes == states.snapshot_bytes(SMALL) == 2 * 4 * 8 * 4 + 3 * 16 * 2


@pytest.mark.parametrize(
    ("one", "nbytes", "flop"),
    [
        (lambda: measuring.reading(1 << 20), 1 << 20, 0),
        (lambda: measuring.multiplying(64), 0, 2 * 64**3),
        # one matrix of 4,096 x 4,096 in 4 bits, with 4 bytes for each group of 64: 9 MiB
        (lambda: measuring.one_row(1), 9 << 20, 2 * 4_096**2),
        (lambda: measuring.chunk(1, 4), 0, 2 * 4_096**2),
        (lambda: measuring.chunk(4, 2), 0, 4 * 2 * 4_096**2),
        (lambda: measuring.expert_chunk(1, 4), 0, 2 * 8 * 2_048 * 768),
        (lambda: measuring.expert_chunk(4, 2), 0, 4 * 2 * 8 * 2_048 * 768),
    ],
)
def test_passes_do_what_they_say(one: Any, nbytes: int, flop: int) -> None:
    made = one()
    made.call()
    assert (made.nbytes, made.flop) == (nbytes, flop)


def test_weights_of_noise_are_of_the_size_that_is_reckoned_with() -> None:
    held = measuring._weights((2,), 128, 256)
    assert sum(array.nbytes for array in held) == 2 * 128 * 256 * measuring.WEIGHT_BYTES


def test_the_embedded_model(models_folder: Path) -> None:
    """On a clock that is a second later whenever it is asked: a pass takes one, and so does every token."""
    backend, told = MlxBackend(models_folder), list[str]()
    measure = ModelMeasure(backend, "embedded", 16, told.append)
    found = {one.name: one for one in measure.figures(Deadline(itertools.count().__next__, 16))}
    backend.close()
    assert list(found) == ["load", "prefill_512", "decode"]
    # 16 tokens in each pass, whose second is 1: whatever was read, 16 tokens a second
    assert found["prefill_512"].value == 16
    read = int(found["prefill_512"].over.split()[2])
    assert 0 < read < 512, "it was stopped by its share"
    assert found["decode"].over.endswith(f"behind {read}")
    assert told == ["prefill_512", "decode"]
    assert measure.loaded is not None
    # 30 layers of 3 heads of 64, keys and values, 4 bytes each
    assert (measure.loaded.row_bytes, measure.loaded.snapshot_bytes) == (30 * 3 * 64 * 2 * 4, 0)
    assert measure.loaded.behind == read
    assert (measure.loaded.context_tokens, measure.loaded.weight_bytes) == (8_192, 538_060_032)


def test_a_model_too_large_is_not_loaded(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "grown", lambda name, unit, *_, **__: Figure(name, 1.0, unit))
    described = {"installed": True, "bytes": 1 << 40}
    monkeypatch.setattr(doctor_bench, "describe", lambda _name, _where: described)
    assert doctor_bench.run(as_json=True, file_bytes=disk.SLICE_BYTES) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (model,) = [one for one in lines if one.get("name") == "prefill"]
    assert model["note"] == "embedded is not measured: it is more than this machine's memory holds"
    assert lines[0]["model"] == "embedded"
