"""What a question names with ``@``: ``@src/a.py``, ``@src/a.py:10-40``, ``@"a b.py":7``.

It must never take a decorator, an address or a package for a file: a name counts only when there is such a file, and
that is the caller's to find out. Code in a fenced block names nothing.

Invariant: every mention's ``path`` is what was written, less punctuation that ends a sentence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from qmlx_lsp.workspace.blocks import outside

_MENTION = re.compile(r'(?<![\w@/.])@(?:"([^"\n]+)"|([^\s"@`\'<>|*]+))')
_LINES = re.compile(r"(.+?):(\d{1,9})(?:-(\d{1,9}))?\Z", re.DOTALL)
_LINES_BEHIND = re.compile(r":(\d{1,9})(?:-(\d{1,9}))?")
_SENTENCE = ".,;:!?)]}\u2026"


@dataclass(frozen=True, slots=True)
class Mention:
    """``lines``: first and last, counted from 1, both included, the smaller one first; None for the whole file."""

    path: str
    lines: tuple[int, int] | None = None


def mentions(question: str) -> list[Mention]:
    """The mentions in a question, in order, each once."""
    found = []
    question = outside(question)
    for match in _MENTION.finditer(question):
        if match[1] is not None:
            behind = _LINES_BEHIND.match(question, match.end())
            found.append(Mention(match[1], _range(behind[1], behind[2]) if behind else None))
            continue
        written = match[2].rstrip(_SENTENCE)
        lined = _LINES.match(written)
        if lined:
            found.append(Mention(lined[1], _range(lined[2], lined[3])))
        elif written:
            found.append(Mention(written))
    return list(dict.fromkeys(found))


def _range(first: str, last: str | None) -> tuple[int, int]:
    low, high = sorted((int(first), int(last or first)))
    return max(low, 1), max(high, 1)
