"""What a reply is in the middle of where it ends: its thinking, a tool's call, or nothing.

Read from its beginning, for marks within marks count for nothing: a call that is thought about is none, and what
stands in a call's arguments opens no thinking.

Invariant: only the end mark of what is open closes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum, auto

from qmlx_lsp.transcript.encoder import Codec

Mark = tuple[int, ...]


class Within(Enum):
    """See the module."""

    NOTHING = auto()
    THOUGHT = auto()
    CALL = auto()


def within(codec: Codec, ids: Sequence[int], think: tuple[Mark, Mark], call: tuple[Mark, Mark]) -> Within:
    """Where ``ids`` (a reply, its header included) end. A pair of marks of which one is empty is not looked for."""
    pairs = {kind: pair for kind, pair in ((Within.THOUGHT, think), (Within.CALL, call)) if all(pair)}
    marks = [mark for pair in pairs.values() for mark in pair]
    plain = any(codec.control_ids.isdisjoint(mark) for mark in marks)  # plain text has many spellings
    state = Within.NOTHING
    for found in _as_text(codec, ids, marks) if plain else _as_ids(ids, marks):
        if state is Within.NOTHING:
            state = next((kind for kind, (start, _) in pairs.items() if start == found), state)
        elif found == pairs[state][1]:
            state = Within.NOTHING
    return state


def _as_ids(ids: Sequence[int], marks: Sequence[Mark]) -> Iterator[Mark]:
    """The marks in ``ids``, in order."""
    firsts = {mark[0] for mark in marks}
    known = tuple(ids)
    for at, token in enumerate(known):
        if token in firsts:
            yield from (mark for mark in marks if known[at : at + len(mark)] == mark)


def _as_text(codec: Codec, ids: Sequence[int], marks: Sequence[Mark]) -> Iterator[Mark]:
    texts = {codec.decode(mark).strip(): mark for mark in marks}
    longest_first = sorted(texts, key=len, reverse=True)
    for found in re.finditer("|".join(map(re.escape, longest_first)), codec.decode(ids)):
        yield texts[found.group()]
