"""From turns to a verdict and one sentence. Pure.

The rule is one: of what the server has had before, was anything computed again? Where the client changed what it
sent, reading on from that place is right. Where the text is the same, reading it again is the bug. A server that
states nothing is judged by its time to the first token, as far as that goes.

Invariant: ``SOUND`` and ``BUG`` rest on the server's own numbers, or on a judgement that is not ``UNCLEAR``; in every
other case the verdict is ``UNKNOWN`` and the sentence says why. What a client cannot do is ``IMPOSSIBLE``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from benchmarks.cachecheck.conversation import PREFILL_CUT, Turn
from benchmarks.cachecheck.infer import EXPECTED_MIN_S, Cold, Judgement, Seen, judge
from benchmarks.cachecheck.prefix import EXACT_SLACK_TOKENS, Had, common_chars, had

KEPT_SHARE_MIN = 0.1
"""Share of a prefill that was cut half-way, by time, that must be there afterwards."""
EARLY_SHARE = 0.3
"""Where the text differs before this share of the prompt, a cold turn's time is what it must take."""


class Verdict(StrEnum):
    SOUND = "sound"
    BUG = "bug"
    UNKNOWN = "unknown"
    IMPOSSIBLE = "impossible"


class Bug(StrEnum):
    """The three bugs, each a part of the check."""

    STABILITY = "stability"
    INTERRUPT = "interrupt"
    POISON = "poison"


