"""Every setting and limit, with its unit, its default and where it may come from.

Later wins: defaults, ``config.toml``, environment (``QMLX_`` and the key's last part: ``QMLX_MAX_TOKENS`` is
``model.max_tokens``; other names stand in ``_ENV_NAMES``). Standard library only: the connector reads settings too.

Invariant: settings are read once, checked whole, and frozen. An unknown key or a wrong type is an error that names
the key, the place it came from and what is allowed; nothing is ever silently ignored.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from qmlx_lsp.errors import SettingsError

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Limit:
    """Allowed range of a number, both ends included."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


def _number(default: Any, low: float, high: float, about: str) -> Any:
    return field(default=default, metadata={"limit": Limit(low, high), "about": about})


def _choice(default: Any, allowed: tuple[Any, ...], about: str) -> Any:
    return field(default=default, metadata={"allowed": allowed, "about": about})


def _plain(default: Any, about: str) -> Any:
    return field(default=default, metadata={"about": about})


@dataclass(frozen=True, slots=True)
class Model:
    name: str = _plain("embedded", "a folder, a Hugging Face id, or 'embedded'")
    temperature: float = _number(0.0, 0.0, 5.0, "0 always takes the likeliest token")
    top_p: float = _number(1.0, 0.0, 1.0, "keep the likeliest tokens up to this share; 1 keeps all")
    max_tokens: int = _number(1024, 1, 1_000_000, "tokens of a reply at most")
    thinking: bool = _plain(False, "whether replies begin by thinking, where the model can")
    adapter: str = _plain("", "the folder of a LoRA adapter that belongs to the model; '' is none")
    kv_bits: int = _choice(0, (0, 4, 8), "bits of the model's keys and values; 0 leaves them as they are")

    script: str = _plain("", "the file with what the model 'scripted' says, for tests and trials of editors")

    @property
    def adapter_folder(self) -> Path | None:
        return Path(self.adapter).expanduser() if self.adapter else None


@dataclass(frozen=True, slots=True)
class Store:
    quota_gib: float = _number(50.0, 0.0, 100_000.0, "GiB of checkpoints at most")
    free_floor_gib: float = _number(5.0, 0.0, 100_000.0, "GiB of disk that stay free")
    answer_wait_s: float = _number(2.0, 0.0, 60.0, "seconds an answer waits for its checkpoint")
    queue_gib: float = _number(2.0, 0.0, 1_000.0, "GiB of copies that may wait in memory for the disk")
    retry_s: float = _number(30.0, 0.0, 3_600.0, "seconds until a failed checkpoint is tried again; 0: next turn")
    point_tokens: int = _number(
        2_048, 256, 1_000_000, "tokens between two checkpoints of a prefill; a quarter without snapshots"
    )
    points_max: int = _number(16, 0, 1_000, "checkpoints during one prefill at most")
    restore_gain_tokens: int = _number(64, 1, 1_000_000, "tokens a checkpoint must save to be read")


@dataclass(frozen=True, slots=True)
class Daemon:
    idle_minutes: float = _number(30.0, 0.01, 525_600.0, "minutes without clients before the daemon leaves")
    stop_s: float = _number(20.0, 1.0, 600.0, "seconds to finish writing when stopping")


@dataclass(frozen=True, slots=True)
class Memory:
    live_gib: float = _number(16.0, 0.0, 10_000.0, "GiB of live states at most; the oldest go to the SSD")


@dataclass(frozen=True, slots=True)
class Engine:
    prefill_chunk_tokens: int = _number(256, 1, 65_536, "tokens of a forward pass; a cancel waits for one")
    tail_tokens: int = _number(64, 0, 65_536, "tokens at the end of what is new that are read with the reply's head")
    queue_max: int = _number(256, 1, 100_000, "requests that may wait for the model")
    draft_rows: int = _number(
        0, 0, 256, "rows of a pass at most where a reply copies code; 0: measured once per model, 1: one by one"
    )


