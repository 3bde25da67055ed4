"""One epoch of a conversation: its entries, their ids in one log, and how the log ends.

Entries are *drafted* (rendered, with their place in the log) and then *extended* once they are durable, so that a
failed write leaves the transcript as it was.

Invariant: entries tile the log. The ids of entry ``k`` are ``log.ids(entry.start, entry.end)``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from qmlx_lsp.transcript.entry import Entry, Finish, Kind
from qmlx_lsp.transcript.suffix import Place, Renderer, Tail
from qmlx_lsp.transcript.tokens import TokenLog

# What is to be said, before it has ids: kind, text, and the path a context entry is about.
Draft = tuple[Kind, str, str | None]


class Transcript:
    """Append-only. ``entries`` may come from disk; they are trusted to tile the log."""

    def __init__(self, renderer: Renderer, entries: Iterable[Entry] = ()) -> None:
        self._renderer = renderer
        self._entries: list[Entry] = []
        self.log = TokenLog()
        self._tail = Tail()
        self.extend(entries)

    def __repr__(self) -> str:
        return f"<Transcript {len(self._entries)} entries, {len(self.log)} tokens, {self._tail.place.name}>"

    @property
    def entries(self) -> Sequence[Entry]:
        return tuple(self._entries)

    @property
    def tail(self) -> Tail:
        return self._tail

    def tail_at(self, position: int) -> Tail | None:
        """How the log ended at ``position``; None where it cannot be gone on from: inside a reply, or inside fixed
        parts of the template."""
        at = bisect_right(self._entries, position, key=lambda entry: entry.start) - 1
        if at < 0 or position > len(self.log):
            return Tail() if position == 0 else None
        entry = self._entries[at]
        if position == entry.start:
            return Tail() if at == 0 else self._renderer.after(Tail(), self._entries[at - 1])
        if position == entry.end:
            return self._renderer.after(Tail(), entry)
        rest = entry.ids[position - entry.start :]
        inside = entry.kind is Kind.CONTEXT and entry.tool is None
        return Tail(Place.OPEN) if inside and self._renderer.codec.control_ids.isdisjoint(rest) else None

    def ends_unanswered_with(self, drafts: Sequence[Draft]) -> bool:
        """Whether ``drafts`` are the last things said, the question at their end without a reply."""
        last = [(entry.kind, entry.text, entry.path) for entry in self._entries[-len(drafts) :]]
        return self._tail.place is Place.ASKED and last == list(drafts)

    def draft(self, drafts: Iterable[Draft]) -> list[Entry]:
        """The entries that saying ``drafts`` would append, in order. Changes nothing."""
        entries, tail, start = [], self._tail, len(self.log)
        for kind, text, path in drafts:
            entry = Entry(kind, text, tuple(self._renderer.suffix(tail, kind, text)), start, path=path)
            entries.append(entry)
            tail, start = self._renderer.after(tail, entry), entry.end
        return entries

    def result(self, tool: str, text: str) -> Entry:
        """The entry for what ``tool`` has returned to a call in the last reply. Changes nothing.

        Raises:
            ValueError: the log does not end with a reply that could have called it.
        """
        ids = tuple(self._renderer.result(self._tail, tool, text))
        return Entry(Kind.CONTEXT, text, ids, len(self.log), tool=tool)

    def reply_header(self, drafted: Sequence[Entry] = ()) -> list[int]:
        """Ids that open a reply behind what was said and, if they were said too, the entries ``drafted``."""
        tail = self._tail
        for entry in drafted:
            tail = self._renderer.after(tail, entry)
        return self._renderer.reply_header(tail)

    def reply(self, header: Sequence[int], generated: Sequence[int], finish: Finish, text: str) -> Entry:
        """The entry for a reply of at least one generated id. Changes nothing."""
        assert generated or finish is Finish.OPEN, "a reply of no tokens leaves no entry"
        return Entry(Kind.ASSISTANT, text, (*header, *generated), len(self.log), finish)

    def extend(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            assert entry.start == len(self.log), f"entry at {entry.start} does not tile a log of {len(self.log)}"
            self.log.extend(entry.ids)
            self._entries.append(entry)
            self._tail = self._renderer.after(self._tail, entry)