@dataclass(frozen=True, slots=True)
class Ruling:
    """``again`` tokens were computed although the server had them, where that is known."""

    verdict: Verdict
    sentence: str
    source: str = "unknown"
    again: int | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. ``turn`` is the one that was looked at, ``had`` what there was of its prompt."""

    bug: Bug
    scenario: str
    ruling: Ruling
    turn: Turn | None = None
    had: Had | None = None
    size: int = 0
    cold_s: float | None = None

    def as_dict(self) -> dict[str, Any]:
        evidence: dict[str, Any] = {} if self.turn is None else self.turn.as_dict()
        evidence.pop("text", None)
        if self.had is not None:
            evidence |= {"had": self.had.whole, "had_same": self.had.same, "had_how": self.had.how}
        return {
            "bug": self.bug.value, "scenario": self.scenario, "tokens": self.size,
            "verdict": self.ruling.verdict.value, "sentence": self.ruling.sentence, "again": self.ruling.again,
            "cold_ttft_s": None if self.cold_s is None else round(self.cold_s, 4),
            "evidence": evidence | {"source": self.ruling.source},
        }  # fmt: skip


def size_of(turn: Turn) -> int | None:
    """Tokens, or characters where the server does not state tokens."""
    return turn.prompt if turn.prompt is not None else None if turn.sent is None else len(turn.sent)


def continued(turn: Turn, before: Turn, cold: Sequence[Cold]) -> Ruling:
    """A conversation that goes on, the client having changed something or not."""
    there = had(turn, before)
    if there is None or turn.cached is None or turn.prompt is None:
        return _by_time(turn, before, there, judge(turn.ttft_s, size_of(turn), cold))
    cost = f"{turn.computed:,} of {turn.prompt:,} tokens computed"
    again = max(0, there.whole - turn.cached)
    if turn.cached >= there.whole - EXACT_SLACK_TOKENS:
        return Ruling(Verdict.SOUND, f"nothing was read again: {cost}", "stated", 0)
    if turn.cached >= there.same - there.slack and there.changed:
        sentence = f"the client changed what was said, so a read from there on is right: {cost}"
        return Ruling(Verdict.SOUND, sentence, "stated", again)
    if turn.cached >= there.same - there.slack:
        return Ruling(Verdict.SOUND, f"only the last reply was read again: {cost}", "stated", again)
    if there.changed:
        sentence = (
            f"the text is the same up to about token {there.same:,} and was read from token {turn.cached:,} on: "
            f"right for a state that cannot be cut and goes back to a checkpoint, a loss otherwise; {cost}"
        )
        return Ruling(Verdict.UNKNOWN, sentence, "stated", again)
    sentence = f"{there.same - turn.cached:,} tokens were read again although the text is the same: {cost}"
    return Ruling(Verdict.BUG, sentence, "stated", again)


def _by_time(turn: Turn, before: Turn, there: Had | None, seen: Judgement) -> Ruling:
    if seen.seen is Seen.UNCLEAR:
        return Ruling(Verdict.UNKNOWN, f"the server does not say what it computed, and {seen.reason}")
    if seen.seen is Seen.REUSED:
        return Ruling(Verdict.SOUND, f"most of it was reused: {seen.reason}", "inferred")
    changed = _changed_share(turn, before, there)
    if changed is None:
        sentence = f"read again although the text is the same: {seen.reason}"
        return Ruling(Verdict.BUG, sentence, "inferred")
    if changed <= EARLY_SHARE:
        sentence = f"the client changed what was said early, so a read from there on is right: {seen.reason}"
        return Ruling(Verdict.SOUND, sentence, "inferred")
    return Ruling(Verdict.UNKNOWN, f"the client changed what was said, and {seen.reason}: from where is not known")


def _changed_share(turn: Turn, before: Turn, there: Had | None) -> float | None:
    """Where the text differs, as a share of it; None when it goes on unchanged."""
    if there is not None and turn.prompt:
        return there.same / turn.prompt if there.changed else None
    if turn.sent is None or before.sent is None or turn.sent.startswith(before.sent):
        return None
    return common_chars(turn.sent, before.sent) / len(turn.sent)


def reply_cut(follow_up: Turn, cut: Turn, uncut: Ruling, cold: Sequence[Cold]) -> tuple[Ruling, Ruling]:
    """Of the turn whose reply was cut: whether the work of its prompt is kept, and that of its reply. ``uncut`` is
    the ruling on a turn behind a complete reply of that length."""
    if cut.prompt is None or follow_up.cached is None:
        seen = judge(follow_up.ttft_s, size_of(follow_up), cold)
        prompt = _by_time(follow_up, follow_up, None, seen)
        return prompt, Ruling(Verdict.UNKNOWN, "the server does not say what it computed")
    lost = max(0, cut.prompt - follow_up.cached)
    cost = f"{follow_up.computed:,} of {follow_up.prompt:,} tokens computed"
    if lost > EXACT_SLACK_TOKENS:
        prompt = Ruling(
            Verdict.BUG, f"{lost:,} tokens that stood before the cut reply were read again: {cost}", "stated", lost
        )
    else:
        prompt = Ruling(Verdict.SOUND, f"all that stood before the cut reply was kept: {cost}", "stated", 0)
    return prompt, _of_reply(follow_up, cut, uncut)


def _of_reply(follow_up: Turn, cut: Turn, uncut: Ruling) -> Ruling:
    assert cut.prompt is not None
    assert follow_up.cached is not None
    if cut.tokens_out is None or cut.tokens_out <= 2 * EXACT_SLACK_TOKENS:
        return Ruling(Verdict.UNKNOWN, f"of the cut reply {cut.tokens_out or 0} tokens are there, too few to tell")
    lost = min(cut.tokens_out, cut.prompt + cut.tokens_out - follow_up.cached)
    if lost <= EXACT_SLACK_TOKENS:
        return Ruling(Verdict.SOUND, f"the {cut.tokens_out} tokens of the cut reply were kept", "stated", 0)
    sentence = f"{lost} of the {cut.tokens_out} tokens of the cut reply were read again"
    if (uncut.again or 0) > EXACT_SLACK_TOKENS:
        return Ruling(Verdict.SOUND, f"{sentence}, as after a reply that was not cut", "stated", lost)
    return Ruling(Verdict.BUG, f"{sentence}; after a reply that was not cut they are not", "stated", lost)


def prefill_cut(cut: Turn, again: Turn, cold_turn: Turn, cold: Sequence[Cold]) -> Ruling:
    """The same request after the client hung up before its first token, against a cold turn of that size."""
    if cut.finish != PREFILL_CUT:
        return Ruling(Verdict.UNKNOWN, "the reply began before the client hung up: use more tokens")
    cold_s = cold_turn.ttft_s or 0.0
    if cold_s < EXPECTED_MIN_S:
        sentence = f"a cold turn takes {cold_s:.2f} s only, so half of it is no place to cut: use more tokens"
        return Ruling(Verdict.UNKNOWN, sentence)
    late = ""
    if again.ttft_s is not None:
        late = f"; first token after {again.ttft_s / cold_s:.2f} of a cold turn's time"
    if again.cached is None or again.prompt is None:
        seen = judge(again.ttft_s, size_of(again), cold)
        if seen.seen is Seen.AGAIN:
            sentence = f"nothing of the cut prefill was kept, or it ran on and was waited for: {seen.reason}"
            return Ruling(Verdict.UNKNOWN, sentence)
        return _by_time(again, again, None, seen)
    kept = again.cached - (cold_turn.cached or 0)
    if kept >= KEPT_SHARE_MIN * again.prompt:
        sentence = f"{kept:,} of {again.prompt:,} tokens were kept{late}"
        return Ruling(Verdict.SOUND, sentence, "stated")
    sentence = f"nothing of the cut prefill was kept: {again.computed:,} of {again.prompt:,} tokens computed{late}"
    return Ruling(Verdict.BUG, sentence, "stated", again.computed)


def overall(findings: Iterable[Finding]) -> dict[Bug, Ruling]:
    """A verdict for each bug that was looked for: a bug in any scenario is one, and all unknown is unknown."""
    ruled: dict[Bug, Ruling] = {}
    by_bug: dict[Bug, list[Finding]] = {}
    for finding in findings:
        by_bug.setdefault(finding.bug, []).append(finding)
    for bug, found in by_bug.items():
        groups = {verdict: [one for one in found if one.ruling.verdict is verdict] for verdict in Verdict}
        counts = ", ".join(f"{len(group)} {verdict.value}" for verdict, group in groups.items() if group)
        if groups[Verdict.BUG]:
            verdict, names = Verdict.BUG, _names(groups[Verdict.BUG])
            ruled[bug] = Ruling(verdict, f"{names} ({counts})")
        else:
            verdict = Verdict.SOUND if groups[Verdict.SOUND] else Verdict.UNKNOWN
            ruled[bug] = Ruling(verdict, counts)
    return ruled


def _names(findings: Sequence[Finding]) -> str:
    return "; ".join(dict.fromkeys(finding.scenario for finding in findings))
