"""One open text and how a client's changes apply to it.

It must never raise on what a client sends: positions are clamped, a reversed range is turned round, half a
surrogate pair becomes U+FFFD (it could be neither hashed, stored nor sent).

Invariant: a ``Document`` is never edited; whoever holds one holds one whole version of the text.
Invariant: outside the edited ranges every character survives, terminators and byte order mark included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from qmlx_lsp.workspace.positions import Encoding, LineIndex, count_terminators

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Document:
    """A text as its editor shows it.

    ``uri`` is the client's own spelling. ``version`` is the client's count, ``None`` where it sends none.
    ``synced`` is false when a change was missed: ``text`` is then a guess, or ``""`` if none was ever received.
    """

    uri: str
    language: str
    version: int | None
    text: str
    synced: bool = True
    _lines: LineIndex | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def lines(self) -> LineIndex:
        """The line index of ``text``, built on first use."""
        if self._lines is None:
            # A memo of a pure function, so the frozen value stays the same value.
            object.__setattr__(self, "_lines", LineIndex(self.text))
        assert self._lines is not None
        return self._lines


@dataclass(frozen=True, slots=True)
class Change:
    """``text`` replaces ``range``, two ``(line, column)`` places in the client's encoding, or the whole text."""

    text: str
    range: tuple[Place, Place] | None = None


def without_lone_surrogates(text: str) -> str:
    """``text`` with each lone surrogate replaced by U+FFFD; two halves in a row become their character."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def apply(document: Document, changes: Sequence[Change], version: int | None, encoding: Encoding) -> Document:
    """The document after ``changes``, each applied to the result of the one before it.

    A change without a range replaces the whole text and makes the document ``synced`` again. The version is taken
    as it comes; whether it may come is the mirror's question.
    """
    text, synced = _Edited(document.text, encoding), document.synced
    for change in changes:
        piece = without_lone_surrogates(change.text)
        if change.range is None:
            text, synced = _Edited(piece, encoding), True
        else:
            low, high = sorted(change.range)
            text.replace(low, high, piece)
    return Document(document.uri, document.language, version, text.text, synced)


class _Edited:
    """A text in the course of a list of changes, with one line index for all of them.

    An editor sends a step with thousands of cursors as one list, from the bottom up or from the top down. The index
    of the text before the first change stays right above and, shifted, below everything edited so far; only the
    lines between have to be looked at again.

    Invariant: lines ``< _top`` are as in the base text; base lines ``>= _bottom`` are as they were, ``_moved``
    characters and ``_more`` lines further down.
    """

    def __init__(self, text: str, encoding: Encoding) -> None:
        self.text = text
        self._encoding = encoding
        self._base = LineIndex(text)
        self._top, self._bottom = self._base.line_count, 0
        self._moved = self._more = 0

    def replace(self, low: Place, high: Place, piece: str) -> None:
        """Puts ``piece`` between two places, ``low <= high``, either of which may lie outside the text."""
        start, end = self._offset(low), self._offset(high)
        last = self._base.line_count + self._more - 1
        first_line, last_line = (min(max(line, 0), last) for line in (low[0], high[0]))
        # A line feed that comes to stand behind a carriage return joins the line before.
        joins = start > 0 and self.text[start - 1] == "\r"
        top = min(self._top, first_line - 1 if joins else first_line)
        bottom = max(self._bottom, last_line + 1 - self._more)
        # One character more on either side, for the same reason: a terminator may form or part there.
        before = count_terminators(self.text, max(start - 1, 0), end + 1)
        self.text = "".join((self.text[:start], piece, self.text[end:]))
        after = count_terminators(self.text, max(start - 1, 0), start + len(piece) + 1)
        self._top, self._bottom = top, bottom
        self._moved += len(piece) - (end - start)
        self._more += after - before

    def _offset(self, place: Place) -> int:
        line, character = place
        if line < self._top:
            return self._base.offset(line, character, self._encoding)
        if line >= self._bottom + self._more:
            return self._base.offset(line - self._more, character, self._encoding) + self._moved
        start, end = self._base.line_start(self._top), len(self.text)
        if self._bottom < self._base.line_count:
            end = self._base.line_start(self._bottom) + self._moved
        between = LineIndex(self.text[start:end])
        return start + between.offset(line - self._top, character, self._encoding)
