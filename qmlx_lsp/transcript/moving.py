"""Values that move from one prompt to the next: dates, times, ids, paths, numbers. Found where two texts part. Pure.

Invariant: a value is named only when it is all that differs: it begins at the same place in both texts, and behind it
they are the same again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

AGREE_CHARS = 8  # behind what differs, so many must be the same again
NEAR_CHARS = 400  # around the place in which a value lies


class Value(StrEnum):
    """The closed set of values that move."""

    DATE = "date"
    TIME = "time"
    ID = "id"
    PATH = "path"
    NUMBER = "number"


@dataclass(frozen=True, slots=True)
class Moved:
    """A value and what it is in each text. ``name``: with its article."""

    value: Value
    name: str
    here: str
    there: str


def part(here: str, there: str, at: int) -> Moved | None:
    """The value around ``at``, the first character that differs, if that is all that differs there."""
    low, high = max(0, at - NEAR_CHARS), at + NEAR_CHARS
    for value, name, pattern in _VALUES:
        mine = _around(pattern.finditer(here, low, high), at)
        other = _around(pattern.finditer(there, low, high), at)
        if mine is None or other is None or mine.start() != other.start() or mine[0] == other[0]:
            continue
        if agree(here, mine.end(), there, other.end()):
            return Moved(value, name, mine[0], other[0])
    return None


def named(text: str) -> tuple[str, str] | None:
    """The first date, time or id in ``text``: its name with its article, and itself."""
    found = ((name, pattern.search(text)) for value, name, pattern in _VALUES if value not in _LASTING)
    return next(((name, match[0]) for name, match in found if match is not None), None)


def agree(here: str, i: int, there: str, j: int) -> bool:
    """Whether the texts go on in the same way, or both are at their end."""
    one, other = here[i : i + AGREE_CHARS], there[j : j + AGREE_CHARS]
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter] and (shorter > 0 or one == other)


def _around(found: Iterable[re.Match[str]], at: int) -> re.Match[str] | None:
    return next((match for match in found if match.start() <= at <= match.end()), None)


_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_WEEKDAY = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?\s+)?"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:\s?[AaPp][Mm])?(?:Z|[+-]\d{2}:?\d{2})?"
_DAY = (
    r"(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}"
    rf"|\d{{1,2}}\.? {_MONTH},? \d{{4}}|{_MONTH} \d{{1,2}},? \d{{4}})"
)
_HEX = r"(?=[0-9a-fA-F]*\d)(?=\d*[a-fA-F])[0-9a-fA-F]{8,}"
_NAMED = r"(?:call|chatcmpl|req|msg|run|session|toolu)[-_](?=[A-Za-z]*\d)\w{6,}"
_FOLDERS = r"(?:~|\.{1,2}|[A-Za-z]:)?(?:[/\\][\w.@+-]+){2,}[/\\]?"
# Endings of files' names; most words with a dot inside are none.
_ENDING = (
    r"(?:bash|c|cc|cfg|cpp|cs|css|csv|go|h|hpp|html|ini|java|js|json|jsx|kt|lock|log|lua|md|php|pl|py|pyi|rb|rs|rst|sh"
    r"|sql|swift|toml|ts|tsx|txt|vue|xml|yaml|yml|zig)"
)
# What moves from one prompt to the next, in the order in which it is looked for: a date is made of numbers.
_VALUES: tuple[tuple[Value, str, re.Pattern[str]], ...] = (
    (Value.ID, "a UUID", re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")),
    (Value.DATE, "a date", re.compile(rf"\b{_WEEKDAY}{_DAY}(?:(?:T|,?\s+(?:at\s+)?){_CLOCK})?(?!\w)")),
    (Value.TIME, "a time", re.compile(rf"(?<![\w:.]){_CLOCK}(?![\w:])")),
    (Value.ID, "an id", re.compile(rf"\b(?:{_NAMED}|{_HEX})\b")),
    (Value.PATH, "a path", re.compile(rf"{_FOLDERS}|(?:[\w.@+-]+[/\\])*[\w.@+-]+\.{_ENDING}\b")),
    (Value.NUMBER, "a number", re.compile(r"(?<!\d)\d+(?:[.,]\d+)*(?!\w)")),
)
_LASTING = (Value.PATH, Value.NUMBER)  # which stand in texts that never change as well