@dataclass(frozen=True, slots=True)
class Context:
    max_file_kb: int = _number(512, 1, 1_000_000, "KiB; larger files are named, not shown")
    share: float = _number(0.5, 0.05, 0.95, "share of the model's context that files may take in one turn")
    file_share: float = _number(
        0.25, 0.01, 0.95, "share of the model's context for one file at first sight; of a larger one parts are shown"
    )
    changes_max: int = _number(50, 1, 100_000, "changed files that are told one by one in a turn at most")
    max_diff_share: float = _number(0.6, 0.0, 10.0, "a longer diff, as a share of the file, tells the file anew")
    question_max_kb: int = _number(256, 1, 1_000_000, "KiB of a question at most")
    max_tokens: int = _number(
        0, 0, 1_000_000_000, "tokens of an epoch at most; 0: what the model reads and memory holds"
    )
    epoch_share: float = _number(0.75, 0.1, 1.0, "share of max_tokens at which the next epoch is prepared; 1: never")
    epoch_files_share: float = _number(0.25, 0.0, 0.5, "share of max_tokens for files at the beginning of an epoch")
    summary_tokens: int = _number(512, 16, 100_000, "tokens of the summary that an epoch begins with at most")
    carry_turns: int = _number(3, 0, 1_000, "last turns that go verbatim into the next epoch at most")
    carry_share: float = _number(0.1, 0.0, 0.5, "share of max_tokens that these turns may take")
    idle_s: float = _number(2.0, 0.0, 86_400.0, "seconds without a question before work in idle time begins")


@dataclass(frozen=True, slots=True)
class Ahead:
    enabled: bool = _plain(True, "whether changed files are read before anybody asks")
    after_s: float = _number(1.5, 0.0, 3_600.0, "seconds after a save, or after a file was opened, until it begins")
    pause_s: float = _number(5.0, 0.0, 3_600.0, "seconds without a keystroke until it begins")
    battery_percent: float = _number(40.0, 0.0, 101.0, "percent of the battery below which it waits for the mains")


@dataclass(frozen=True, slots=True)
class Inline:
    enabled: bool = _plain(True, "whether completions are offered while somebody types")
    model: str = _plain("", "a second model for them, as model.name; '' takes the one there is")
    fim: str = _choice(
        "auto", ("auto", "on", "off"), "whether the model was trained to fill gaps; auto asks its name"
    )
    record: str = _choice("invoked", ("invoked", "always", "never"), "which completions become turns of the log")
    max_tokens: int = _number(96, 1, 4_096, "tokens of a completion at most")
    max_lines: int = _number(12, 1, 1_000, "lines of a completion at most")
    before_lines: int = _number(60, 2, 10_000, "lines before the cursor that are shown once more at most")
    behind_lines: int = _number(20, 0, 10_000, "lines behind the cursor that are shown once more at most")
    window_kb: int = _number(6, 1, 1_000, "KiB of either at most")
    debounce_ms: int = _number(
        30, 0, 10_000, "milliseconds without a newer request before the model is asked, at least"
    )
    debounce_max_ms: int = _number(300, 0, 10_000, "the same at most; in between, a quarter of what completions take")


@dataclass(frozen=True, slots=True)
class Tools:
    enabled: bool = _plain(True, "whether the tools of a project's .qmlx.toml may be run, when a user asks for one")
    timeout_s: float = _number(600.0, 0.1, 86_400.0, "seconds that a tool may run, unless .qmlx.toml says otherwise")
    output_kb: int = _number(16, 1, 1_024, "KiB of a tool's output that are told at most")
    kill_s: float = _number(2.0, 0.0, 60.0, "seconds between asking a tool's processes to end and ending them")


@dataclass(frozen=True, slots=True)
class Stream:
    batch_ms: int = _number(30, 1, 10_000, "milliseconds of text that travel together")
    journal_ms: int = _number(1000, 10, 60_000, "milliseconds of a reply that a crash may lose")


