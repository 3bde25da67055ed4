"""How the log ends, and what must be appended to say the next thing. Pure.

``suffix(tail, kind, text)`` depends on the log's tail and on the new entry alone, so what was appended before is
never touched (prefix stability).

The rules for a reply's end: the model samples the end token only; whatever the template writes after it belongs to
the head of the next entry. A reply that was cut off gets its end token there as well; one that was cut off while
thinking is closed first. Nothing is ever left half open: a question that was withdrawn before a reply began stays a
question, and the next entry says so in one line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from qmlx_lsp.transcript.encoder import Codec
from qmlx_lsp.transcript.entry import Entry, Kind
from qmlx_lsp.transcript.fragments import Fragments

WITHDRAWN = "(The question above was withdrawn before it was answered.)\n"


class Place(Enum):
    """Where the log ends."""

    START = auto()  # nothing has been said
    OPEN = auto()  # inside a user turn, at the beginning of a line
    ASKED = auto()  # inside a user turn, right behind a question
    REPLIED = auto()  # behind generated ids


@dataclass(frozen=True, slots=True)
class Tail:
    """How the log ends. ``last`` is the last generated id and ``thinking`` whether the reply ended inside a
    thinking block; both matter behind a reply only."""

    place: Place = Place.START
    last: int | None = None
    thinking: bool = False


class Renderer:
    """Renders entries for one model: its fragments and its codec."""

    def __init__(self, fragments: Fragments, codec: Codec, eos_ids: frozenset[int]) -> None:
        self.fragments = fragments
        self.codec = codec
        self._eos_ids = eos_ids

    def suffix(self, tail: Tail, kind: Kind, text: str) -> list[int]:
        """Ids to append for an entry of ``kind`` with ``text``. Replies are not rendered: see ``reply_header``.

        Raises:
            ValueError: this kind cannot follow here.
        """
        if kind is Kind.SYSTEM:
            if tail.place is not Place.START:
                raise ValueError("the system entry stands first, once")
            parts = self.fragments
            return [*parts.system_before, *self.codec.encode_data(text), *parts.system_after]
        if kind is Kind.ASSISTANT or tail.place is Place.START:
            raise ValueError(f"a {kind} entry cannot be rendered behind {tail.place.name}")
        if kind is Kind.CONTEXT and (text[:1].isspace() or not text.endswith("\n")):
            raise ValueError("a context block begins with its header and ends with one line break")
        if tail.place is Place.REPLIED:
            return [*self._closing(tail), *self.codec.encode_data(text)]
        if tail.place is Place.ASKED:
            return self.codec.encode_data(f"\n\n{WITHDRAWN}{text}")
        return self.codec.encode_data(text)

    def reply_header(self, tail: Tail) -> list[int]:
        """Ids that close the user's turn and open the reply. Raises ValueError when nothing was asked."""
        if tail.place is not Place.ASKED:
            raise ValueError("a reply needs a question")
        return list(self.fragments.prompt)

    def after(self, tail: Tail, entry: Entry) -> Tail:
        """The tail behind ``entry``."""
        if entry.kind is Kind.ASSISTANT:
            return Tail(Place.REPLIED, entry.ids[-1], self._ends_thinking(entry.ids))
        return replace(Tail(), place=Place.ASKED if entry.kind is Kind.QUESTION else Place.OPEN)

    def _closing(self, tail: Tail) -> Sequence[int]:
        """What ends the reply and opens the user's turn, less what the model has said itself."""
        after = self.fragments.after_reply
        if tail.last in self._eos_ids and tail.last in after:
            return after[after.index(tail.last) + 1 :]
        if tail.thinking:
            at_line = tail.last is not None and self.codec.token_bytes(tail.last).endswith(b"\n")
            close = self.fragments.close_thinking_line if at_line else self.fragments.close_thinking
            return (*close, *after)
        return after

    def _ends_thinking(self, ids: Sequence[int]) -> bool:
        start, end = self.fragments.think_start, self.fragments.think_end
        return bool(start) and bool(end) and _rfind(ids, start) > _rfind(ids, end)


def _rfind(ids: Sequence[int], wanted: Sequence[int]) -> int:
    for at in range(len(ids) - len(wanted), -1, -1):
        if tuple(ids[at : at + len(wanted)]) == tuple(wanted):
            return at
    return -1
