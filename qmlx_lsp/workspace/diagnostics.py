"""What checkers say of a file, as one block for the model.

Invariant: the same diagnostics give the same block, whatever order a client sends them in.
Invariant: a block is bounded; the gravest come first when not all fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SEVERITIES = {1: "error", 2: "warning", 3: "information", 4: "hint"}

DIAGNOSTICS_MAX = 50
"""Diagnostics of a file that are told at most."""

SOURCE_CHARS_MAX = 100
"""Characters of who says it that are told at most."""

MESSAGE_CHARS_MAX = 500
"""Characters of one diagnostic's message that are told at most."""


@dataclass(frozen=True, slots=True, order=True)
class Diagnostic:
    """``line`` counts from 1; ``severity`` as in the protocol, 1 the gravest. ``source``: who says it, its code."""

    line: int
    severity: int
    message: str
    source: str = ""


_HEAD = "Diagnostics of "
_CLEAN = ": none any more.\n"


def is_block(text: str) -> bool:
    """Whether a context entry's text is such a block."""
    return text.startswith(_HEAD)


def is_clean(text: str) -> bool:
    """Whether a block says that there are none."""
    return text.endswith(_CLEAN) and text.count("\n") == 1


def block(shown_path: str, diagnostics: Sequence[Diagnostic]) -> str:
    """The block about the file that is shown as ``shown_path``; no diagnostics are said as such."""
    if not diagnostics:
        return f"{_HEAD}{shown_path}{_CLEAN}"
    told = sorted(sorted(set(diagnostics), key=lambda d: (d.severity, d))[:DIAGNOSTICS_MAX])
    lines = [_line(diagnostic) for diagnostic in told]
    if (more := len(set(diagnostics)) - len(told)) > 0:
        lines.append(f"- {more:,} more\n")
    return f"{_HEAD}{shown_path}:\n{''.join(lines)}"


def _line(diagnostic: Diagnostic) -> str:
    message = " ".join(diagnostic.message.split())
    if len(message) > MESSAGE_CHARS_MAX:
        message = message[: MESSAGE_CHARS_MAX - 1] + "\u2026"
    said_by = " ".join(diagnostic.source.split())[:SOURCE_CHARS_MAX]
    source = f" ({said_by})" if said_by else ""
    return f"- line {diagnostic.line}: {SEVERITIES.get(diagnostic.severity, 'error')}: {message}{source}\n"
