"""What a user may get wrong is said in one line, before anything is started."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.cachecheck.conversation import CheckError
from benchmarks.sidebyside.__main__ import _begun, main, models, parse


def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    return tmp_path / "model"


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ("many", "--tokens many: a number"),
        ("100", "at least 512"),
        ("1024:0", "at least 1 round"),
        ("1024:x", "ROUNDS"),
    ],
)
def test_sizes_that_make_no_sense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tokens: str, words: str
) -> None:
    assert main(["--model", str(folder(tmp_path)), "--tokens", tokens]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("sidebyside: ")
    assert words in line


def test_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", str(tmp_path / "none")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no folder with a config.json" in line


@pytest.mark.parametrize(
    ("content", "words"), [("{", "no report"), ("[]", "no report"), ('{"sidebyside": 1}', "no report")]
)
def test_what_is_there_is_not_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, words: str
) -> None:
    file = tmp_path / "side.json"
    file.write_text(content)
    assert main(["--model", str(folder(tmp_path)), "--json", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
    assert file.read_text() == content


def test_a_report_of_this_machine_and_seed_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "side.json"
    given = parse(["--json", str(file), "--seed", "5"])
    new = _begun(given)
    assert (new["seed"], new["steps"]) == (5, [])
    file.write_text(json.dumps({**new, "steps": ["what was measured"]}))
    assert _begun(given)["steps"] == ["what was measured"]
    with pytest.raises(CheckError, match="another machine, version or seed"):
        _begun(parse(["--json", str(file), "--seed", "6"]))


def test_sizes_and_rounds(tmp_path: Path) -> None:
    given = parse(["--model", str(folder(tmp_path)), "--tokens", "2048", "--tokens", "8192:3"])
    (model,) = models(given, tmp_path)
    assert (model.name, model.sizes) == ("model", {2_048: 1, 8_192: 3})
