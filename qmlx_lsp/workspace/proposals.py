"""What a model proposes for some lines of a text, and which edits that makes of the text as it is now.

It must never make edits for lines that are not those that the model was shown, nor of an answer that can mean more
than one thing.

Invariant: a plan's edits, applied to the text it was made for, give ``Plan.result``.
Invariant: ``Plan.done`` is true of a text only if what was to be changed reads there as it was to read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from qmlx_lsp.workspace.blocks import Change, answered, changes, fences
from qmlx_lsp.workspace.edits import Replace, apply, line_at, line_end, minimal, rebase, shifted
from qmlx_lsp.workspace.fitting import indented_as, replaced
from qmlx_lsp.workspace.parts import Range
from qmlx_lsp.workspace.positions import all_lines, split_lines, to_lf

_SIGN = r"(?:#|//|--|/\*|<!--|;|%|\*)\s*"
_STANDS_FOR = re.compile(
    rf"(?:{_SIGN})?(?:\.\.\.|\u2026).*\b(?:rest|existing|unchanged|remaining|previous|same|omitted|as before)\b|"
    rf"{_SIGN}\[?(?:the )?rest of (?:the|your) |"
    rf"{_SIGN}\[?(?:existing|remaining|unchanged|other) (?:code|functions?|methods?|lines)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Proposal:
    """The new text of the lines that were asked about, or search/replace blocks, or ``reason``: why there is
    neither, in one line."""

    code: str | None = None
    changes: tuple[Change, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """``edits`` make ``result`` of ``before``; with no edits, ``reason`` says why there are none."""

    before: str = ""
    edits: tuple[Replace, ...] = ()
    result: str = ""
    reason: str = ""

    def done(self, text: str) -> bool:
        """Whether ``text`` is what the edits were to make, whatever else has been typed above and below."""
        have, wanted = to_lf(text), to_lf(self.result)
        if have == wanted:
            return True
        loose = wanted.rstrip("\n")  # editors put an end behind the last line, or take it away
        if not self.edits or loose == to_lf(self.before).rstrip("\n"):
            return False
        if have.rstrip("\n") == loose:
            return True
        first, last = self.edits[0], self.edits[-1]
        grown = len(self.result) - len(self.before)
        is_there = rebase(self.result, text, *_with_neighbours(self.result, first.start, last.end + grown))
        old = (_lines if first.start < last.end else _with_neighbours)(self.before, first.start, last.end)
        return is_there is not None and rebase(self.before, text, *old) is None

    def may_be_in(self, text: str) -> bool:
        """Whether ``text`` may have some of what was to be put in already, so that to put it in again is wrong."""
        have, had = to_lf(text), to_lf(self.before)
        new = [piece for one in self.edits if (piece := to_lf(one.text).strip())]
        return any(have.count(piece) > had.count(piece) for piece in new)


def _lines(text: str, start: int, end: int) -> Range:
    """The lines that ``[start, end)`` of ``text``, which is not empty, touches."""
    return line_at(text, start) + 1, line_at(text, end) + (text[end - 1] not in "\r\n")


def _with_neighbours(text: str, start: int, end: int) -> Range:
    """The lines between two places of ``text``, with one on either side."""
    inside = end > 0 and text[end - 1] not in "\r\n"
    return max(line_at(text, start), 1), min(line_at(text, end) + 1 + inside, line_at(text, len(text)) + 1)


def proposal(reply: str, code: str, names: Sequence[str] = ()) -> Proposal:
    """What ``reply`` proposes for the lines ``code``. ``names`` are how the file may be called."""
    text = answered(reply)
    found = changes(text)
    if isinstance(found, str):
        return Proposal(reason=found)
    if found is not None:
        if left_out := next((row for one in found if (row := _left_out(one.replace, one.search))), None):
            return Proposal(reason=f"it leaves out code ({left_out})")
        other = next((one.path for one in found if one.path is not None and not _is_one_of(one.path, names)), None)
        return Proposal(reason=f"it is about {other}") if other else Proposal(changes=found)
    answer = fences(text)
    if answer.cut:
        return Proposal(reason="its code is not whole")
    if not answer.codes:
        return Proposal(reason="it has no block of code")
    meant = _meant([one.text for one in answer.codes], code)
    if meant is None:
        return Proposal(reason="it has more than one block of code")
    if not meant.strip() and code.strip():
        return Proposal(reason="its block of code is empty")
    left_out = _left_out(meant, code)
    return Proposal(reason=f"it leaves out code ({left_out})") if left_out else Proposal(indented_as(code, meant))


def _left_out(new: str, old: str) -> str | None:
    """A line of ``new`` that stands for code that is not written again; ``old`` may have such a line itself."""
    had = set(_stripped(old))
    return next((row for row in _stripped(new) if row not in had and _STANDS_FOR.match(row)), None)


def _meant(blocks: Sequence[str], code: str) -> str | None:
    """The block that is to stand for ``code``, if it is certain: the only one, or of those that are not ``code``
    itself once more the only one that begins as it does (others show how it is used)."""
    different = list(dict.fromkeys(blocks))
    if len(different) == 1:
        return different[0]
    new = [one for one in different if _stripped(one) != _stripped(code)]
    like = [one for one in new if _stripped(one)[:1] == _stripped(code)[:1] != []]
    return like[0] if len(like) == 1 else None


def _stripped(code: str) -> list[str]:
    return [row.strip() for row in split_lines(to_lf(code)) if row.strip()]


def _is_one_of(path: str, names: Sequence[str]) -> bool:
    wanted = path.removeprefix("./")
    return any(name == wanted or name.endswith(f"/{wanted}") or wanted.endswith(f"/{name}") for name in names)


def plan(proposed: Proposal, snapshot: str, lines: Range, now: str) -> Plan:
    """The edits of the text ``now`` that do what is ``proposed`` for ``lines`` of the text ``snapshot``."""
    if proposed.changes:
        fitted = replaced(now, proposed.changes)
        if fitted.reason:
            return Plan(reason=fitted.reason)
        return _planned(now, minimal(now, fitted.text))
    assert proposed.code is not None, "what proposes nothing is not planned"
    place = rebase(snapshot, now, *lines)
    if place is None:
        return Plan(reason="the lines have changed meanwhile")
    rows = all_lines(now)
    start = sum(map(len, rows[: place[0] - 1]))
    old = "".join(rows[place[0] - 1 : place[1]])
    return _planned(now, shifted(minimal(old, proposed.code, line_end(now)), start))


def _planned(now: str, edits: Sequence[Replace]) -> Plan:
    if not edits:
        return Plan(reason="there is nothing to change")
    return Plan(now, tuple(edits), apply(now, edits))
