"""One open text and how a client's changes apply to it.

It must never raise on what a client sends: positions are clamped, a reversed range is turned round, half a
surrogate pair becomes U+FFFD (it could be neither hashed, stored nor sent).

Invariant: a ``Document`` is never edited; whoever holds one holds one whole version of the text.
Invariant: outside the edited ranges every character survives, terminators and byte order mark included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qmlx_lsp.workspace.positions import Encoding, all_lines, column

Place = tuple[int, int]


class Document:
    """A text as its editor shows it.

    ``uri`` is the client's own spelling. ``version`` is the client's count, ``None`` where it sends none.
    ``synced`` is false when a change was missed: ``text`` is then a guess, or ``""`` if none was ever received.

    The text is held as one string, as its lines, or as both: an edit touches a few lines, and nobody looks at the
    whole between two keystrokes.
    """

    __slots__ = ("_lines", "_text", "language", "synced", "uri", "version")

    def __init__(
        self, uri: str, language: str, version: int | None, text: str | Sequence[str], *, synced: bool = True
    ) -> None:
        self.uri = uri
        self.language = language
        self.version = version
        self.synced = synced
        self._text = text if isinstance(text, str) else None
        self._lines = None if isinstance(text, str) else text

    def __repr__(self) -> str:
        return f"<Document {self.uri} version {self.version}{'' if self.synced else ', not synced'}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Document):
            return NotImplemented
        mine = (self.uri, self.language, self.version, self.synced, self.text)
        return mine == (other.uri, other.language, other.version, other.synced, other.text)

    __hash__ = None  # type: ignore[assignment]

    @property
    def text(self) -> str:
        """The whole text, put together on first use."""
        if self._text is None:
            assert self._lines is not None
            self._text = "".join(self._lines)
        return self._text

    @property
    def lines(self) -> Sequence[str]:
        """The lines with their terminators, see ``all_lines``; taken apart on first use. Nobody may change them."""
        if self._lines is None:
            self._lines = all_lines(self.text)
        return self._lines

    def named(self, uri: str, language: str) -> Document:
        """The same text under another name."""
        held = self._text if self._lines is None else self._lines
        assert held is not None
        return Document(uri, language, self.version, held, synced=self.synced)

    def doubtful(self, version: int | None = None) -> Document:
        """The same, known to lack a change: that of ``version``, or one before its own."""
        held = self._text if self._lines is None else self._lines
        assert held is not None
        return Document(self.uri, self.language, self.version if version is None else version, held, synced=False)


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
    lines, synced = document.lines, document.synced
    mine = False
    for change in changes:
        piece = without_lone_surrogates(change.text)
        if change.range is None:
            lines, synced, mine = all_lines(piece), True, True
            continue
        if not mine:
            lines, mine = list(lines), True
        assert isinstance(lines, list)
        low, high = sorted(change.range)
        _replace(lines, low, high, piece, encoding)
    return Document(document.uri, document.language, version, lines, synced=synced)


def _replace(lines: list[str], low: Place, high: Place, piece: str, encoding: Encoding) -> None:
    """Puts ``piece`` between two places, ``low <= high``, either of which may lie outside the text."""
    (first, start), (last, end) = _clamped(lines, low, encoding), _clamped(lines, high, encoding)
    middle = "".join((lines[first][:start], piece, lines[last][end:]))
    if middle.startswith("\n") and first > 0 and lines[first - 1].endswith("\r"):
        # A line feed that comes to stand behind a carriage return joins the line before.
        first -= 1
        middle = lines[first] + middle
    elif first == last and "\n" not in piece and "\r" not in piece:
        lines[first] = middle  # the common case; a line may have millions of characters
        return
    after = all_lines(middle)
    if last + 1 < len(lines):
        after.pop()  # the last line's terminator is still there, and behind it begins a line that is there already
    lines[first : last + 1] = after


def _clamped(lines: Sequence[str], place: Place, encoding: Encoding) -> tuple[int, int]:
    """The line and the code point in it that a position means. Past the end of a line: before its terminator. Past
    the last line: the end of the text. Before the first line: its beginning."""
    line, character = place
    if line < 0:
        return 0, 0
    if line >= len(lines):
        return len(lines) - 1, len(lines[-1])
    return line, column(lines[line], character, encoding)
