"""What to tell the model of a file, given what it was last told and what the file holds now.

A pure decision: the caller reads the texts, remembers ``Telling.told`` for the path, and appends ``Telling.text``
to the conversation. It must never tell a binary or oversized text, never tell the same thing twice, and never let
a path or a text break out of its block.

Invariant: a block starts with a character that is no whitespace and ends with exactly one line break.
Invariant: line ends and a byte order mark are no part of what is told: a buffer without them equals its file.
Invariant: a remembered text holds no NUL, for a text with one is binary; so a string with one can stand for
"named only" and can never be taken for a text.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import Literal

from qmlx_lsp.workspace.diff import unified
from qmlx_lsp.workspace.positions import LineIndex, to_lf
from qmlx_lsp.workspace.shown import shown as _shown

Form = Literal["whole", "diff", "gone", "named"]

_BACKTICKS = re.compile(r"`{3,}")
_LANGUAGES = {
    "bash": "sh", "cc": "cpp", "cjs": "javascript", "cs": "csharp", "cxx": "cpp", "ex": "elixir", "exs": "elixir",
    "hpp": "cpp", "hs": "haskell", "htm": "html", "js": "javascript", "kt": "kotlin", "kts": "kotlin", "m": "objc",
    "markdown": "md", "mjs": "javascript", "mm": "objc", "pl": "perl", "py": "python", "pyi": "python", "rb": "ruby",
    "rs": "rust", "ts": "typescript", "yml": "yaml", "zsh": "sh",
}  # fmt: skip
_WORD = re.compile(r"[a-z0-9+#-]{1,16}")


@dataclass(frozen=True, slots=True)
class Limits:
    """``max_file_bytes``: UTF-8 bytes above which a file is named and not told. ``max_diff_share``: a diff longer
    than this share of the new text (characters over characters) gives way to the whole text."""

    max_file_bytes: int
    max_diff_share: float


@dataclass(frozen=True, slots=True)
class Telling:
    """``text`` is the block to append, ``told`` what to remember for ``path`` in place of what was remembered."""

    path: str
    form: Form
    text: str
    told: str | None


def tell(path: str, told: str | None, current: str | None, limits: Limits) -> Telling | None:
    """The block that brings the model's view of ``path`` up to date, or ``None`` if it is.

    ``told`` is the ``Telling.told`` of the last telling, ``None`` if there was none or the file was gone.
    ``current`` is the text now (open buffer first), ``None`` if there is no such file. Undecodable bytes may come
    as lone surrogates, and the file is then named only.
    """
    if current is None:
        return None if told is None else Telling(path, "gone", f"File {_shown(path)} was deleted.\n", None)
    if told == current and not is_named(told):
        return None
    size = _utf8_size(current, limits.max_file_bytes)
    if size is None or "\0" in current:
        return named(path, told, "binary")
    if size > limits.max_file_bytes:
        return named(path, told, "too large", size)
    after = _as_seen(current)
    if told is None or is_named(told):
        return Telling(path, "whole", f"File {_shown(path)}:\n{_fenced(after, _language(path))}", current)
    before = _as_seen(told)
    if before == after:
        return None
    diff = unified(before, after)
    if len(diff) > limits.max_diff_share * len(after):
        return Telling(path, "whole", f"File {_shown(path)} (new text):\n{_fenced(after, _language(path))}", current)
    return Telling(path, "diff", f"Change in {_shown(path)}:\n{_fenced(diff, 'diff')}", current)


def named(path: str, told: str | None, reason: str, size: int | None = None) -> Telling | None:
    """Says once per ``reason`` that a file exists and is not shown; also for callers that do not read it at all.

    ``size`` in bytes is shown and not remembered: a large file that grows is not told again.
    """
    marker = f"\0{reason}"
    if told == marker:
        return None
    amount = "" if size is None else f" ({_amount(size)})"
    return Telling(path, "named", f"File {_shown(path)} is not shown: {reason}{amount}.\n", marker)


def is_named(told: str | None) -> bool:
    """Whether a remembered ``told`` stands for a file that was named only, and is not its text."""
    return told is not None and told.startswith("\0")


def mention(path: str, text: str, start_line: int, end_line: int) -> str:
    """Lines ``start_line`` to ``end_line`` of ``text`` as a block; both count from 1, are included and clamped."""
    seen = _as_seen(text)
    index = LineIndex(seen)
    first, last = (min(max(line, 1), index.line_count) for line in sorted((start_line, end_line)))
    lines = seen[index.line_start(first - 1) : index.line_range(last - 1)[1]]
    return f"Lines {first}-{last} of {_shown(path)}:\n{_fenced(lines, _language(path))}"


def _utf8_size(text: str, limit: int) -> int | None:
    """Bytes of ``text`` in UTF-8, ``None`` if it has no UTF-8 form; a text of more characters than ``limit`` is
    not encoded, its characters are counted."""
    if text.isascii() or len(text) > limit:
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return None


def _as_seen(text: str) -> str:
    return to_lf(text.removeprefix("\ufeff"))


def _language(path: str) -> str:
    suffix = posixpath.splitext(path)[1][1:].lower()
    return _LANGUAGES.get(suffix, suffix) if _WORD.fullmatch(suffix) else ""


def _fenced(text: str, language: str) -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    end = "" if not text or text.endswith("\n") else "\n"
    return f"{fence}{language}\n{text}{end}{fence}\n"


def _amount(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB" if size >= 1_000_000 else f"{size / 1_000:.1f} kB"
