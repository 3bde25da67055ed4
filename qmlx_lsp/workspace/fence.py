"""A text inside a block that it cannot break out of.

Invariant: the fence is longer than any run of backticks inside, and what is returned ends with one line break.
"""

from __future__ import annotations

import re

_BACKTICKS = re.compile(r"`{3,}")


def fence_for(text: str) -> str:
    """A fence that nothing in ``text`` ends."""
    return "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))


def fenced(text: str, language: str = "") -> str:
    fence = fence_for(text)
    end = "" if not text or text.endswith("\n") else "\n"
    return f"{fence}{language}\n{text}{end}{fence}\n"
