"""Going on in the middle of a word: the word is written again, by tokens that agree with it. Pure.

Text that ends inside a word has other ids than text that goes on there, and a model that is shown the one writes the
other badly (``ParsingEr`` is continued by ``r()``, not by ``ror``). So the last piece of the text is not read; the
model chooses among the tokens that are a part of it, or go beyond it. See DESIGN 8 for what that is worth.

Invariant: what is generated begins with the open piece, byte by byte, or nothing is generated.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache

from qmlx_lsp.transcript.encoder import Codec

# Characters of a piece that is written again at most; longer ones (data, mostly) are read as they are.
OPEN_CHARS_MAX = 48
# Characters before the cursor in which its piece is looked for.
_TAIL_CHARS = 2 * OPEN_CHARS_MAX


class Vocabulary:
    """All tokens of a model that stand for text, by their bytes. Takes up to a second for a large one."""

    def __init__(self, codec: Codec) -> None:
        known = sorted((text, token) for token in codec.data_ids() if (text := codec.token_bytes(token)))
        self._texts = [text for text, _ in known]
        self._ids = [token for _, token in known]

    def agreeing(self, open_piece: bytes) -> list[int]:
        """Ids of the tokens that begin with ``open_piece`` or are a beginning of it, which is not empty."""
        found = self._ids[bisect_left(self._texts, open_piece) : self._behind(open_piece)]
        for size in range(1, len(open_piece)):
            part = open_piece[:size]
            at = bisect_left(self._texts, part)
            while at < len(self._texts) and self._texts[at] == part:
                found.append(self._ids[at])
                at += 1
        return found

    def _behind(self, start: bytes) -> int:
        """Where the tokens end that begin with ``start``."""
        short = start.rstrip(b"\xff")
        return bisect_left(self._texts, short[:-1] + bytes([short[-1] + 1])) if short else len(self._texts)


class Healing:
    """What may be chosen until ``open_piece`` has been written; called with the ids chosen so far."""

    def __init__(self, codec: Codec, vocabulary: Vocabulary, open_piece: str) -> None:
        self._codec = codec
        self._vocabulary = vocabulary
        self._open = open_piece.encode()

    def __call__(self, chosen: Sequence[int]) -> Sequence[int] | None:
        left = self._open[sum(len(self._codec.token_bytes(token)) for token in chosen) :]
        return self._vocabulary.agreeing(left) if left else None


def open_piece(codec: Codec, text: str) -> str:
    """The end of ``text`` that is to be written again; empty when it is better read as it is."""
    return _open(codec, text[-_TAIL_CHARS:])


@lru_cache(maxsize=64)  # asked for the same text more than once
def _open(codec: Codec, tail: str) -> str:
    piece = tail[codec.last_piece(tail) :]
    if len(piece) > OPEN_CHARS_MAX or codec.decode(codec.encode_data(piece)) != piece:
        return ""
    return piece
