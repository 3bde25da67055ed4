"""What a model's answer says: fenced blocks of code, and search/replace blocks.

It must never take a block that was cut off for a whole one, nor guess where a block ends.

Invariant: a fence is closed by its own sign, at least as long and not indented; a fence with a word inside a block
opens one within it.
Invariant: what is returned of a block is what the model wrote, but for the indentation of the fence itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from qmlx_lsp.workspace.positions import split_lines, to_lf

# Nothing is given back once it has been read: a line of a thousand tildes would be tried in all ways to part it.
_FENCE = re.compile(r"([ \t]*+)(`{3,}+|~{3,}+)[ \t]*+([^\s`]*+)[^`]*+$")
_SEARCH = re.compile(r"<{5,9} ?SEARCH[ \t]*$")
_DIVIDER = re.compile(r"={5,9}[ \t]*$")
_REPLACE = re.compile(r">{5,9} ?REPLACE[ \t]*$")
_PATH = re.compile(r"[#*`\s]*(?:(?:[Ff]ile|[Pp]ath)(?:name)?:\s*)?`?([^\s`*:]+\.[A-Za-z0-9_]+)`?[*:\s]*$")
_MORE_MAX = 3  # columns by which a closing fence may be indented more than the one that opened
_Sign = tuple[str, str, str]
# Fences that nothing closes, behind which no more are looked for: each is looked for to the end of the text.
UNCLOSED_MAX = 100
_THOUGHT = re.compile(r"^\s*<think>.*?</think>\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Code:
    """One closed fenced block: its lines with ``\\n``, and the word behind the fence."""

    text: str
    language: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The fenced blocks of an answer, in order; ``cut`` when its last one was never closed."""

    codes: tuple[Code, ...]
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """Lines ``search`` are to become lines ``replace``, both with ``\\n``; ``path`` is the file that was named."""

    search: str
    replace: str
    path: str | None = None


def answered(reply: str) -> str:
    """A reply less the thinking that is shown in front of it."""
    return _THOUGHT.sub("", to_lf(reply), count=1)


def fences(reply: str) -> Answer:
    """The fenced blocks of ``reply``; those inside of others are part of them."""
    lines = split_lines(to_lf(reply))
    codes: list[Code] = []
    signs = [_fence(line) for line in lines]
    at = 0
    while at < len(lines):
        opening = signs[at]
        at += 1
        if opening is None:
            continue
        end = _closed(signs, at, opening)
        if end is None:
            return Answer(tuple(codes), cut=True)
        indent, _, language = opening
        codes.append(Code("".join(_dedented(line, indent) for line in lines[at:end]), language))
        at = end + 1
    return Answer(tuple(codes))


def outside(text: str) -> str:
    """``text`` without its closed fenced blocks. A block that is not closed is none."""
    kept, at, vain = [], 0, 0
    lines = split_lines(text)
    signs = [_fence(line) for line in lines]
    while at < len(lines):
        opening = signs[at] if vain < UNCLOSED_MAX else None
        end = None if opening is None else _closed(signs, at + 1, opening)
        vain += opening is not None and end is None
        if end is None:
            kept.append(lines[at])
        at = at + 1 if end is None else end + 1
    return "".join(kept)


def _fence(line: str) -> _Sign | None:
    """Indentation, sign and word of a line that is a fence."""
    match = _FENCE.match(line.rstrip("\r\n"))
    return (match[1], match[2], match[3]) if match else None


def _closed(signs: Sequence[_Sign | None], at: int, opening: _Sign) -> int | None:
    """The line that closes the block that begins at ``at`` behind ``opening``; None when none does."""
    indent, sign, _ = opening
    depth = 1
    for number in range(at, len(signs)):
        found = signs[number]
        if found is None or found[1][0] != sign[0] or len(found[1]) < len(sign):
            continue
        if len(found[0]) > len(indent) + _MORE_MAX:
            continue
        depth += 1 if found[2] else -1
        if not depth:
            return number
    return None


def _dedented(line: str, indent: str) -> str:
    return line[len(indent) :] if line.startswith(indent) else line.lstrip(" \t")


# --- search/replace ------------------------------------------------------------------------------------------------


def changes(reply: str) -> tuple[Change, ...] | str | None:
    """The search/replace blocks of ``reply``, in order; None when it has none, a reason when they are not whole."""
    lines = split_lines(to_lf(reply))
    heads = [at for at, line in enumerate(lines) if _SEARCH.match(line.rstrip())]
    if not heads:
        return None
    found = []
    for number, head in enumerate(heads):
        until = heads[number + 1] if number + 1 < len(heads) else len(lines)
        ends = [at for at in range(head + 1, until) if _REPLACE.match(lines[at].rstrip())]
        if not ends:
            return f"search/replace block {number + 1} is not whole"
        dividers = [at for at in range(head + 1, ends[0]) if _DIVIDER.match(lines[at].rstrip())]
        if len(dividers) != 1 or len(ends) > 1:
            return f"it is not clear where search/replace block {number + 1} ends"
        middle, end = dividers[0], ends[0]
        search, replace = "".join(lines[head + 1 : middle]), "".join(lines[middle + 1 : end])
        found.append(Change(search, replace, _path_above(lines, head)))
    return tuple(found)


def _path_above(lines: Sequence[str], head: int) -> str | None:
    """The file that the line in front of a block names, or the one in front of the fence around it."""
    at = head - 1
    if at >= 0 and _fence(lines[at]) is not None:
        at -= 1
    match = _PATH.match(lines[at].rstrip("\n")) if at >= 0 else None
    return match[1] if match else None
