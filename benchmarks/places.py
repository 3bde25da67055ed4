"""Seeded places in code of the standard library, at which somebody might be typing."""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SEED = 20261130
FILES = (
    "argparse", "configparser", "csv", "difflib", "dataclasses", "fractions", "inspect", "json/decoder",
    "logging/__init__", "pathlib", "shutil", "textwrap", "zipfile",
)  # fmt: skip
LINES_AROUND = 40


@dataclass(frozen=True)
class Place:
    """``lines`` of a file with ``rest`` taken out behind ``column`` of line ``line``."""

    name: str
    lines: Sequence[str]
    line: int
    column: int
    rest: str


def places(inside: int, at_start: int, rest_chars: int) -> list[Place]:
    """Seeded places in code lines of the standard library: ``inside`` a line, and ``at_start`` of one."""
    draw, library = random.Random(SEED), Path(sysconfig.get_paths()["stdlib"])
    texts = {name: (library / f"{name}.py").read_text(encoding="utf-8").splitlines(keepends=True) for name in FILES}
    found: list[Place] = []
    while len(found) < inside + at_start:
        name = draw.choice(FILES)
        lines = texts[name]
        at = draw.randrange(LINES_AROUND, len(lines) - 10)
        line = lines[at].rstrip("\n")
        indent = len(line) - len(line.lstrip())
        if len(line) - indent < rest_chars + 6 or line.lstrip().startswith(("#", '"', "'")):
            continue
        column = draw.randrange(indent + 3, len(line) - rest_chars + 1) if len(found) < inside else indent
        window = [*lines[at - LINES_AROUND : at], f"{line[:column]}\n", *lines[at + 1 : at + 8]]
        found.append(Place(f"{name.replace('/', '_')}.py", window, LINES_AROUND, column, line[column:]))
    return found
