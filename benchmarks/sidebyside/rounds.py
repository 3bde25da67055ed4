"""One round: what somebody does with two projects in a morning, with one server, each step measured.

cold → follow-ups → the server is restarted → a reply is cancelled, ask again → the second project: its prefill is
cancelled at 90 %, ask again → the two in turns → a line early in the first one's context is edited. Texts are new in
every round and for every size, so what is cold is cold.

A step's cost is the tokens that the server states to have computed, and the client's time to the first piece of the
reply. What is loaded at a server's first request is loaded by a short chat in front of it, also after the restart:
phases that every server has are not in any figure.

Invariant: a round is the same requests for every server; only how a prefill is cut differs (see ``_cut_prefill``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.cachecheck.context import snippet
from benchmarks.cachecheck.conversation import Change, Context, Conversation, Restart, Target, Turn
from benchmarks.cachecheck.own import Kept
from benchmarks.cachecheck.progress import Point, share_done

COLD, FOLLOW_UP, CUT_REPLY, CUT_PREFILL, ALTERNATE, EDIT, RESTART = (
    "cold", "follow-up", "reply cancelled, ask again", "prefill cancelled at 90 %, ask again",
    "two projects in turns", "a line early in the context edited", "after a restart",
)  # fmt: skip
SCENARIOS = (COLD, FOLLOW_UP, RESTART, CUT_REPLY, CUT_PREFILL, ALTERNATE, EDIT)
REPLY_TOKENS = 8
CUT_SHARE = 0.9
CUT_AFTER, CUT_MOST = 16, 64
"""Pieces of a reply before it is cancelled, and the tokens that it might have had."""
SNIPPET_CHARS = 300
TURNS_EACH = 2
FIRST = "What is this file about?"
FOLLOW_UPS = ("Which name occurs in it most often?", "What would you test first?", "Which module does it need?")


@dataclass(frozen=True, slots=True)
class Step:
    """``prompt`` tokens stood before the reply, ``computed`` of them were computed; None where a server says
    nothing."""

    server: str
    model: str
    tokens: int
    round: int
    scenario: str
    prompt: int | None
    computed: int | None
    ttft_s: float | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Round:
    """``texts`` are the two projects' contexts of ``tokens``, ``number`` the round's."""

    target: Target
    model: str
    tokens: int
    number: int
    texts: tuple[Context, Context]
    note: Callable[[Step], None]
    seed: int

    def run(self) -> None:
        self._warm_up("first")
        one, two = (self._new(text) for text in self.texts)
        cold = self._ask(one, COLD, FIRST)
        read = one.progress if isinstance(one, Kept) else []
        for question in FOLLOW_UPS:
            self._ask(one, FOLLOW_UP, question)
        self.target.restart(Restart.ORDERLY)
        self._warm_up("again")
        self._ask(one, RESTART, "What does its last line do?")
        self._cut_reply(one)
        self._cut_prefill(two, cold, read)
        for _ in range(TURNS_EACH):
            self._ask(one, ALTERNATE, "Is there anything in it that can fail?")
            self._ask(two, ALTERNATE, "Which part of it is hardest to read?")
        self._note(EDIT, one.changed("What would you rename?", Change.EARLY_EDIT, max_tokens=REPLY_TOKENS))

    def _warm_up(self, name: str) -> None:
        self.target.new(self._named(name), None).turn("Hello.", max_tokens=1)

    def _new(self, text: Context) -> Conversation:
        return self.target.new(self._named(text.name), text)

    def _named(self, name: str) -> str:
        return f"{name}_{self.model}_{self.tokens}_{self.number}"

    def _ask(self, conversation: Conversation, scenario: str, question: str) -> Turn:
        return self._note(scenario, conversation.turn(question, max_tokens=REPLY_TOKENS))

    def _note(self, scenario: str, turn: Turn) -> Turn:
        step = Step(
            self.target.name, self.model, self.tokens, self.number, scenario, turn.prompt, turn.computed, turn.ttft_s
        )
        self.note(step)
        return turn

    def _cut_reply(self, conversation: Conversation) -> None:
        """What must be read then is the question alone: the snippet is in the one that was cut."""
        code = snippet(self._named("cut"), SNIPPET_CHARS, self.seed)
        conversation.turn(f"Explain line by line:\n{code}", max_tokens=CUT_MOST, cut_after=CUT_AFTER)
        self._ask(conversation, CUT_REPLY, "And in one word?")

    def _cut_prefill(self, conversation: Conversation, cold: Turn, read: Sequence[Point]) -> None:
        """Where the cold prefill just now had come in that share of its time: ours by its own progress, another
        server, which says nothing, by the clock."""
        assert cold.ttft_s is not None
        seconds = CUT_SHARE * cold.ttft_s
        if isinstance(conversation, Kept):
            conversation.turn(FIRST, max_tokens=REPLY_TOKENS, cut_prefill_share=share_done(read, seconds))
        else:
            conversation.turn(FIRST, max_tokens=REPLY_TOKENS, cut_prefill_at=seconds)
        self._ask(conversation, CUT_PREFILL, FIRST)
