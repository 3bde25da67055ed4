"""What a turn has to say besides its question: files at first sight, and what has changed since. Pure.

Within a budget of tokens the most pressing is said: the file asked about, those the question names, changes of what
was told before, then what else is open. What was told and has changed more than can be said is marked, so that the
model knows that its knowledge is old.

Invariant: nothing is said twice, and what is said last stands nearest to the question: the file asked about, then the
lines pointed at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from qmlx_lsp.errors import QuestionError
from qmlx_lsp.session.event import Ask
from qmlx_lsp.session.sight import Role, Sight
from qmlx_lsp.transcript.entry import Kind
from qmlx_lsp.transcript.transcript import Draft
from qmlx_lsp.workspace import diagnostics
from qmlx_lsp.workspace.parts import Range, relevant, words
from qmlx_lsp.workspace.positions import split_lines
from qmlx_lsp.workspace.renames import Rename, common, groups, pair
from qmlx_lsp.workspace.shown import shown
from qmlx_lsp.workspace.told import (
    STALE,
    Limits,
    Telling,
    is_named,
    mention,
    moved,
    named,
    readable,
    recall,
    seen_text,
    tell,
)


@dataclass(frozen=True, slots=True)
class Gathered:
    """Context drafts in order, and what each file will have been told once they are durable. ``stale`` files were
    told before and have changed more than is said here, ``lost`` ones were told before and are gone, which is not
    said here either. ``asked`` is the file that the question is asked in."""

    drafts: Sequence[Draft]
    told: Mapping[str, str | None]
    stale: Sequence[str] = ()
    lost: Sequence[str] = ()
    asked: str | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """Tokens that all of it may take, and one file at first sight; ``changes``: files whose changes are said at most.
    ``count`` tells how many tokens a text has. ``patient``: what does not fit waits for another time, instead of
    being said to be out of date."""

    tokens: int
    file_tokens: int
    changes: int
    count: Callable[[str], int]
    patient: bool = False


@dataclass(slots=True)
class _Said:
    """What has been decided so far, the most pressing first."""

    left: int
    tellings: list[Telling] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    told: dict[str, str | None] = field(default_factory=dict)
    moved: list[Rename] = field(default_factory=list)


def choose(ask: Ask, sights: Sequence[Sight], told: Mapping[str, str], limits: Limits, budget: Budget) -> Gathered:
    """What to say of ``sights``.

    Raises:
        QuestionError: of the file asked about not one line fits.
    """
    said = _Said(budget.tokens)
    renames = {rename.new: rename for rename in renamed(sights, told)}
    lines, tellings = _renames(list(renames.values()), sights, told, limits)
    gone = {rename.old for rename in renames.values()}
    changes = 0
    for sight in sorted(sights, key=lambda s: (_rank(s, told), s.role)):
        rename, before = renames.get(sight.path), told.get(sight.path)
        if sight.path in gone or (sight.role is Role.FOUND and rename is None):
            continue
        if changes >= budget.changes and sight.role is Role.TOLD and before is not None:
            _too_much(sight, before, limits, budget, said)
            continue
        telling = tellings.get(sight.path) or _telling(ask, sight, before, limits, budget, said.left)
        if telling is None:
            continue
        changes += before is not None
        cost = budget.count(telling.text)
        unasked = sight.role not in (Role.ASKED, Role.NAMED)
        if cost > said.left or (unasked and telling.form == "whole" and cost > budget.file_tokens):
            _too_much(sight, before, limits, budget, said)
            continue
        said.left -= cost
        said.tellings.append(telling)
        said.told[telling.path] = telling.told
        if rename is not None:
            said.told[rename.old] = None
            said.moved.append(rename)
    drafts: list[Draft] = [(Kind.CONTEXT, line, None) for line in lines(said.moved)]
    drafts += [(Kind.CONTEXT, t.text, t.path) for t in reversed(said.tellings) if t.text]
    asked = next((sight.path for sight in sights if sight.role is Role.ASKED), None)
    return Gathered([*drafts, *_pointed_at(ask, sights, said, told)], said.told, said.stale, said.lost, asked)


def _rank(sight: Sight, told: Mapping[str, str]) -> int:
    """What comes first: what was asked for, then what was told before, then what is merely open."""
    return 0 if sight.role in (Role.ASKED, Role.NAMED) else 1 if sight.path in told else 2


def _telling(ask: Ask, sight: Sight, before: str | None, limits: Limits, budget: Budget, left: int) -> Telling | None:
    if sight.hidden is not None:
        return named(sight.path, before, sight.hidden, sight.size)
    asked = sight.role in (Role.ASKED, Role.NAMED)
    if before == STALE and sight.role is Role.TOLD and sight.text is not None:
        return None  # until somebody wants to know
    seen = recall(before)
    if asked and sight.text is not None and readable(sight.text, limits):
        partly = seen is not None and seen.parts is not None
        if sight.role is Role.NAMED and sight.lines and (partly or seen is None):
            return tell(sight.path, before, sight.text, limits, _within(sight))
        if partly:
            more = _relevant(ask, sight, min(budget.file_tokens, left), budget.count, fill=False)
            return tell(sight.path, before, sight.text, limits, more)
    telling = tell(sight.path, before, sight.text, limits)
    if telling is None or telling.form != "whole" or budget.count(telling.text) <= min(budget.file_tokens, left):
        return telling
    if not asked:
        return telling if before is not None else None
    # The words around the parts want some room too.
    room = min(budget.file_tokens, left) * 9 // 10
    parts = _relevant(ask, sight, room, budget.count, fill=True)
    return tell(sight.path, before, sight.text, limits, parts) if parts else telling


def _within(sight: Sight) -> list[Range]:
    """The lines pointed at that there are."""
    assert sight.text is not None
    total = max(1, len(split_lines(sight.text)))
    return [(min(first, total), min(last, total)) for first, last in sight.lines]


def _relevant(ask: Ask, sight: Sight, room: int, count: Callable[[str], int], *, fill: bool) -> list[Range]:
    assert sight.text is not None
    return relevant(sight.text, sight.lines, words(ask.text), room, count, fill=fill)


def _too_much(sight: Sight, before: str | None, limits: Limits, budget: Budget, said: _Said) -> None:
    """What has no room: said to be old if it was told and has changed, an error if it was asked for, or left for a
    later turn."""
    if sight.role in (Role.ASKED, Role.NAMED):
        raise QuestionError(
            f"{sight.path} has no room: {said.left:,} tokens are left for files in this model's context. Ask about "
            "fewer files, or begin anew with `qmlx-lsp log --new`."
        )
    if before is None or budget.patient:
        return
    if sight.text is None and sight.hidden is None:
        said.lost.append(sight.path)
        said.told[sight.path] = None
        return
    if before == STALE:
        return  # which has been said
    if sight.hidden is not None:
        changed = named(sight.path, before, sight.hidden, sight.size) is not None
    else:
        changed = sight.text is None or not readable(sight.text, limits) or seen_text(before) != seen_text(sight.text)
    if changed and not (is_named(before) and sight.hidden is not None):
        said.stale.append(sight.path)
        said.told[sight.path] = STALE


# --- renames -------------------------------------------------------------------------------------------------------


def renamed(sights: Sequence[Sight], told: Mapping[str, str]) -> list[Rename]:
    """Which files that were told and have vanished are there under another name."""
    return pair({s.path: told[s.path] for s in sights if _vanished(s, told)}, _homes(sights, told))


def _vanished(sight: Sight, told: Mapping[str, str]) -> bool:
    return sight.text is None and sight.hidden is None and recall(told.get(sight.path)) is not None


def _homes(sights: Sequence[Sight], told: Mapping[str, str]) -> dict[str, str]:
    """Texts that were not told before: what has vanished may be one of them."""
    return {s.path: s.text for s in sights if s.text is not None and s.path not in told}


def _renames(
    renames: Sequence[Rename], sights: Sequence[Sight], told: Mapping[str, str], limits: Limits
) -> tuple[Callable[[Collection[Rename]], list[str]], dict[str, Telling]]:
    """A telling for each file at its new place, and what gives the lines about those that were moved together: one
    telling may find no room, and then nothing is said of it."""
    texts = {sight.path: sight.text for sight in sights}
    together = {rename for group in groups(renames) for rename in group}
    tellings = {}
    for rename in renames:
        telling = moved(rename.old, rename.new, rename.told, texts[rename.new] or "", limits)
        if rename in together:  # the common line says it
            rest = telling.text.split("\n", 1)[1]
            telling = Telling(telling.path, telling.form, rest, telling.told)
        tellings[rename.new] = telling
    left = {path for path in told if path not in {rename.old for rename in renames}}

    def lines(said: Collection[Rename]) -> list[str]:
        moved_together = groups(said)
        alone = together - {rename for group in moved_together for rename in group}
        single = [f"File {shown(r.old)} was renamed to {shown(r.new)}.\n" for r in said if r in alone]
        return [*(common(group, left) for group in moved_together), *single]

    return lines, tellings


# --- what was pointed at -------------------------------------------------------------------------------------------


def _pointed_at(ask: Ask, sights: Sequence[Sight], said: _Said, told: Mapping[str, str]) -> list[Draft]:
    """The lines that a question is about, and what checkers say of the file; behind everything else."""
    drafts: list[Draft] = []
    for sight in sights:
        # Of a file that is known in parts, the lines that are named are among the parts.
        seen = recall(said.told.get(sight.path, told.get(sight.path)))
        if sight.text is not None and sight.role is Role.NAMED and seen is not None and seen.parts is None:
            drafts += [(Kind.CONTEXT, mention(sight.path, sight.text, *lines), sight.path) for lines in sight.lines]
    asked = next((s for s in sights if s.role is Role.ASKED and s.text is not None), None)
    if asked is not None and asked.text is not None:
        if ask.lines is not None:
            drafts.append((Kind.CONTEXT, mention(asked.path, asked.text, *ask.lines), asked.path))
        if ask.diagnostics is not None:
            drafts.append((Kind.CONTEXT, diagnostics.block(shown(asked.path), ask.diagnostics), asked.path))
    return drafts
