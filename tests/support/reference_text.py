"""Texts, lines and columns by counting every character: slow, short, and written independently of the package.

Encodings are named as in the protocol. A place is a line and a column, both from 0.
"""

from __future__ import annotations

import re

Place = tuple[int, int]


def width(char: str, encoding: str) -> int:
    if encoding == "utf-32":
        return 1
    if encoding == "utf-16":
        return 2 if ord(char) > 0xFFFF else 1
    return 1 if ord(char) < 0x80 else 2 if ord(char) < 0x800 else 3 if ord(char) < 0x10000 else 4


def lines_of(text: str) -> list[tuple[int, str]]:
    """(offset, line without its terminator)."""
    parts = re.split(r"(\r\n|\r|\n)", text)
    lines, offset = [], 0
    for at in range(0, len(parts), 2):
        lines.append((offset, parts[at]))
        offset += len(parts[at]) + (len(parts[at + 1]) if at + 1 < len(parts) else 0)
    return lines


def reference_offset(text: str, place: Place, encoding: str) -> int:
    line, column = place
    lines = lines_of(text)
    if line < 0:
        return 0
    if line >= len(lines):
        return len(text)
    offset, content = lines[line]
    used = 0
    for char in content:
        used += width(char, encoding)
        if used > column:
            break
        offset += 1
    return offset


def reference_edit(text: str, place: Place, other: Place, piece: str, encoding: str) -> str:
    start, end = sorted([reference_offset(text, place, encoding), reference_offset(text, other, encoding)])
    return text[:start] + piece + text[end:]


def reference_place(text: str, offset: int, encoding: str) -> Place:
    """Where an editor shows the character at ``offset``."""
    number, (start, content) = [(n, line) for n, line in enumerate(lines_of(text)) if line[0] <= offset][-1]
    return number, sum(width(char, encoding) for char in content[: offset - start])
