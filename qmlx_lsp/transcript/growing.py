"""Encoding a text that grows at its end, again and again, at the price of its end.

A tokenizer takes a microsecond a character, which at every keystroke is milliseconds. What was encoded last is used
up to some way before the first difference: from a token's beginning there, the rest is encoded by itself, and must
begin with the very tokens that stood there. Tokenizers look at pieces of a text one by one, so that two encodings
that have fallen into step stay in step; where they have not, the whole is encoded.

Invariant: the ids decode to the text, as those of ``Codec.encode_data`` do.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from qmlx_lsp.transcript.encoder import Codec

# Bytes before the first difference from which on a text is encoded anew, and tokens that must be the same there.
_BACK_BYTES = 160
_STEP_TOKENS = 8


class GrowingText:
    """The last text that was encoded. Used by one thread at a time; texts that are no versions of each other cost
    what they cost."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._last: tuple[bytes, list[int], list[int]] = b"", [], []  # text, ids, where each ends

    def encode(self, text: str) -> list[int]:
        """As ``Codec.encode_data``."""
        try:
            data = text.encode()
        except UnicodeEncodeError:  # lone surrogates become something else
            return self._codec.encode_data(text)
        ids = self._continued(data)
        if ids is None:
            ids = self._codec.encode_data(text)
        ends = list(accumulate(len(self._codec.token_bytes(token)) for token in ids))
        # Characters that were written visibly take other bytes than they are; nothing is built on these.
        self._last = (data, ids, ends) if ends and ends[-1] == len(data) else (b"", [], [])
        return ids

    def _continued(self, data: bytes) -> list[int] | None:
        """The ids, from those of the last text; None where the two do not fall into step."""
        before, ids, ends = self._last
        same = _shared(before, data)
        kept = bisect_right(ends, same - _BACK_BYTES)
        if kept < _STEP_TOKENS:
            return None
        sure = bisect_right(ends, same - _BACK_BYTES // 2)  # tokens that the difference cannot have changed
        try:
            rest = data[ends[kept - 1] :].decode()
        except UnicodeDecodeError:  # a token ends inside a character
            return None
        found = self._codec.encode_data(rest)
        if sure - kept < _STEP_TOKENS or found[: sure - kept] != ids[kept:sure]:
            return None
        return [*ids[:kept], *found]


def _shared(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
