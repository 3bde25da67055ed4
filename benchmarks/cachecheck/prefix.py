"""How much of a prompt the server has had before: what a perfect prefix cache would not compute again. Pure.

The tokenizer of a foreign server is not known. Where a conversation simply goes on, no tokenizer is needed: what was
there before is the prompt and the reply of the turn before, in the server's own count. Where the client has changed
something, the longest common beginning of what was sent is counted in characters and scaled by the server's own ratio
of tokens to characters.

Invariant: ``same`` <= ``whole`` <= ``prompt`` of the turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from benchmarks.cachecheck.conversation import Turn

EXACT_SLACK_TOKENS = 8
"""What a count may differ by where it is the server's own: joins, ends of turns, a last token that is always read."""
SCALED_SLACK_SHARE = 0.05
SCALED_SLACK_TOKENS = 32
"""The same where tokens were scaled from characters: the larger of the two."""


@dataclass(frozen=True, slots=True)
class Had:
    """Tokens of a prompt that the server had before: ``whole`` if nothing was changed, the reply of the turn before
    included; ``same`` up to the first place where the text differs, or without that reply, whose text has gone
    through the client. ``slack`` tokens less are no difference."""

    whole: int
    same: int
    changed: bool
    slack: int
    how: str


def had(turn: Turn, before: Turn) -> Had | None:
    """Against ``before``, the turn that left most in the server; None where prompts are not stated."""
    if turn.prompt is None or before.prompt is None:
        return None
    whole = min(turn.prompt, before.prompt + (before.tokens_out or 0))
    if turn.sent is None or before.sent is None:
        return Had(whole, whole, False, EXACT_SLACK_TOKENS, "stated: prompt and reply of the turn before")
    if turn.sent == before.sent:
        return Had(turn.prompt, turn.prompt, False, EXACT_SLACK_TOKENS, "stated: the same prompt")
    if turn.sent.startswith(before.sent):
        same = min(turn.prompt, before.prompt)
        return Had(whole, same, False, EXACT_SLACK_TOKENS, "stated: prompt of the turn before")
    common = common_chars(turn.sent, before.sent)
    scaled = round(before.prompt * common / len(before.sent))
    slack = max(SCALED_SLACK_TOKENS, round(SCALED_SLACK_SHARE * turn.prompt))
    how = f"scaled: {common:,} of {len(before.sent):,} characters sent are the same"
    return Had(whole, min(scaled, whole), True, slack, how)


def common_chars(one: str, other: str) -> int:
    """Characters at the beginning that two texts share."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
