"""The rules of what must not be told of a folder, on this machine: git's own files, ours, and the user's."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from qmlx_lsp.workspace.ignore import Ignore

_EXCLUDES_FILE = re.compile(r"^\s*excludesfile\s*=\s*\"?([^\"\n#;]+)", re.IGNORECASE | re.MULTILINE)


def ignore_rules(root: Path, exclude: Sequence[str] = ()) -> Ignore:
    """What must not be told of ``root``, with ``exclude`` on top. An ``Ignore`` is for one thread at a time."""
    # The file systems of macOS take two spellings that differ in case for one name, unless somebody chose otherwise.
    return Ignore(
        str(root), read_ignore_file, exclude, users=users_excludes(os.environ), ignore_case=sys.platform == "darwin"
    )


def read_ignore_file(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def users_excludes(environ: Mapping[str, str]) -> str | None:
    """The file that git's ``core.excludesFile`` names, or where git looks without it; None without a home."""
    home = environ.get("HOME")
    if not home:
        return None
    folder = Path(environ.get("XDG_CONFIG_HOME") or Path(home, ".config"), "git")
    for file in (Path(home, ".gitconfig"), folder / "config"):
        if found := _EXCLUDES_FILE.search(read_ignore_file(str(file)) or ""):
            named = found[1].strip()
            return str(Path(home, named.removeprefix("~/"))) if not named.startswith("/") else named
    return str(folder / "ignore")
