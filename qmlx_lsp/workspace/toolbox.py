"""The tools that a project offers to run: what its ``.qmlx.toml`` says, checked.

    [tools.tests]
    command = "make test"        # a text is run by /bin/sh -c, a list of texts without a shell
    timeout_s = 120              # all others are optional
    output_kb = 32
    cwd = "backend"              # below the project's folder
    title = "the tests"          # for menus; the tool's name if there is none
    env = { CI = "1" }

Describing a tool runs nothing; a tool runs when a user asks for it by name (``session/tools.py``).

Invariant: a file with anything in it that is not understood gives an error that names the key and what is allowed,
and no tools at all: half a file is nobody's intention.
"""

from __future__ import annotations

import posixpath
import re
import reprlib
import shlex
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from qmlx_lsp.errors import ToolError

FILE = ".qmlx.toml"
FILE_BYTES_MAX = 256 << 10
SHELL = ("/bin/sh", "-c")
TIMEOUT_S = (0.1, 86_400.0)
OUTPUT_KB = (1, 1_024)
TITLE_CHARS_MAX = 80
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Tool:
    """``argv`` is what is executed, ``shown`` the command as the user wrote it. ``timeout_s`` (seconds) and
    ``output_kb`` (KiB) are None where the settings decide. ``cwd`` is relative to the root."""

    name: str
    argv: tuple[str, ...]
    shown: str
    title: str
    timeout_s: float | None = None
    output_kb: int | None = None
    cwd: str = "."
    env: Mapping[str, str] = field(default_factory=dict)


def parse(text: str) -> dict[str, Tool]:
    """The tools by name, in the file's order.

    Raises:
        ToolError: no valid TOML, an unknown key, a wrong type, a value that is not allowed.
    """
    try:
        top = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ToolError(f"{FILE} is not valid TOML: {error}.") from error
    for key in top:
        if key != "tools":
            raise ToolError(f"{FILE}: unknown key {_shown(key)}; allowed is tools.")
    tools = top.get("tools", {})
    if not isinstance(tools, dict):
        raise ToolError(f"{FILE}: tools must be a table of tools, [tools.NAME].")
    return {name: _tool(name, given) for name, given in tools.items()}


def chosen(tools: Mapping[str, Tool], name: str | None, place: str) -> Tool:
    """The tool called ``name``; without a name the only one there is. ``place`` is where the file is looked for.

    Raises:
        ToolError: there is none of that name, or more than one without; names those there are.
    """
    if not tools:
        raise ToolError(
            f'There are no tools in {place}/{FILE}: describe one, [tools.tests] with command = "make test".'
        )
    names = ", ".join(tools)
    if name is None:
        if len(tools) > 1:
            raise ToolError(f"Say which tool is to be run; in {place}/{FILE} there are: {names}.")
        return next(iter(tools.values()))
    if name not in tools:
        raise ToolError(f"There is no tool {_shown(name)} in {place}/{FILE}; there are: {names}.")
    return tools[name]


def _tool(name: str, given: Any) -> Tool:
    if not _NAME.fullmatch(name):
        raise ToolError(
            f"{FILE}: a tool cannot be called {_shown(name)}: 1 to 64 letters, digits, points, dashes or underscores."
        )
    if not isinstance(given, dict):
        raise ToolError(f"{FILE}: tools.{name} must be a table, [tools.{name}].")
    for key in given:
        if key != "command" and key not in _OPTIONAL:
            allowed = ", ".join(sorted(["command", *_OPTIONAL]))
            raise ToolError(f"{FILE}: unknown key tools.{name}.{_shown(key)}; allowed are {allowed}.")
    if "command" not in given:
        raise ToolError(f'{FILE}: tools.{name}.command is missing: say what is to be run, such as "make test".')
    argv, shown = _command(given["command"], f"tools.{name}.command")
    options = {key: _OPTIONAL[key](value, f"tools.{name}.{key}") for key, value in given.items() if key in _OPTIONAL}
    return Tool(name=name, argv=argv, shown=shown, **{"title": name, **options})


def _wrong(key: str, value: Any, allowed: str) -> ToolError:
    return ToolError(f"{FILE}: {key} is {_shown(value)}, but must be {allowed}.")


def _shown(value: Any) -> str:
    """A value from the file in an error: short, on one line."""
    return value if isinstance(value, str) and _NAME.fullmatch(value) else reprlib.repr(value)


def _command(value: Any, key: str) -> tuple[tuple[str, ...], str]:
    words = [value] if isinstance(value, str) else value
    whole = isinstance(words, list) and all(isinstance(word, str) and "\0" not in word for word in words)
    if not whole or not words or not words[0].strip():
        raise _wrong(key, value, "a text for the shell, or a list of texts that begins with a program")
    if isinstance(value, str):
        return (*SHELL, value), value.strip()
    return tuple(words), shlex.join(words)


def _timeout(value: Any, key: str) -> float:
    low, high = TIMEOUT_S
    if type(value) not in (int, float) or not low <= value <= high:
        raise _wrong(key, value, f"a number of seconds, {low:g} to {high:g}")
    return float(value)


def _output(value: Any, key: str) -> int:
    low, high = OUTPUT_KB
    if type(value) is not int or not low <= value <= high:
        raise _wrong(key, value, f"a whole number of KiB, {low} to {high}")
    return value


def _cwd(value: Any, key: str) -> str:
    folder = posixpath.normpath(value) if isinstance(value, str) and value and "\0" not in value else "/"
    if posixpath.isabs(folder) or folder.split("/")[0] == "..":
        raise _wrong(key, value, "a folder of the project, relative to its root")
    return folder


def _title(value: Any, key: str) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > TITLE_CHARS_MAX or _CONTROL.search(value):
        raise _wrong(key, value, f"a text of one line, {TITLE_CHARS_MAX} characters at most")
    return value.strip()


def _env(value: Any, key: str) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise _wrong(key, value, "a table of texts")
    for name, text in value.items():
        if not name or "=" in name or "\0" in name:
            raise ToolError(f"{FILE}: {key} has {_shown(name)}, which no variable can be called.")
        if not isinstance(text, str) or "\0" in text:
            raise _wrong(f"{key}.{name}", text, "a text")
    return value


_OPTIONAL: dict[str, Callable[[Any, str], Any]] = {
    "timeout_s": _timeout, "output_kb": _output, "cwd": _cwd, "title": _title, "env": _env,
}  # fmt: skip
