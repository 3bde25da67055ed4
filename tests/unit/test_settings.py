"""Settings: where they come from, what is refused and how it is said."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from qmlx_lsp.errors import PathError, SettingsError
from qmlx_lsp.paths import Paths, find, project
from qmlx_lsp.settings import Settings, Tools, env_name, load


def write(folder: Path, text: str) -> Path:
    file = folder / "config.toml"
    file.write_text(text, encoding="utf-8")
    return file


def keys() -> list[tuple[str, str]]:
    return [
        (section.name, key.name) for section in fields(Settings) for key in fields(getattr(Settings(), section.name))
    ]


def test_missing_file_gives_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path / "none.toml", {}) == Settings()


def test_every_setting_says_what_it_is_and_has_a_variable_of_its_own() -> None:
    for section in fields(Settings):
        for key in fields(getattr(Settings(), section.name)):
            assert len(key.metadata["about"]) > 10, (section.name, key.name)
            limit = key.metadata.get("limit")
            if limit is not None:
                assert limit.low <= key.default <= limit.high
            elif "allowed" in key.metadata:
                assert key.default in key.metadata["allowed"]
            else:
                assert type(key.default) in (str, bool)
    names = [env_name(*key) for key in keys()]
    assert len(set(names)) == len(names)


def test_model_without_an_adapter(tmp_path: Path) -> None:
    file = write(tmp_path, "[model]\nadapter = ''\nkv_bits = 8\n")
    assert (load(file, {}).model.adapter, load(file, {}).model.kv_bits) == ("", 8)
    changed = load(file, {"QMLX_ADAPTER": "/x", "QMLX_KV_BITS": "4"}).model
    assert (changed.adapter, changed.kv_bits) == ("/x", 4)


def test_length_of_a_context_and_of_a_reply_have_names_of_their_own() -> None:
    settings = load(Path("none"), {"QMLX_CONTEXT_TOKENS": "9000", "QMLX_MAX_TOKENS": "7", "QMLX_EPOCH_SHARE": "0.5"})
    assert (settings.context.max_tokens, settings.model.max_tokens, settings.context.epoch_share) == (9000, 7, 0.5)


def test_tools(tmp_path: Path) -> None:
    file = write(tmp_path, "[tools]\nenabled = false\ntimeout_s = 5\n")
    assert (load(file, {}).tools.enabled, load(file, {}).tools.timeout_s) == (False, 5.0)
    environ = {
        "QMLX_TOOLS": "1", "QMLX_TOOL_TIMEOUT_S": "7", "QMLX_TOOL_OUTPUT_KB": "9", "QMLX_TOOL_KILL_S": "0.5"
    }  # fmt: skip
    assert load(file, environ).tools == Tools(True, 7.0, 9, 0.5)


def test_the_disk_has_variables_that_say_so() -> None:
    watch = load(Path("none"), {"QMLX_WATCH": "poll", "QMLX_WATCH_POLL_S": "2", "QMLX_WATCH_MAX_FILES": "9"}).watch
    assert (watch.mode, watch.poll_s, watch.max_files) == ("poll", 2.0, 9)


def test_file_then_environment(tmp_path: Path) -> None:
    file = write(tmp_path, "[model]\nname = 'x'\ntemperature = 1\n[daemon]\nidle_minutes = 2.5\n")
    settings = load(file, {"QMLX_MODEL": "y", "QMLX_MAX_TOKENS": "7", "QMLX_THINKING": "true", "OTHER": "z"})
    assert (settings.model.name, settings.model.temperature, settings.model.max_tokens) == ("y", 1.0, 7)
    assert type(settings.model.temperature) is float
    assert settings.model.thinking is True
    assert settings.daemon.idle_minutes == 2.5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[modle]\nname = 'x'", "unknown section [modle]; allowed are ahead, context, daemon,"),
        ("[model]\nnmae = 'x'", "unknown key model.nmae; allowed are adapter, kv_bits, max_tokens, name,"),
        ("model = 'x'", "model must be a section, [model]."),
        ("[model]\nname = 5", "model.name is 5, but must be text (a folder,"),
        ("[model]\nname = ''", "model.name is empty, but must be a folder"),
        ("[model]\nmax_tokens = true", "model.max_tokens is True, but must be a whole number"),
        ("[model]\nmax_tokens = 1.0", "model.max_tokens is 1.0, but must be a whole number"),
        ("[model]\nmax_tokens = 0", "model.max_tokens is 0, but must be 1 to 1e+06"),
        ("[model]\ntemperature = 'hot'", "model.temperature is 'hot', but must be a number"),
        ("[model]\ntemperature = nan", "model.temperature is nan, but must be 0 to 5"),
        ("[watch]\nmode = 'on'", "watch.mode is 'on', but must be auto, poll or off (how changes on disk"),
        ("[model]\nthinking = 1", "model.thinking is 1, but must be true or false"),
        ("[model]\nkv_bits = 6", "model.kv_bits is 6, but must be 0, 4 or 8 (bits"),
        ("[model]\nkv_bits = true", "model.kv_bits is True, but must be a whole number"),
        ("[model]\nadapter = 4", "model.adapter is 4, but must be text (the folder"),
        ("[store]\nquota_gib = -1", "store.quota_gib is -1.0, but must be 0 to 100000"),
        ("[model", "is not valid TOML"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load(file, {})
    message = str(caught.value)
    assert message.startswith(str(file))
    assert said in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("variable", "value"),
    [("QMLX_MAX_TOKENS", "x"), ("QMLX_MAX_TOKENS", "1.5"), ("QMLX_TEMPERATURE", "nan"), ("QMLX_THINKING", "maybe"),
     ("QMLX_QUOTA_GIB", "-1"), ("QMLX_MODEL", "")],
)  # fmt: skip
def test_environment_is_checked_alike(tmp_path: Path, variable: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"^{variable} is "):
        load(tmp_path / "none", {variable: value})


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "config.toml").mkdir()
    with pytest.raises(SettingsError, match="cannot be read"):
        load(tmp_path / "config.toml", {})
    other = tmp_path / "latin.toml"
    other.write_bytes(b"# \xe9")
    with pytest.raises(SettingsError, match="cannot be read"):
        load(other, {})


def test_one_folder_for_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QMLX_HOME", str(tmp_path / "h"))
    where = find()
    assert not (tmp_path / "h").exists()
    where.prepare()
    for folder in (where.config, where.data, where.cache, where.runtime, where.log):
        assert folder.is_relative_to(tmp_path / "h")
        assert folder.stat().st_mode & 0o777 == 0o700


def test_runtime_folder_without_a_login_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QMLX_HOME", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert not find().runtime.is_relative_to(tmp_path / "none")
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    assert find().runtime == tmp_path / "run" / "qmlx-lsp"


def test_socket_path_that_no_system_takes(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    with pytest.raises(PathError, match="more than the 103 that the system allows: set QMLX_HOME"):
        Paths(long, long, long, long, long).prepare()
    assert not long.exists()


def test_project_has_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert project(".") == project("x/..") == project(f"{tmp_path}/") == Path.cwd()
