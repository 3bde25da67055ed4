"""``doctor``: every check finds what it is for, says what to do, and none keeps the next one from being made."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from qmlx_lsp import __version__
from qmlx_lsp.cli import doctor
from qmlx_lsp.cli.main import main

CHECKS = ["machine", "program", "settings", "folders", "disk", "model", "daemon"]
STATUS = {
    "pid": 7,
    "clients": 2,
    "version": __version__,
    "model": {"name": "embedded", "state": "ready", "message": ""},
}


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("QMLX_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("QMLX_HOME", str(tmp_path))
    return tmp_path


def found(capsys: pytest.CaptureFixture[str], code: int) -> dict[str, Any]:
    assert main(["doctor", "--json"]) == code
    return {one["check"]: one for one in map(json.loads, capsys.readouterr().out.splitlines())}


def test_a_fresh_home_is_well_and_stays_empty(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checks = found(capsys, 0)
    assert list(checks) == CHECKS
    assert checks["model"]["remedy"] == "Fetch it now: qmlx-lsp model pull embedded"
    assert checks["daemon"]["what"].startswith("none runs")
    assert not any(home.iterdir()), "looking changes nothing"
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.count("\n") >= len(CHECKS)


def test_what_is_wrong_in_the_settings_is_said_and_the_rest_cannot_be(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "config").mkdir()
    (home / "config" / "config.toml").write_text("[model]\nnme = 1\n")
    checks = found(capsys, 1)
    assert list(checks) == ["machine", "program", "settings"]
    assert "unknown key model.nme" in checks["settings"]["what"]


def test_a_model_that_is_none_does_not_hide_the_daemon(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QMLX_MODEL", "/no/such")
    checks = found(capsys, 1)
    assert list(checks) == CHECKS
    assert checks["model"]["state"] == "wrong"
    assert "/no/such" in checks["model"]["what"]
    assert checks["settings"]["what"].endswith("set here: QMLX_HOME, QMLX_MODEL")


def test_a_full_disk(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _place: Usage(9, 9, 5 << 30))
    assert found(capsys, 1)["disk"]["state"] == "wrong"
    monkeypatch.setattr(shutil, "disk_usage", lambda _place: Usage(9, 9, (5 << 30) + 1))
    assert found(capsys, 0)["disk"]["state"] == "ok"


def test_a_model_that_does_not_fit_into_memory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    large = {"installed": True, "type": "qwen2", "bytes": 76}
    monkeypatch.setattr(doctor, "describe", lambda _name, _where: large)
    monkeypatch.setattr(doctor, "memory_bytes", lambda: 100)
    monkeypatch.setenv("QMLX_MODEL", "a/b")
    assert found(capsys, 1)["model"]["state"] == "wrong"
    large["bytes"] = 75
    assert found(capsys, 0)["model"]["state"] == "ok"


@pytest.mark.parametrize(
    ("change", "state", "said"),
    [
        ({}, "ok", "pid 7, 2 editors, embedded: ready"),
        ({"version": "0.0.1"}, "wrong", "it is version 0.0.1, this is"),
        ({"version": "0.0.1", "model": "embedded"}, "wrong", "it is version 0.0.1, this is"),
        ({"model": {"name": "embedded", "state": "failed", "message": "no weights"}}, "wrong", "no weights"),
        ({"model": {"name": "a/b", "state": "ready", "message": ""}}, "note", "but embedded is chosen"),
    ],
)
def test_a_daemon_that_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], state: str, said: str
) -> None:
    monkeypatch.setattr(doctor, "ask_daemon", lambda _where, _op: {**STATUS, **change})
    daemon = found(capsys, int(state == "wrong"))["daemon"]
    assert (daemon["state"], said in daemon["what"]) == (state, True)
    assert (daemon["remedy"] == "") is (state == "ok")


def test_an_environment_that_is_broken(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """This is where doctor is called."""

    def broken(*_: object) -> dict[str, Any]:
        raise ImportError("libmlx.so: no such file")

    monkeypatch.setattr(doctor, "_PACKAGES", ("pygls", "no-such-package"))
    monkeypatch.setattr(doctor, "describe", broken)
    checks = found(capsys, 1)
    assert list(checks) == CHECKS
    assert checks["machine"]["what"] == "no-such-package is not installed"
    assert checks["model"]["what"] == "a package cannot be loaded: libmlx.so: no such file"


def test_a_daemon_that_does_not_answer(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "run").mkdir()
    (home / "run" / "daemon.lock").write_text("7")
    monkeypatch.setattr(doctor, "running", lambda _where: True)
    assert "--force" in found(capsys, 1)["daemon"]["remedy"]


def test_a_socket_whose_path_is_too_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("QMLX_HOME", str(tmp_path / ("x" * 120)))
    checks = found(capsys, 1)
    assert checks["folders"]["state"] == "wrong"
    assert list(checks) == CHECKS


def test_the_program_on_the_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "is not on the PATH" in found(capsys, 0)["program"]["what"]
    other = tmp_path / "qmlx-lsp"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    assert f"editors find {other}" in found(capsys, 0)["program"]["what"]
