"""How the log ends, and what must be appended to say the next thing. Pure.

``suffix(tail, kind, text)`` depends on the log's tail and on the new entry alone, so what was appended before is
never touched (prefix stability).

The rules for a reply's end: the model samples the end token only; whatever the template writes after it belongs to
the head of the next entry. A reply that was cut off gets its end token there as well; one that was cut off while
thinking, in a tool's call or in the head of a message is closed first. Nothing is ever left half open: a question
that was withdrawn before a reply began stays a question, and the next entry says so in one line.

Invariant: closing a reply adds ids behind it and changes none of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from qmlx_lsp.transcript.channels import Tags
from qmlx_lsp.transcript.encoder import Codec
from qmlx_lsp.transcript.entry import Entry, Finish, Kind
from qmlx_lsp.transcript.fragments import Fragments
from qmlx_lsp.transcript.results import named
from qmlx_lsp.transcript.showing import THOUGHT_BEGIN, THOUGHT_END, Shown
from qmlx_lsp.transcript.within import Within, within

WITHDRAWN = "(The question above was withdrawn before it was answered.)\n"
CUT_CALL = "(The tool call above was cut off and has not been run.)\n"


class Place(Enum):
    """Where the log ends."""

    START = auto()  # nothing has been said
    OPEN = auto()  # inside a user turn, at the beginning of a line
    ASKED = auto()  # inside a user turn, right behind a question
    REPLIED = auto()  # behind generated ids
    TOLD = auto()  # behind a tool's result, for the model to go on from


@dataclass(frozen=True, slots=True)
class Tail:
    """How the log ends. ``reply``: the last reply's ids, its header included, when the log ends with it; ``cut``:
    something else than the model ended it."""

    place: Place = Place.START
    reply: Sequence[int] = ()
    cut: bool = False


class Renderer:
    """Renders entries for one model: its fragments and its codec.

    ``opening``, for a template whose opening names the day, gives ``system_before`` and ``system_after`` of today; it
    is asked when a system entry is rendered, once in the life of a log.
    """

    def __init__(
        self,
        fragments: Fragments,
        codec: Codec,
        eos_ids: frozenset[int],
        opening: Callable[[], tuple[Sequence[int], Sequence[int]]] | None = None,
    ) -> None:
        self.fragments = fragments
        self.codec = codec
        self._eos_ids = eos_ids
        self._opening = opening or (lambda: (fragments.system_before, fragments.system_after))

    @property
    def spare_ids(self) -> frozenset[int]:
        """Ids at which the model stops and which its template never writes behind a reply (``<|return|>`` of gpt-oss,
        ``<|endoftext|>`` of Qwen): models are not trained to read them, so they had better not enter the log."""
        return self._eos_ids.difference(self.fragments.after_reply)

    def suffix(self, tail: Tail, kind: Kind, text: str) -> list[int]:
        """Ids to append for an entry of ``kind`` with ``text``. Replies are not rendered: see ``reply_header``.

        Raises:
            ValueError: this kind cannot follow here.
        """
        if kind is Kind.SYSTEM:
            if tail.place is not Place.START:
                raise ValueError("the system entry stands first, once")
            before, after = self._opening()
            return [*before, *self.codec.encode_data(text), *after]
        if kind is Kind.ASSISTANT or tail.place is Place.START:
            raise ValueError(f"a {kind} entry cannot be rendered behind {tail.place.name}")
        if kind is Kind.CONTEXT and (text[:1].isspace() or not text.endswith("\n")):
            raise ValueError("a context block begins with its header and ends with one line break")
        if tail.place is Place.REPLIED:
            notice = CUT_CALL if self._cut_in_call(tail) else ""
            return [*self._closing(tail, self.fragments.after_reply), *self.codec.encode_data(notice + text)]
        if tail.place is Place.TOLD and self.fragments.results is not None:
            return [*named(self.codec, self.fragments.results.question, ""), *self.codec.encode_data(text)]
        if tail.place is Place.ASKED:
            return self.codec.encode_data(f"\n\n{WITHDRAWN}{text}")
        return self.codec.encode_data(text)

    def result(self, tail: Tail, tool: str, text: str) -> list[int]:
        """Ids to append for what ``tool`` has returned to a call in the reply that the log ends with, or to another
        call of the same reply.

        Raises:
            ValueError: the log does not end with a reply that could have called it.
        """
        parts = self.fragments.results
        if tail.place not in (Place.REPLIED, Place.TOLD) or self._cut_in_call(tail):
            raise ValueError(f"nothing has called {tool} at {tail.place.name}")
        if parts is None:
            after = self._closing(tail, self.fragments.after_reply) if tail.place is Place.REPLIED else []
            return [*after, *self.codec.encode_data(f"Result of {tool}:\n{text.removesuffix(chr(10))}\n")]
        before = named(self.codec, parts.first if tail.place is Place.REPLIED else parts.next, tool)
        if tail.place is Place.REPLIED:
            before = list(self._closing(tail, before))
        return [*before, *parts.encode(self.codec, text)]

    def reply_header(self, tail: Tail) -> list[int]:
        """Ids that close the user's turn and open the reply. Raises ValueError when nothing was asked."""
        if tail.place is Place.TOLD and self.fragments.results is not None:
            return named(self.codec, self.fragments.results.reply, "")
        if tail.place not in (Place.ASKED, Place.TOLD):
            raise ValueError("a reply needs a question")
        return list(self.fragments.prompt)

    def answer_head(self, tail: Tail) -> list[int]:
        """As ``reply_header``, and on to where the text of the answer begins: no thoughts, no heads to write."""
        header, parts = self.reply_header(tail), self.fragments
        if parts.channels is not None:
            return [*header, *parts.channels.answering(self.codec, header)]
        return [*header, *(parts.close_thinking if self._within(header) is Within.THOUGHT else ())]

    def after(self, tail: Tail, entry: Entry) -> Tail:
        """The tail behind ``entry``."""
        if entry.kind is Kind.ASSISTANT:
            return Tail(Place.REPLIED, entry.ids, entry.finish is not Finish.COMPLETE)
        if entry.tool is not None:
            return Tail(Place.TOLD)
        return Tail(Place.ASKED if entry.kind is Kind.QUESTION else Place.OPEN)

    def shown(self, header: Sequence[int]) -> Shown:
        """What a person sees of a reply that is to be fed to it, behind its ``header``."""
        parts, begins = self.fragments, ""
        if isinstance(parts.channels, Tags) and parts.channels.inside(header, "think"):
            begins = THOUGHT_BEGIN
        elif self._within(header) is Within.THOUGHT:
            begins = self.codec.decode(parts.think_start) + "\n"
        return Shown(self.codec, self._eos_ids, parts.channels, begins)

    def answer(self, header: Sequence[int], generated: Sequence[int]) -> str:
        """The text of a reply less its thinking and white space around it; empty when it ended while thinking."""
        parts = self.fragments
        if self._within([*header, *generated]) is Within.THOUGHT:
            return ""
        shown = self.shown(header)
        text = "".join(map(shown.add, generated)) + shown.finish()
        thought = THOUGHT_END if parts.channels is not None else self.codec.decode(parts.think_end)
        return (text.rpartition(thought.strip())[2] if thought else text).strip()

    # --- the end of a reply ----------------------------------------------------------------------------------------

    def _closing(self, tail: Tail, after: Sequence[int]) -> Sequence[int]:
        """What ends the reply and opens what follows it (``after``), less what the model has said itself."""
        reply = tail.reply
        if reply[-1] in self._eos_ids and reply[-1] in after:
            return after[after.index(reply[-1]) + 1 :]
        parts = self.fragments
        if parts.channels is not None:
            closed = parts.channels.closing(reply, after)
            if closed is not None or isinstance(parts.channels, Tags):
                return closed or after
        if said := self._said(reply, after):
            return after[said:]
        return [*self._end_of(tail), *after]

    def _end_of(self, tail: Tail) -> Sequence[int]:
        """What ends the thinking or the call that the reply is in the middle of."""
        parts = self.fragments
        match self._within(tail.reply):
            case Within.CALL if tail.cut:
                return parts.call_end
            case Within.THOUGHT:
                at_line = self.codec.token_bytes(tail.reply[-1]).endswith(b"\n")
                return parts.close_thinking_line if at_line else parts.close_thinking
        return ()

    def _said(self, reply: Sequence[int], after: Sequence[int]) -> int:
        """How many ids of ``after`` the reply ends with, a control token among them."""
        for count in range(min(len(reply), len(after)), 0, -1):
            begun = after[:count]
            if tuple(reply[-count:]) == tuple(begun) and not self.codec.control_ids.isdisjoint(begun):
                return count
        return 0

    def _cut_in_call(self, tail: Tail) -> bool:
        return tail.cut and self._within(tail.reply) is Within.CALL

    def _within(self, reply: Sequence[int]) -> Within:
        parts = self.fragments
        think, call = (parts.think_start, parts.think_end), (parts.call_start, parts.call_end)
        return within(self.codec, reply, think, call)