@dataclass(frozen=True, slots=True)
class Watch:
    mode: str = _choice(
        "auto",
        ("auto", "poll", "off"),
        "how changes on disk are noticed: by the system's events, by looking, not at all",
    )
    max_files: int = _number(200_000, 1, 10_000_000, "files of a project at most; with more, the disk is not watched")
    poll_s: float = _number(5.0, 0.1, 86_400.0, "seconds between two looks where there are no events, at least")
    step_ms: int = _number(200, 10, 10_000, "milliseconds of events that are taken together")
    burst_files: int = _number(50, 1, 1_000_000, "files; more that change between two turns are told as one summary")


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings; the names of the sections and keys are those of ``config.toml``."""

    model: Model = Model()
    store: Store = Store()
    daemon: Daemon = Daemon()
    memory: Memory = Memory()
    engine: Engine = Engine()
    context: Context = Context()
    ahead: Ahead = Ahead()
    inline: Inline = Inline()
    tools: Tools = Tools()
    stream: Stream = Stream()
    watch: Watch = Watch()


def load(config_file: Path, environ: Mapping[str, str] = os.environ) -> Settings:
    """Settings from ``config_file`` (which may be missing) and the environment.

    Raises:
        SettingsError: unreadable file, unknown section or key, wrong type, out of range.
    """
    settings = Settings()
    for section, values in _read(config_file).items():
        if section not in _SECTIONS:
            raise SettingsError(f"{config_file}: unknown section [{section}]; allowed are {_names(_SECTIONS)}.")
        if not isinstance(values, dict):
            raise SettingsError(f"{config_file}: {section} must be a section, [{section}].")
        known = _keys(settings, section)
        for key, value in values.items():
            if key not in known:
                raise SettingsError(f"{config_file}: unknown key {section}.{key}; allowed are {_names(known)}.")
            settings = _set(settings, section, key, value, f"{config_file}: {section}.{key}")
    for section in _SECTIONS:
        for key in _keys(settings, section):
            variable = env_name(section, key)
            if variable in environ:
                value = _from_text(environ[variable], _keys(settings, section)[key].default)
                settings = _set(settings, section, key, value, variable)
    return settings


def env_name(section: str, key: str) -> str:
    """The environment variable of a setting."""
    return _ENV_NAMES.get((section, key), f"QMLX_{key.upper()}")


# ``QMLX_NAME`` would say nothing, and ``QMLX_MAX_TOKENS`` is the length of a reply.
_ENV_NAMES = {
    ("model", "name"): "QMLX_MODEL",
    ("context", "max_tokens"): "QMLX_CONTEXT_TOKENS",
    ("ahead", "enabled"): "QMLX_READ_AHEAD",
    ("ahead", "after_s"): "QMLX_AHEAD_AFTER_S",
    ("ahead", "pause_s"): "QMLX_AHEAD_PAUSE_S",
    ("ahead", "battery_percent"): "QMLX_AHEAD_BATTERY_PERCENT",
    ("inline", "enabled"): "QMLX_INLINE",
    **{("inline", f.name): f"QMLX_INLINE_{f.name.upper()}" for f in fields(Inline) if f.name != "enabled"},
    ("tools", "enabled"): "QMLX_TOOLS",
    ("tools", "timeout_s"): "QMLX_TOOL_TIMEOUT_S",
    ("tools", "output_kb"): "QMLX_TOOL_OUTPUT_KB",
    ("tools", "kill_s"): "QMLX_TOOL_KILL_S",
    ("watch", "mode"): "QMLX_WATCH",
    ("watch", "max_files"): "QMLX_WATCH_MAX_FILES",
    ("watch", "poll_s"): "QMLX_WATCH_POLL_S",
    ("watch", "step_ms"): "QMLX_WATCH_STEP_MS",
}
_SECTIONS = {f.name: f for f in fields(Settings)}


def _read(config_file: Path) -> dict[str, Any]:
    try:
        text = config_file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{config_file} cannot be read: {error}.") from error
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{config_file} is not valid TOML: {error}.") from error


def _keys(settings: Settings, section: str) -> dict[str, Any]:
    return {f.name: f for f in fields(getattr(settings, section))}


def _set(settings: Settings, section: str, key: str, value: Any, place: str) -> Settings:
    described = _keys(settings, section)[key]
    checked = _check(value, described.default, described.metadata, place)
    return replace(settings, **{section: replace(getattr(settings, section), **{key: checked})})


def _check(value: Any, default: Any, about: Mapping[str, Any], place: str) -> Any:
    kind = type(default)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        words = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
        raise SettingsError(f"{place} is {value!r}, but must be {words[kind]} ({about['about']}).")
    limit = about.get("limit")
    if limit is not None and not limit.low <= value <= limit.high:
        raise SettingsError(f"{place} is {value!r}, but must be {limit} ({about['about']}).")
    allowed = about.get("allowed")
    if allowed is not None and value not in allowed:
        choice = f"{', '.join(map(str, allowed[:-1]))} or {allowed[-1]}"
        raise SettingsError(f"{place} is {value!r}, but must be {choice} ({about['about']}).")
    if value == "" != default:
        raise SettingsError(f"{place} is empty, but must be {about['about']}.")
    return value


def _from_text(text: str, default: Any) -> Any:
    """The value of an environment variable in the setting's own type, or the text itself if it is none."""
    if isinstance(default, bool):
        return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}.get(text.lower(), text)
    for kind in (int, float):
        if isinstance(default, kind):
            try:
                return kind(text)
            except ValueError:
                return text
    return text


def _names(known: Mapping[str, Any]) -> str:
    return ", ".join(sorted(known))
