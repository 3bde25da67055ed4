"""Lines and columns of a text, in the three encodings that editors count in.

It must never split a line where the protocol does not (form feed, NEL, U+2028), never cut a character in two, and
never walk a long line character by character in Python.

Invariant: a line ends at ``\\n``, ``\\r\\n`` or ``\\r``; every answer lies in ``[0, len(text)]`` and never between
``\\r`` and ``\\n``.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from enum import StrEnum
from itertools import accumulate, pairwise

_TERMINATOR = re.compile(r"\r\n?|\n")


class Encoding(StrEnum):
    """The unit in which a client counts columns; the values are those of the protocol's ``positionEncoding``."""

    UTF8 = "utf-8"
    UTF16 = "utf-16"
    UTF32 = "utf-32"


# The codec to count with and the bytes per unit; UTF-32 columns are code points and need no counting.
_CODEC = {Encoding.UTF8: ("utf-8", 1), Encoding.UTF16: ("utf-16-le", 2)}


def all_lines(text: str) -> list[str]:
    """The lines of ``text``, each with its terminator; behind a terminator an empty one follows. So there is always
    one line, and the last has no terminator."""
    if "\r" not in text:
        if "\n" not in text:
            return [text]
        lines = [f"{line}\n" for line in text.split("\n")]
        lines[-1] = lines[-1][:-1]
        return lines
    bounds = [0, *(match.end() for match in _TERMINATOR.finditer(text)), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


def split_lines(text: str) -> list[str]:
    """The lines of ``text``, each with its terminator; no empty line follows the last, so ``""`` has none."""
    lines = all_lines(text)
    return lines if lines[-1] else lines[:-1]


def to_lf(text: str) -> str:
    """``text`` with every terminator replaced by ``\\n``."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def column(line: str, character: int, encoding: Encoding) -> int:
    """The code point of ``line``, a line with its terminator, that an editor's column means: clamped to the line's
    content; inside a character, before that character."""
    end = len(line)
    if line.endswith(("\n", "\r")):
        end -= 2 if line.endswith("\r\n") else 1
    if encoding is Encoding.UTF32 or line.isascii():
        return min(max(character, 0), end)
    return _characters(line[: min(end, max(character, 0))], character, encoding)


class LineIndex:
    """Where the lines of one text begin. Built once per text, O(length) in C, then O(log lines) per question.

    Offsets are code points from 0. Lines count from 0; a text ending in a terminator has an empty last line, and
    the empty text has one line. Columns are in units of the ``encoding`` asked for.
    """

    __slots__ = ("_starts", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        if "\r" in text:
            self._starts = [0, *(match.end() for match in _TERMINATOR.finditer(text))]
        elif "\n" not in text:
            self._starts = [0]
        else:
            # The common case, several times faster: one split, then the running sum of the lengths.
            self._starts = list(accumulate((len(line) + 1 for line in text.split("\n")[:-1]), initial=0))

    @property
    def line_count(self) -> int:
        return len(self._starts)

    def line_start(self, line: int) -> int:
        """Offset of the first character of ``line``; lines outside the text are clamped to the first and last."""
        return self._starts[min(max(line, 0), len(self._starts) - 1)]

    def line_range(self, line: int) -> tuple[int, int]:
        """``(start, end)`` offsets of ``line`` without its terminator; clamped like ``line_start``."""
        line = min(max(line, 0), len(self._starts) - 1)
        start = self._starts[line]
        if line + 1 == len(self._starts):
            return start, len(self._text)
        end = self._starts[line + 1] - 1
        if end > start and self._text[end] == "\n" and self._text[end - 1] == "\r":
            end -= 1
        return start, end

    def offset(self, line: int, character: int, encoding: Encoding) -> int:
        """The offset of a position. Nothing is out of range: it is clamped.

        Past the end of a line: before its terminator. Past the last line: the end of the text. Before the first
        line: 0. A negative column: the start of the line. Inside a character: before that character.
        """
        if line < 0:
            return 0
        if line >= len(self._starts):
            return len(self._text)
        start, end = self.line_range(line)
        if encoding is Encoding.UTF32 or self._text.isascii():
            return min(start + max(character, 0), end)
        return start + _characters(self._text[start : min(end, start + max(character, 0))], character, encoding)

    def position(self, offset: int, encoding: Encoding) -> tuple[int, int]:
        """``(line, column)`` of an offset, clamped to the text; inside a terminator: the end of that line."""
        offset = min(max(offset, 0), len(self._text))
        line = bisect_right(self._starts, offset) - 1
        start, end = self.line_range(line)
        return line, units(self._text[start : min(offset, end)], encoding)


def units(text: str, encoding: Encoding) -> int:
    """How wide ``text`` is in an editor's columns."""
    if encoding is Encoding.UTF32 or text.isascii():
        return len(text)
    codec, width = _CODEC[encoding]
    return len(text.encode(codec, "surrogatepass")) // width


def _characters(head: str, units: int, encoding: Encoding) -> int:
    """How many whole characters of ``head`` fit into ``units``; ``head`` is already cut to ``units`` characters.

    No character is narrower than one unit, so nothing behind ``head`` can count.
    """
    if head.isascii():
        return len(head)
    codec, width = _CODEC[encoding]
    raw = head.encode(codec, "surrogatepass")
    if len(raw) <= units * width:
        return len(head)
    # "ignore" drops the one character that the cut has split.
    return len(raw[: units * width].decode(codec, "ignore"))
