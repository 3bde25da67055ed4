"""The pattern language of ``.gitignore`` files, one file at a time.

pathspec matches whatever lies below a matched folder as well, so that ``!a`` brings back ``a/b`` although another
line ignores ``b``: what git hides would be told. Here a pattern is about the one path it is asked about, and the
caller asks about every folder on the way, as git does.

It must never fail on a line: one that is no valid pattern matches nothing.

Invariant: ``*``, ``?`` and a class never match a slash; only a whole ``**`` part does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": " \\t", "cntrl": "\\x00-\\x1f\\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": " \\t-\\r",
    "upper": "A-Z", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_LINE_END = re.compile(r"\r?\n")
_TRAILING_SPACES = re.compile(r"(?<!\\) +$")


@dataclass(frozen=True, slots=True)
class Pattern:
    """``anchored``: matched against the whole path relative to the file's folder, else against the last name."""

    negated: bool
    folders_only: bool
    anchored: bool
    regex: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class Patterns:
    """The patterns of one file, in its order."""

    patterns: tuple[Pattern, ...]

    def verdict(self, path: str, *, folder: bool) -> bool | None:
        """Whether ``path`` (relative, no slash at either end) is ignored; ``None`` if no pattern is about it.

        The last pattern that matches decides.
        """
        name = path.rsplit("/", 1)[-1]
        for pattern in reversed(self.patterns):
            if pattern.folders_only and not folder:
                continue
            if pattern.regex.fullmatch(path if pattern.anchored else name):
                return not pattern.negated
        return None


def parse(text: str, *, ignore_case: bool = False) -> Patterns:
    """The patterns of an ignore file's text. ``ignore_case`` is for file systems that do."""
    return parse_lines(_LINE_END.split(text.removeprefix("\ufeff")), ignore_case=ignore_case)


def parse_lines(lines: Iterable[str], *, ignore_case: bool = False) -> Patterns:
    """The patterns of single lines; blank lines, comments and invalid patterns give none."""
    flags = re.DOTALL | re.IGNORECASE if ignore_case else re.DOTALL
    found = (_pattern(line, flags) for line in lines)
    return Patterns(tuple(pattern for pattern in found if pattern))


def _pattern(line: str, flags: re.RegexFlag) -> Pattern | None:
    glob = _TRAILING_SPACES.sub("", line)
    if glob.startswith("#"):
        return None
    negated = glob.startswith("!")
    glob = glob[negated:]
    folders_only = glob.endswith("/")
    glob = glob.removesuffix("/")
    anchored = "/" in glob
    glob = glob.removeprefix("/")
    source = _translate(glob, anchored=anchored) if glob else None
    return None if source is None else Pattern(negated, folders_only, anchored, re.compile(source, flags))


def _translate(glob: str, *, anchored: bool) -> str | None:
    """The regular expression of a glob, ``None`` if it is invalid (an open class, a backslash at the end)."""
    out: list[str] = []
    at = 0
    while at < len(glob):
        char = glob[at]
        if char == "*":
            source, at = _stars(glob, at, anchored=anchored)
            # A repeated part adds nothing but backtracking.
            if not (out and out[-1] == source):
                out.append(source)
            continue
        if char == "[":
            parsed = _class(glob, at + 1)
            if parsed is None:
                return None
            source, at = parsed
            out.append(source)
            continue
        if char == "\\":
            at += 1
            if at == len(glob):
                return None
            char = glob[at]
            out.append(re.escape(char))
        else:
            out.append("[^/]" if char == "?" else re.escape(char))
        at += 1
    return "".join(out)


def _stars(glob: str, at: int, *, anchored: bool) -> tuple[str, int]:
    """A run of stars: the source, and where to go on."""
    end = at
    while glob[end : end + 1] == "*":
        end += 1
    whole_part = (at == 0 or glob[at - 1] == "/") and glob[end : end + 1] in {"", "/"}
    if end - at < 2 or not whole_part or not anchored:
        return "[^/]*", end
    return (".*", end) if end == len(glob) else ("(?:.*/)?", end + 1)


def _class(glob: str, at: int) -> tuple[str, int] | None:
    """A bracket class from behind its ``[``: the source, and where to go on; ``None`` if it is not closed."""
    negated = glob[at : at + 1] in {"!", "^"}
    at += negated
    items: list[str] = []
    first = True
    while first or glob[at : at + 1] != "]":
        first = False
        name = re.compile(r"\[:([a-z]*):\]").match(glob, at)
        if name:
            if name[1] not in _CLASSES:
                return None
            items.append(_CLASSES[name[1]])
            at = name.end()
            continue
        low, at = _class_char(glob, at)
        high = low
        if glob[at : at + 1] == "-" and glob[at + 1 : at + 2] not in {"", "]"}:
            high, at = _class_char(glob, at + 1)
        if not low or not high:
            return None
        if low <= high:
            items.append(f"{re.escape(low)}-{re.escape(high)}")
    if not items:
        return ("[^/]" if negated else "(?!)"), at + 1
    return f"(?!/)[{'^' if negated else ''}{''.join(items)}]", at + 1


def _class_char(glob: str, at: int) -> tuple[str, int]:
    """One character of a class, escaped or not, and where to go on; ``""`` at the end of the glob."""
    if glob[at : at + 1] == "\\":
        at += 1
    return glob[at : at + 1], at + 1
