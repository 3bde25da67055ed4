"""What a new epoch begins with, taken from the one before it. Pure.

An epoch ends because a model reads only so many tokens. The next one begins with the system text, a summary (or one
line that says that something is missing), the files in use as they are now, and the last turns word for word.
Nothing of the old epoch is changed; it stays in the conversation log.

Invariant (tokens are truth): a carried reply has exactly the ids that it had, at another place. Questions, which are
text, are rendered again behind what stands before them now.
Invariant: a turn is carried whole or not at all, and no later one is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from qmlx_lsp.transcript.entry import Entry, Kind
from qmlx_lsp.transcript.tokens import TokenLog
from qmlx_lsp.transcript.transcript import Draft, Transcript

SUMMARY_REQUEST = (
    "Summarise this conversation for yourself. You will go on with it and see only your summary, the current text of "
    "the files, and the last turns. Say what is wanted, what was decided and why, what has been done, what is open, "
    "and every name and fact that is still needed. Do not repeat file contents. Be brief, and write the summary only."
)
_SUMMARY = "Summary of the conversation so far:\n"
_NOTE = "Note: earlier parts of this conversation are not shown, for want of room.\n"


@dataclass(frozen=True, slots=True)
class Summary:
    """What the model wrote about the first ``position`` tokens of its log; ``digest`` is theirs."""

    position: int
    text: str
    digest: bytes = b""

    def is_of(self, log: TokenLog) -> bool:
        """Whether it speaks of how ``log`` begins."""
        return self.position <= len(log) and log.digest(self.position) == self.digest


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and the reply to it."""

    question: Entry
    reply: Entry

    @property
    def tokens(self) -> int:
        return len(self.question.ids) + len(self.reply.ids)


def turns(entries: Sequence[Entry]) -> list[Turn]:
    """The turns that can be carried, in order: those behind the last reply that followed no question by itself (but a
    tool's result, without which it says nothing). A question that was withdrawn is none."""
    found: list[Turn] = []
    question: Entry | None = None
    for entry in entries:
        if entry.kind is Kind.QUESTION:
            question = entry
        elif entry.kind is Kind.ASSISTANT:
            if question is None:
                found.clear()
            else:
                found.append(Turn(question, entry))
            question = None
    return found


def last_turns(entries: Sequence[Entry], most: int, most_tokens: int) -> list[Turn]:
    """The last turns, at most ``most`` and ``most_tokens`` together. One that is too long ends the carrying."""
    found: list[Turn] = []
    for turn in reversed(turns(entries)):
        most_tokens -= turn.tokens
        if len(found) == most or most_tokens < 0:
            break
        found.append(turn)
    return found[::-1]


def complete(summary: Summary | None, entries: Sequence[Entry], carried: Sequence[Turn]) -> bool:
    """Whether ``summary`` and the turns ``carried`` leave nothing out."""
    if summary is None:
        return False
    first = carried[0].question.start if carried else entries[-1].end
    return not any(entry.kind is Kind.ASSISTANT and summary.position <= entry.start < first for entry in entries)


def head(summary: Summary | None, entries: Sequence[Entry], carried: Sequence[Turn]) -> list[Draft]:
    """What stands for the part of ``entries`` that is not ``carried``."""
    drafts: list[Draft] = []
    if summary is not None and (text := summary.text.strip()):
        drafts.append((Kind.CONTEXT, f"{_SUMMARY}{text}\n", None))
    if not drafts or not complete(summary, entries, carried):
        drafts.append((Kind.CONTEXT, _NOTE, None))
    return drafts


def recent_paths(entries: Sequence[Entry]) -> list[str]:
    """The files that were spoken of, the latest one first."""
    return list(dict.fromkeys(e.path for e in reversed(entries) if e.kind is Kind.CONTEXT and e.path is not None))


def begin(fresh: Transcript, system: str, blocks: Sequence[Draft], carried: Sequence[Turn]) -> Transcript:
    """Say the opening into the empty ``fresh``: the system text, context ``blocks``, then the turns ``carried``."""
    assert not fresh.entries, "an epoch has one beginning"
    fresh.extend(fresh.draft([(Kind.SYSTEM, system, None), *blocks]))
    for turn in carried:
        fresh.extend(fresh.draft([(Kind.QUESTION, turn.question.text, None)]))
        fresh.extend([replace(turn.reply, start=len(fresh.log))])
    return fresh
