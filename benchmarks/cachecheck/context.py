"""The texts that servers are asked about: code of Python's standard library, chosen by a seed.

Invariant: two texts of different names share no beginning, so a server that knows one has nothing of the other.
"""

from __future__ import annotations

import random
import sysconfig
from pathlib import Path

from benchmarks.cachecheck.conversation import Context

MODULES = (
    "argparse", "ast", "configparser", "csv", "dataclasses", "difflib", "fractions", "ftplib", "gettext", "heapq",
    "imaplib", "inspect", "mailbox", "optparse", "pathlib", "pickle", "shlex", "shutil", "smtplib", "statistics",
    "tarfile", "textwrap", "typing", "zipfile",
)  # fmt: skip
EDIT_AT = 0.1
"""Where in the text an early line is edited, as a share of it."""


def context(name: str, chars: int, seed: int) -> Context:
    """About ``chars`` characters of code, in whole lines; the same for the same arguments."""
    draw = random.Random(f"{seed}/{name}")
    library = Path(sysconfig.get_paths()["stdlib"])
    lines = [f"# {draw.getrandbits(64):016x} {name}\n"]
    length = 0
    while length < chars:
        source = (library / f"{draw.choice(MODULES)}.py").read_text(encoding="utf-8").splitlines(keepends=True)
        for line in source[draw.randrange(len(source) // 2) :]:
            if length >= chars:
                break
            if line.strip():
                lines.append(line)
                length += len(line)
    return Context(name, "".join(lines))


def snippet(name: str, chars: int, seed: int) -> str:
    """A few lines of code for a question."""
    return context(name, chars, seed).text


def edited(text: str) -> str:
    """``text`` with one line changed at ``EDIT_AT``."""
    lines = text.splitlines(keepends=True)
    at = max(1, int(len(lines) * EDIT_AT))
    lines[min(at, len(lines) - 1)] = "edited_line = 1  # this line was edited\n"
    return "".join(lines)
