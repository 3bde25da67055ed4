"""``model use``: one key is written, and the rest of the file is its user's."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmlx_lsp.cli.configure import write_key
from qmlx_lsp.cli.main import main
from qmlx_lsp.errors import SettingsError
from qmlx_lsp.settings import load

MINE = """\
# my settings
[store]   # checkpoints
quota_gib = 10.0

[model]
temperature = 0.3   # warm
name = "embedded"  # for now
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "config" / "config.toml"
    made.parent.mkdir()
    made.write_text(MINE)
    return made


def test_only_the_value_changes(file: Path) -> None:
    file.chmod(0o640)
    write_key(file, "model", "name", "a/b")
    assert file.read_text() == MINE.replace('"embedded"', '"a/b"')
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert [one.name for one in file.parent.iterdir()] == ["config.toml"]


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_any_text_is_read_back(tmp_path_factory: pytest.TempPathFactory, value: str) -> None:
    made = tmp_path_factory.mktemp("config") / "config.toml"
    made.write_text(MINE)
    write_key(made, "model", "name", value)
    assert tomllib.loads(made.read_text())["model"] == {"temperature": 0.3, "name": value}
    assert load(made, {}).store.quota_gib == 10


def test_a_file_is_made_where_there_is_none_for_its_owner_only(tmp_path: Path) -> None:
    made = tmp_path / "new" / "config.toml"
    write_key(made, "model", "name", "a/b")
    assert load(made, {}).model.name == "a/b"
    assert stat.S_IMODE(made.stat().st_mode) == 0o600


def test_a_link_stays_one(file: Path, tmp_path: Path) -> None:
    link = tmp_path / "dotfiles.toml"
    link.symlink_to(file)
    write_key(link, "model", "name", "a/b")
    assert link.is_symlink()
    assert load(file, {}).model.name == "a/b"


@pytest.mark.parametrize("text", ["[model", "[model]\nnme = 3\n", "model = 3\n", "[model]\ntemperature = 99\n"])
def test_what_is_wrong_already_is_said_and_left(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(SettingsError):
        write_key(file, "model", "name", "a/b")
    assert file.read_text() == text


def test_a_value_that_is_refused_names_the_file(file: Path) -> None:
    with pytest.raises(SettingsError, match=rf"^{file}: model.name is empty"):
        write_key(file, "model", "name", "")
    assert file.read_text() == MINE


def test_what_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="cannot be "):
        write_key(tmp_path / "file" / "config.toml", "model", "name", "a/b")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QMLX_HOME", str(tmp_path))
    monkeypatch.delenv("QMLX_MODEL", raising=False)
    return tmp_path


def use(*arguments: str) -> int:
    return main(["model", "use", *arguments])


def test_use_says_what_follows(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert use("mlx-community/Some-4bit") == 0
    file = next(home.rglob("config.toml"))
    assert load(file, {}).model.name == "mlx-community/Some-4bit"
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"mlx-community/Some-4bit is the model now ({file})."
    assert "qmlx-lsp model pull mlx-community/Some-4bit" in said[1]
    assert "qmlx-lsp daemon stop" in said[-1]


def test_use_says_that_the_environment_wins(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QMLX_MODEL", "scripted")
    assert use("embedded", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["overridden"], told["installed"]) == ("embedded", True, False)


@pytest.mark.parametrize("name", ["no-such-folder", "/no/such/folder", "a/b/c", ""])
def test_use_refuses_what_can_be_no_model(home: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert use(name) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(home.rglob("config.toml"))


def test_use_refuses_a_folder_without_a_model(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "folder").mkdir()
    assert use(str(tmp_path / "folder")) == 2
    assert capsys.readouterr().err.count("\n") == 1
