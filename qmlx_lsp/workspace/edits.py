"""From a text that is wanted to the edits that make it, and back to the lines that they were computed for.

It must never touch a line that both texts have, not even its end (but for one that becomes the last of a text whose
last line has none), and never find lines again where it is not certain that they are those lines.

Invariant: what ``minimal`` gives is in order, apart, and ``apply`` makes the wanted text of it, but for line ends:
new lines end as those that they replace or stand beside do, and a last line without an end stays one, unless it is
blank.
Invariant: ``rebase`` gives a range whose lines are, character for character, those that were asked about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qmlx_lsp.workspace.diff import line_blocks
from qmlx_lsp.workspace.parts import Range
from qmlx_lsp.workspace.positions import split_lines, to_lf

LF = "\n"


@dataclass(frozen=True, slots=True)
class Replace:
    """``text`` in the place of the code points ``[start, end)``."""

    start: int
    end: int
    text: str


def apply(text: str, replaces: Sequence[Replace]) -> str:
    """``text`` after ``replaces``, all of which count in ``text`` as it is; they are in order and apart."""
    pieces, at = [], 0
    for one in replaces:
        assert at <= one.start <= one.end <= len(text), "edits are in order and apart"
        pieces += [text[at : one.start], one.text]
        at = one.end
    return "".join([*pieces, text[at:]])


def shifted(replaces: Sequence[Replace], by: int) -> list[Replace]:
    """The same edits in a text that has ``by`` more code points in front."""
    return [Replace(one.start + by, one.end + by, one.text) for one in replaces]


def bare(line: str) -> str:
    """``line`` without its terminator."""
    return line.removesuffix("\n").removesuffix("\r") if line.endswith("\n") else line.removesuffix("\r")


def end_of(line: str) -> str:
    """The terminator of ``line``, "" for none."""
    return line[len(bare(line)) :]


def line_end(text: str) -> str:
    """How lines of ``text`` end: as most of them do, the first one where as many end otherwise."""
    both = text.count("\r\n")
    counts = {LF: text.count("\n") - both, "\r\n": both, "\r": text.count("\r") - both}
    first = min((at for at in (text.find("\n"), text.find("\r")) if at >= 0), default=0)
    begins = text[first : first + 2] if text[first : first + 2] == "\r\n" else text[first : first + 1]
    return max(counts, key=lambda end: (counts[end], end == begins))


def line_at(text: str, offset: int) -> int:
    """The line, from 0, of a place of ``text`` that is not inside of a terminator."""
    return text.count("\n", 0, offset) + text.count("\r", 0, offset) - text.count("\r\n", 0, offset)


def minimal(old: str, new: str, end: str = "") -> list[Replace]:
    """The edits of whole lines that make ``new`` of ``old``. ``end`` is how lines end around ``old``, where it is a
    part of a text and has no lines that say so."""
    a, b = split_lines(old), split_lines(new)
    old_bare, new_bare = [bare(line) for line in a], [bare(line) for line in b]
    if old_bare == new_bare:
        return _last_end(a, b, len(old), end or line_end(old))
    starts = [0]
    for line in a:
        starts.append(starts[-1] + len(line))
    ends = _Ends(a, end)
    found = []
    for equal, from_a, to_a, from_b, to_b in line_blocks(old_bare, new_bare):
        if not equal:
            found.append(_block(a, starts, (from_a, to_a), b[from_b:to_b], ends))
    return found


@dataclass(slots=True)
class _Ends:
    """How new lines end."""

    lines: Sequence[str]
    around: str

    def at(self, line: int, first: int, last: int) -> str:
        """The end of a new line that stands where ``line`` stood, in the place of ``[first, last)``: its own, or that
        of the nearest before it, or behind it, or of the text."""
        before = range(min(line, last - 1), -1, -1)
        behind = range(max(last, first), len(self.lines))
        found = (end for at in (*before[:1], *before[1:], *behind) if (end := end_of(self.lines[at])))
        return next(found, self.around or LF)


def _block(a: Sequence[str], starts: Sequence[int], span: Range, new: Sequence[str], ends: _Ends) -> Replace:
    """The edit that puts ``new`` in the place of the lines ``span`` (from 0, the end not included)."""
    first, last = span
    pieces = [bare(line) + ends.at(first + at, first, last) for at, line in enumerate(new)]
    start, end = starts[first], starts[last]
    before = end_of(a[first - 1]) if first else ""
    endless = not end_of(a[-1]) if a else bool(new) and not end_of(new[-1])
    if endless and last == len(a):  # the last line has no end and keeps having none, unless it would be nothing then
        if pieces and bare(new[-1]):
            pieces[-1] = bare(new[-1])
        if first == last and a:
            pieces.insert(0, ends.at(first, first, last))
        elif not pieces and first and bare(a[first - 1]):
            start -= len(before)  # the line before becomes the last one
    behind = a[last][:1] if last < len(a) else ""
    return Replace(start, end, _apart(before, pieces, behind))


def _apart(before: str, pieces: Sequence[str], behind: str) -> str:
    """``pieces`` as one text in which no carriage return and line feed that end two lines stand together and end one;
    nor do they where it meets what stands ``before`` and ``behind``."""
    text, last = "", before
    for piece in pieces:
        text += f"\r{piece}" if last.endswith("\r") and piece.startswith("\n") else piece
        last = piece
    return f"{text}\n" if last.endswith("\r") and behind == "\n" else text


def _last_end(a: Sequence[str], b: Sequence[str], length: int, end: str) -> list[Replace]:
    """What differs in nothing but the end of the last line."""
    if not a or bool(end_of(a[-1])) == bool(end_of(b[-1])):
        return []
    had = len(end_of(a[-1]))
    return [Replace(length - had, length, "" if had else end)]


# --- finding lines again -------------------------------------------------------------------------------------------


def rebase(old: str, new: str, start_line: int, end_line: int) -> Range | None:
    """Where the lines ``start_line`` to ``end_line`` (from 1, both included) of ``old`` stand in ``new``, if exactly
    those lines are still there; None when they are not, or when it is not certain which ones they are.

    Lines that occur more than once are found by what stands around them, on either side.
    """
    a_text, b_text = to_lf(old), to_lf(new)
    a = a_text.split(LF)
    first, last = start_line - 1, end_line
    if not 0 <= first < last <= len(a):
        return None
    if a_text == b_text:
        return start_line, end_line
    wanted = a[first:last]
    now = _places(b_text, wanted)
    if not now:
        return None
    was = _places(a_text, wanted)
    if len(was) == len(now) == 1:
        return now[0] + 1, now[0] + last - first
    b = b_text.split(LF)
    for equal, from_a, to_a, from_b, to_b in line_blocks(a, b):
        if equal and from_a <= first and last <= to_a:
            at = first - from_a + from_b
            by_number = len(was) == len(now) and now[was.index(first)] == at
            if by_number or _certain(a, b, (from_a, to_a), (from_b, to_b), (first, last)):
                return at + 1, at + last - first
    return None


def _certain(a: Sequence[str], b: Sequence[str], old: Range, new: Range, wanted: Range) -> bool:
    """Whether the run of equal lines ``old``, which is ``new`` in ``b``, tells where ``wanted`` are: it goes on at
    either side of them, and is to be found nowhere else."""
    above = old[0] < wanted[0] or (old[0] == 0 and new[0] == 0)
    below = wanted[1] < old[1] or (old[1] == len(a) and new[1] == len(b))
    run = a[old[0] : old[1]]
    return above and below and len(_places(LF.join(a), run)) == len(_places(LF.join(b), run)) == 1


def _places(text: str, wanted: Sequence[str]) -> list[int]:
    """The lines, from 0, at which ``wanted`` begins in ``text``, everywhere; its lines are parted by ``\\n``."""
    held, sought = f"{LF}{text}{LF}", f"{LF}{LF.join(wanted)}{LF}"
    found: list[int] = []
    at, line, counted = held.find(sought), 0, 0
    while at >= 0:
        line += held.count(LF, counted, at)
        counted = at
        found.append(line)
        at = held.find(sought, at + 1)
    return found
