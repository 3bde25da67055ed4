"""One run against one target: what all scenarios need, and the record of every turn.

A run begins with two cold turns: a small one, from which the ratio of tokens to characters is learnt, and the
control, a conversation of the wanted size that simply goes on. If not even that reuses anything, the other scenarios
have nothing to lose, and say so.

Invariant: every request's figures are in ``turns``, in the order in which they were sent, those of no verdict too.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.cachecheck import prefix, verdict
from benchmarks.cachecheck.context import context
from benchmarks.cachecheck.conversation import CheckError, Conversation, Target, Turn
from benchmarks.cachecheck.infer import Cold
from benchmarks.cachecheck.verdict import Bug, Finding, Ruling, Verdict

SAMPLE_CHARS = 1_500
"""Characters of the first, small context."""
CHARS_PER_TOKEN = 3.4
"""Of code, where the server does not state tokens."""
COLD_SHARE_MAX = 0.5
"""Share of a cold turn's prompt that may be cached: the system text, and no more of the context."""
FIRST = "What is this file about?"
FOLLOW_UPS = (
    "Which name occurs in it most often?",
    "Is there anything in it that can fail?",
    "What would you test first?",
    "Which part of it is hardest to read?",
    "What does its last line do?",
    "Which module does it need?",
    "What would you rename?",
    "How long is it?",
)


@dataclass(frozen=True)
class Options:
    """``tokens`` of a long context, ``chats`` short unrelated ones, tokens of replies, of one that is cut, and
    conversations that alternate."""

    tokens: int = 1_000
    chats: int = 24
    seed: int = 20_261_130
    max_tokens: int = 8
    cut_after: int = 32
    long_ones: int = 3


@dataclass
class Run:
    """``tell`` gets lines of progress."""

    target: Target
    options: Options
    tell: Callable[[str], None] = lambda _line: None
    sleep: Callable[[float], None] = time.sleep
    cold: list[Cold] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    turns: list[dict[str, Any]] = field(default_factory=list)
    _chars_per_token: float = CHARS_PER_TOKEN
    _long: list[Turn] = field(default_factory=list)
    _asked: int = 0

    def begin(self, scenario: str, name: str, *, tools: bool = False) -> tuple[Conversation, Turn]:
        """A conversation about a context that the server has never seen, and its first, cold turn. Raises
        Impossible."""
        conversation = self.new(name, tools=tools)
        turn = self.ask(conversation, scenario, "cold", FIRST)
        if not tools:  # tools are the same in every run, so that a server may know them
            self._note_cold(turn)
            self._long.append(turn)
        return conversation, turn

    def new(self, name: str, *, tools: bool = False) -> Conversation:
        """The same, not begun."""
        chars = round(self.options.tokens * self._chars_per_token)
        name = f"{name}_{self.options.tokens}"
        return self.target.new(name, context(name, chars, self.options.seed), tools=tools)

    def learn(self) -> None:
        """The ratio of tokens to characters, from a small cold turn. What is loaded at the first request is loaded
        by one without a context."""
        name = f"sample_{self.options.tokens}"
        bare = self.ask(self.target.new(f"first_{self.options.tokens}", None), "sample", "no context", FIRST)
        sample = context(name, SAMPLE_CHARS, self.options.seed)
        turn = self.ask(self.target.new(name, sample), "sample", "cold", FIRST)
        self._note_cold(turn)
        if turn.prompt and bare.prompt and turn.prompt > bare.prompt:
            self._chars_per_token = len(sample.text) / (turn.prompt - bare.prompt)

    def _note_cold(self, turn: Turn) -> None:
        if turn.prompt is not None and (turn.cached or 0) > COLD_SHARE_MAX * turn.prompt:
            raise CheckError(
                f"The server knows a context that should be new to it ({turn.cached} of {turn.prompt} tokens were "
                "cached): it was checked before with this seed. Give another --seed."
            )
        size = turn.computed or verdict.size_of(turn)
        if size and turn.ttft_s:
            self.cold.append(Cold(size, turn.ttft_s))

    @property
    def cold_turn(self) -> Turn | None:
        """A cold turn with a long context: the one of median time so far."""
        timed = [(turn.ttft_s, number) for number, turn in enumerate(self._long) if turn.ttft_s is not None]
        return self._long[statistics.median_low(timed)[1]] if timed else None

    @property
    def cold_s(self) -> float | None:
        """Its seconds to the first token."""
        turn = self.cold_turn
        return None if turn is None else turn.ttft_s

    def ask(
        self, conversation: Conversation, scenario: str, step: str, question: str | None = None, *,
        max_tokens: int | None = None, cut_after: int | None = None, cut_prefill_at: float | None = None,
    ) -> Turn:  # fmt: skip
        """A turn, recorded. Without a question one that has its turn."""
        turn = conversation.turn(
            question or self.question(), max_tokens=max_tokens or self.options.max_tokens, cut_after=cut_after,
            cut_prefill_at=cut_prefill_at,
        )  # fmt: skip
        return self.note(scenario, step, turn)

    def question(self) -> str:
        self._asked += 1
        return FOLLOW_UPS[self._asked % len(FOLLOW_UPS)]

    def note(self, scenario: str, step: str, turn: Turn) -> Turn:
        self.turns.append({"tokens": self.options.tokens, "scenario": scenario, "step": step, **turn.as_dict()})
        cost = "computed unknown" if turn.computed is None else f"{turn.computed:,} of {turn.prompt:,} computed"
        first = "no first token" if turn.ttft_s is None else f"first token {turn.ttft_s:.2f} s"
        self.tell(f"  {scenario}: {step}: {cost}, {first}")
        return turn

    def found(
        self, bug: Bug, scenario: str, ruling: Ruling, turn: Turn | None = None, before: Turn | None = None
    ) -> None:
        there = None if turn is None or before is None else prefix.had(turn, before)
        self.findings.append(Finding(bug, scenario, ruling, turn, there, self.options.tokens, self.cold_s))
        self.tell(f"  {scenario}: {ruling.verdict.value}: {ruling.sentence}")

    def continued(self, turn: Turn, before: Turn) -> Ruling:
        return verdict.continued(turn, before, self.cold)


@dataclass(frozen=True)
class Control:
    """A conversation of the wanted size that simply went on: ``ruling`` says whether that was cheap."""

    conversation: Conversation
    last: Turn
    ruling: Ruling

    def unless_broken(self, ruling: Ruling) -> Ruling:
        """``ruling``, or why it means nothing."""
        if self.ruling.verdict is Verdict.SOUND or ruling.verdict in (Verdict.IMPOSSIBLE, Verdict.UNKNOWN):
            return ruling
        sentence = "even a conversation that simply goes on is read again"
        if self.ruling.verdict is Verdict.UNKNOWN:
            sentence = "whether a conversation that simply goes on is reused is not known"
        return Ruling(Verdict.UNKNOWN, f"{sentence}, so this tells nothing ({ruling.sentence})", ruling.source)


def control(run: Run) -> Control:
    """Cold, then a follow-up. Whatever else is looked for, this is part of the report."""
    scenario = "conversation goes on"
    run.learn()
    conversation, cold = run.begin(scenario, "control")
    last = run.ask(conversation, scenario, "follow-up")
    ruling = run.continued(last, cold)
    run.found(Bug.STABILITY, scenario, ruling, last, cold)
    return Control(conversation, last, ruling)
