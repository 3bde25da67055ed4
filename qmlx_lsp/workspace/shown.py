"""A name as the model and people may see it: whatever bytes it has, it stays on its line and inside its block."""

from __future__ import annotations

import re

# Control characters, the Unicode line separators and undecodable bytes are legal in a file's name.
_UNSHOWABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def shown(name: str) -> str:
    """``name`` with what cannot be shown as ``\\uXXXX``."""
    return _UNSHOWABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", name)
