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
from functools import lru_cache

_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": " \\t", "cntrl": "\\x00-\\x1f\\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": " \\t-\\r",
    "upper": "A-Z", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_LINE_END = re.compile(r"\r?\n")
_NOTHING = re.compile(r"(?!)")
_TRAILING_SPACES = re.compile(r"(?<!\\) +$")


@dataclass(frozen=True, slots=True)
class Pattern:
    """``anchored``: matched against the whole path relative to the file's folder, else against the last name.

    ``parts`` are what stands between slashes, ``None`` for ``**``; where there is no ``**``, one expression for all
    of them. A ``**`` at the end stands for one part or more, elsewhere for any number.
    """

    negated: bool
    folders_only: bool
    anchored: bool
    parts: tuple[re.Pattern[str] | None, ...]

    def matches(self, path: str, name: str) -> bool:
        """Whether it is about ``path``, whose last part is ``name``."""
        if len(self.parts) == 1 and self.parts[0] is not None:
            return bool(self.parts[0].fullmatch(path if self.anchored else name))
        return self._by_parts(path.split("/"))

    def _by_parts(self, found: list[str]) -> bool:
        """By two pointers; of a ``**``, only the last one met is ever given more: time is parts times parts."""
        at = here = 0
        back: tuple[int, int] | None = None
        while here < len(found):
            part = self.parts[at] if at < len(self.parts) else _NOTHING
            if part is None:
                if at == len(self.parts) - 1:
                    return True
                at, back = at + 1, (at, here)
            elif part.fullmatch(found[here]):
                at, here = at + 1, here + 1
            elif back is not None:
                back = back[0], back[1] + 1
                at, here = back[0] + 1, back[1]
            else:
                return False
        return at == len(self.parts)


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
            if pattern.matches(path, name):
                return not pattern.negated
        return None


@lru_cache(maxsize=512)  # the same few files are looked at over and over
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
    if not anchored:
        glob = glob.replace("**", "*")
    parts = _parts(glob, flags) if glob else None
    return None if parts is None else Pattern(negated, folders_only, anchored, parts)


def _parts(glob: str, flags: re.RegexFlag) -> tuple[re.Pattern[str] | None, ...] | None:
    """See ``Pattern.parts``; ``None`` if the glob is invalid (an open class, a backslash at the end)."""
    sources: list[str | None] = []
    for part in _between_slashes(glob):
        source = None if part == "**" else _translate(part)
        if source is None and part != "**":
            return None
        if source is not None or not sources or sources[-1] is not None:  # two ``**`` in a row are one
            sources.append(source)
    if None in sources:
        return tuple(None if source is None else re.compile(source, flags) for source in sources)
    return (re.compile("/".join(source for source in sources if source is not None), flags),)


def _between_slashes(glob: str) -> list[str]:
    """The parts of a glob; a slash in a class or behind a backslash parts nothing, for it matches nothing."""
    parts, begin, at = [], 0, 0
    while at < len(glob):
        if glob[at] == "\\":
            at += 1
        elif glob[at] == "[" and (end := _class(glob, at + 1)) is not None:
            at = end[1] - 1
        elif glob[at] == "/":
            parts.append(glob[begin:at])
            begin = at + 1
        at += 1
    return [*parts, glob[begin:]]


def _translate(glob: str) -> str | None:
    """The regular expression of what stands between two slashes, ``None`` if it is invalid.

    A star and the piece behind it are atomic: the first place where the piece fits is as good as any later one, and
    never going back keeps the time linear in what a stranger's pattern may look like.
    """
    pieces: list[str] = [""]
    at = 0
    while at < len(glob):
        char = glob[at]
        if char == "*":
            if pieces[-1] or len(pieces) == 1:
                pieces.append("")
        elif char == "[":
            parsed = _class(glob, at + 1)
            if parsed is None:
                return None
            source, at = parsed
            pieces[-1] += source
            continue
        elif char == "\\":
            at += 1
            if at == len(glob):
                return None
            pieces[-1] += re.escape(glob[at])
        else:
            pieces[-1] += "[^/]" if char == "?" else re.escape(char)
        at += 1
    if len(pieces) == 1:
        return pieces[0]
    first, *middle, last = pieces
    return first + "".join(f"(?>[^/]*?{piece})" for piece in middle if piece) + f"[^/]*{last}"


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
