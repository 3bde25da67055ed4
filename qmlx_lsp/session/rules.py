"""The rules of what must not be told of a folder, on this machine: git's own files, ours, and the user's."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from qmlx_lsp.workspace.ignore import Ignore

SYSTEM = "/etc/gitconfig"


Signature = tuple[int, int, int, int, int]


class Seen:
    """Reads ignore files, and knows whether one of them, or one that was not there, is another by now."""

    def __init__(self) -> None:
        self._files: dict[str, Signature | None] = {}

    def __call__(self, path: str) -> str | None:
        self._files.setdefault(path, _signature(path))  # before it is read: a change meanwhile is seen later
        return read_ignore_file(path)

    def unchanged(self) -> bool:
        return all(_signature(path) == known for path, known in tuple(self._files.items()))


def _signature(path: str) -> Signature | None:
    """What differs when a file has been written: whoever sets its time back cannot set back when that was done."""
    try:
        found = os.stat(path)  # noqa: PTH116 - as often as they are read
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def ignore_rules(
    root: Path,
    exclude: Sequence[str] = (),
    around: Mapping[str, Sequence[str]] | None = None,
    read: Callable[[str], str | None] | None = None,
) -> Ignore:
    """What must not be told of ``root``, with ``exclude`` on top, and the patterns of folders ``around`` it. An
    ``Ignore`` is for one thread at a time."""
    home = os.environ.get("HOME", "")
    # The file systems of macOS take two spellings that differ in case for one name, unless somebody chose otherwise.
    return Ignore(
        str(root), read or read_ignore_file, exclude, around=around, users=users_settings(os.environ),
        fallback=str(_git(os.environ) / "ignore") if home else None, home=home, ignore_case=sys.platform == "darwin",
    )  # fmt: skip


def read_ignore_file(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return None


def users_settings(environ: Mapping[str, str]) -> list[str]:
    """The files in which git looks for this user's settings, the weakest first."""
    if one := environ.get("GIT_CONFIG_GLOBAL"):
        return [SYSTEM, one]
    home = environ.get("HOME")
    return [SYSTEM, str(_git(environ) / "config"), str(Path(home, ".gitconfig"))] if home else [SYSTEM]


def _git(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME", ""), ".config"), "git")
