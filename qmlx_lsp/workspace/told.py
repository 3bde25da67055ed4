"""What to tell the model of a file, given what it was last told and what the file holds now.

A pure decision: the caller reads the texts, remembers ``Telling.told`` for the path, and appends ``Telling.text``
to the conversation. It must never tell a binary or oversized text, never tell the same thing twice, and never let
a path or a text break out of its block.

What is remembered of a file is the text that the model could put together from what it was told. Of a file that was
shown in parts it is the text it had, with the lines that were shown.

Invariant: a block starts with a character that is no whitespace and ends with exactly one line break.
Invariant: line ends and a byte order mark are no part of what is told: a buffer without them equals its file.
Invariant: a remembered text holds no NUL, for a text with one is binary; so a string that begins with one can stand
for "named only" or say which lines were shown, and can never be taken for a text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from qmlx_lsp.workspace.diff import carried, unified
from qmlx_lsp.workspace.fence import fenced
from qmlx_lsp.workspace.parts import Range, merged, missing
from qmlx_lsp.workspace.positions import LineIndex, to_lf
from qmlx_lsp.workspace.shown import shown

Form = Literal["whole", "part", "diff", "gone", "named", "moved"]

STALE = "\0changed"
"""Remembered of a file that has changed more than could be told: the model knows no more than that."""

_PART = "\0part "
_LANGUAGES = {
    "bash": "sh", "cc": "cpp", "cjs": "javascript", "cs": "csharp", "cxx": "cpp", "ex": "elixir", "exs": "elixir",
    "hpp": "cpp", "hs": "haskell", "htm": "html", "ipynb": "python", "js": "javascript", "kt": "kotlin",
    "kts": "kotlin", "m": "objc", "markdown": "md", "mjs": "javascript", "mm": "objc", "pl": "perl", "py": "python",
    "pyi": "python", "rb": "ruby", "rs": "rust", "ts": "typescript", "yml": "yaml", "zsh": "sh",
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


@dataclass(frozen=True, slots=True)
class Shown:
    """What the model has seen of a file: its ``text``, all of it, or the lines in ``parts`` only."""

    text: str
    parts: tuple[Range, ...] | None = None


def recall(told: str | None) -> Shown | None:
    """What a remembered ``told`` says was shown; None for nothing, or when the file was named only."""
    if told is None or not told.startswith("\0"):
        return None if told is None else Shown(told)
    if not told.startswith(_PART):
        return None
    ranges, _, text = told.removeprefix(_PART).partition("\0")
    pairs = (part.split("-") for part in ranges.split(",") if part)
    return Shown(text, tuple((int(first), int(last)) for first, last in pairs))


def readable(text: str, limits: Limits) -> bool:
    """Whether a text may be shown: neither binary nor too large."""
    size = _utf8_size(text, limits.max_file_bytes)
    return size is not None and size <= limits.max_file_bytes and "\0" not in text


def seen_text(told: str) -> str:
    """The text in a remembered ``told``, or any text, as the model sees it; empty for what was named only."""
    seen = recall(told)
    return "" if seen is None else _as_seen(seen.text)


def tell(
    path: str, told: str | None, current: str | None, limits: Limits, parts: Sequence[Range] | None = None
) -> Telling | None:
    """The block that brings the model's view of ``path`` up to date, or ``None`` if it is.

    ``told`` is the ``Telling.told`` of the last telling, ``None`` if there was none or the file was gone.
    ``current`` is the text now (open buffer first), ``None`` if there is no such file. Undecodable bytes may come
    as lone surrogates, and the file is then named only. ``parts`` are lines to show; without them a file that was not
    shown before is shown whole.
    """
    if current is None:
        return None if told is None else Telling(path, "gone", f"File {shown(path)} was deleted.\n", None)
    if told == current and not is_named(told):
        return None
    size = _utf8_size(current, limits.max_file_bytes)
    if size is None or "\0" in current:
        return named(path, told, "binary")
    if size > limits.max_file_bytes:
        return named(path, told, "too large", size)
    seen = recall(told)
    if seen is None:
        return _first(path, current, parts, " (new text)" if told == STALE else "")
    before, after = _as_seen(seen.text), _as_seen(current)
    diff = "" if before == after else unified(before, after)
    if len(diff) > limits.max_diff_share * len(after):
        return _first(path, current, parts, " (new text)")
    change = f"Change in {shown(path)}:\n{fenced(diff, 'diff')}" if diff else ""
    if seen.parts is None:
        return Telling(path, "diff", change, current) if diff else None
    known = carried(before, after, seen.parts)
    more = missing(parts or (), known)
    if not diff and not more:
        return None
    text = change + (_parts(path, after, more) if more else "")
    return Telling(path, "diff" if diff else "part", text, _partly(current, merged([*known, *more])))


def _first(path: str, current: str, parts: Sequence[Range] | None, what: str) -> Telling:
    """A file that the model knows nothing of, or not enough to make use of a difference."""
    after = _as_seen(current)
    if parts is not None:
        return Telling(path, "part", _parts(path, after, parts, what), _partly(current, merged(parts)))
    return Telling(path, "whole", f"File {shown(path)}{what}:\n{fenced(after, _language(path))}", current)


def _partly(text: str, parts: Sequence[Range]) -> str:
    return f"{_PART}{','.join(f'{first}-{last}' for first, last in parts)}\0{text}"


def moved(old: str, new: str, told: str, current: str, limits: Limits) -> Telling:
    """A file that was shown, or named, as ``old`` is now ``new``, and may have changed a little on the way."""
    line = f"File {shown(old)} was renamed to {shown(new)}.\n"
    change = tell(new, told, current, limits)
    return Telling(new, "moved", line + (change.text if change else ""), change.told if change else told)


def named(path: str, told: str | None, reason: str, size: int | None = None) -> Telling | None:
    """Says once per ``reason`` that a file exists and is not shown; also for callers that do not read it at all.

    ``size`` in bytes is shown and not remembered: a large file that grows is not told again.
    """
    marker = f"\0{reason}"
    if told == marker:
        return None
    amount = "" if size is None else f" ({_amount(size)})"
    return Telling(path, "named", f"File {shown(path)} is not shown: {reason}{amount}.\n", marker)


def is_named(told: str | None) -> bool:
    """Whether a remembered ``told`` stands for a file that was named only, and nothing of its text was shown."""
    return told is not None and told.startswith("\0") and not told.startswith(_PART)


def mention(path: str, text: str, start_line: int, end_line: int) -> str:
    """Lines ``start_line`` to ``end_line`` of ``text`` as a block; both count from 1, are included and clamped."""
    seen = _as_seen(text)
    index = LineIndex(seen)
    first, last = (min(max(line, 1), index.line_count) for line in sorted((start_line, end_line)))
    lines = seen[index.line_start(first - 1) : index.line_range(last - 1)[1]]
    return f"Lines {first}-{last} of {shown(path)}:\n{fenced(lines, _language(path))}"


def _parts(path: str, seen: str, parts: Sequence[Range], what: str = "") -> str:
    """Lines of a text as it is seen, in one block, with what is left out between them said."""
    index = LineIndex(seen)
    total = index.line_count - (1 if seen.endswith("\n") else 0)
    pieces: list[str] = []
    shown_to = 0
    for first, last in parts:
        if pieces:
            pieces.append(f"\u22ef lines {shown_to + 1}-{first - 1} \u22ef\n")
        text = seen[index.line_start(first - 1) : index.line_range(last - 1)[1]]
        pieces.append(text if text.endswith("\n") else f"{text}\n")
        shown_to = last
    lines = ", ".join(f"{first}-{last}" for first, last in parts)
    return f"Lines {lines} of {shown(path)}, which has {total:,}{what}:\n{fenced(''.join(pieces), _language(path))}"


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


def _amount(size: int) -> str:
    return f"{size / 1_000_000:.1f} MB" if size >= 1_000_000 else f"{size / 1_000:.1f} kB"
