"""Generating several ids a pass where the reply copies a text: draft, verify, keep what was right. Knows no model.

One pass reads the id that is known and a proposal of the ``Drafter`` behind it, and the model chooses an id behind
each of these rows. As long as what it chose is what was proposed, the proposal is the reply; the first id that
differs is the next one known. So every id of the reply is the one that the model chose behind exactly the ids before
it, as without proposals; only the rows of a pass differ in number, and with them the rounding.

Behind a pass that was right in part, caches that consist of rows are cut. Others (recurrent states, windows) go back
to the mark before the pass, and what was right stays *unread*: it rides in the next pass, so that nothing is read
twice alone. Where the drafter rests, passes are plain and queued ahead, as without proposals.

It must never run over the end: a proposal is never longer than what is left of ``max_tokens``, so that whoever keeps
that within the model's context keeps the rows of every pass within it.

Invariant: at every yield ``reader.position`` is how many ids the caches have really read. That may be *less* than
what was yielded (ids are unread) or *more* (the pass was right, and its ids are handed out one by one).
Invariant: between two yields no cache is held but by marks: offsets, and references to arrays that are replaced and
never changed. Whoever takes the state away meanwhile and puts the very same back, disturbs nothing.
Invariant: once the iterator is closed or has ended, the caches have read all that was yielded and nothing more; what
is unread is read in one more pass. After an error in a pass the caller goes back to a mark of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Protocol, TypeVar

from qmlx_lsp.engine.draft import RUN_MAX, Drafter

Ahead = TypeVar("Ahead")  # an id that a queued pass will choose, as the backend holds it
# Ids that may be unread; then a pass goes without a proposal, so that all of them are read.
UNREAD_MAX = 32


class Reader(Protocol[Ahead]):
    """The caches of one state, and the passes over them."""

    cuttable: bool  # whether the caches are nothing but rows

    @property
    def position(self) -> int:
        """Ids that the caches have read; grows as a pass is queued."""

    def chosen(self, ids: Sequence[int], count: int) -> list[int]:
        """A pass over ``ids``; what the model chooses behind each of the last ``count`` of them."""

    def used(self, count: int) -> None:
        """Of the last ``chosen`` only the first ``count`` were used: draws of others are taken back."""

    def queue(self, ids: Sequence[int]) -> Ahead:
        """A pass over ``ids`` is queued; the id that it will choose behind the last of them."""

    def queue_behind(self, ahead: Ahead) -> Ahead:
        """A pass over that id is queued."""

    def value(self, ahead: Ahead) -> int:
        """The id itself, waited for."""

    def mark(self) -> Any: ...

    def rewind(self, mark: Any) -> None:
        """Back to ``mark``, which stays good; ``position`` goes back too."""

    def cut(self, position: int) -> None:
        """Forget the rows behind ``position``; only where ``cuttable``."""


def decode(
    reader: Reader[Any], ids: Sequence[int], max_tokens: int, spare: frozenset[int], drafter: Drafter
) -> Generator[int, None, None]:
    """``Backend.decode`` with proposals of ``drafter``: feed ``ids``, then yield up to ``max_tokens`` ids."""
    run = _Run(reader, max_tokens, spare, drafter)
    try:
        yield from run.tokens(ids)
    except GeneratorExit:
        run.settle()
        raise
    run.settle()


class _Run:
    """One reply while it grows. ``end`` is the position behind what was yielded; ``unread`` was yielded and stands
    behind ``base``, a mark, where the caches are or can go back to."""

    def __init__(self, reader: Reader[Any], left: int, spare: frozenset[int], drafter: Drafter) -> None:
        self.reader = reader
        self.left = left
        self.spare = spare
        self.drafter = drafter
        self.tail: list[int] = []
        self.end = 0
        self.base: Any = None
        self.unread: list[int] = []

    def tokens(self, ids: Sequence[int]) -> Generator[int, None, None]:
        [known] = self.reader.chosen(ids, 1)
        self.end = self.reader.position
        following: int | None = known
        while following is not None and self.left:
            step = self._plain if self.drafter.resting else self._verified
            following = yield from step(following)

    def settle(self) -> None:
        """Make the caches end where the yielded ids end."""
        reader = self.reader
        if reader.position == self.end:
            return
        if reader.cuttable:
            reader.cut(self.end)
        else:
            reader.rewind(self.base)
            reader.queue(self.unread)

    def _handed_out(self, token: int) -> int:
        """What is known of ``token`` as soon as it is yielded."""
        self.left -= 1
        self.end += 1
        self.tail = [*self.tail[1 - RUN_MAX :], token]
        return token

    def _verified(self, known: int) -> Generator[int, None, int | None]:
        """One pass over what is unread, ``known`` and a proposal. Returns the id known next, None at the end."""
        if known in self.spare:
            return None
        reader, before = self.reader, list(self.unread)
        room = self.left - 1 if len(before) < UNREAD_MAX else 0
        proposed = self.drafter.propose([*self.tail, known][-RUN_MAX:], room) if room else []
        if not before:
            self.base = reader.mark() if proposed and not reader.cuttable else None
        chosen = reader.chosen([*before, known, *proposed], 1 + len(proposed))
        right = self._right(proposed, chosen)
        reader.used(1 + right)
        if room:
            self.drafter.judged(right)
        whole = right == len(proposed)
        if not whole and reader.cuttable:
            reader.cut(self.end + 1 + right)
        elif not whole:
            reader.rewind(self.base)
        for token in (known, *proposed[:right]):
            if not reader.cuttable:
                self.unread.append(token)
            yield self._handed_out(token)
        if whole:
            self._all_is_read()
        return chosen[right]

    def _all_is_read(self) -> None:
        self.unread.clear()
        self.base = None  # what it refers to may be freed

    def _right(self, proposed: Sequence[int], chosen: Sequence[int]) -> int:
        """How many of ``proposed`` were chosen, up to an id that is not to be read."""
        right = 0
        while right < len(proposed) and proposed[right] == chosen[right] and proposed[right] not in self.spare:
            right += 1
        return right

    def _plain(self, known: int) -> Generator[int, None, int | None]:
        """Passes of one id, each queued before its id is looked at, until the drafter wakes."""
        if known in self.spare:
            return None
        reader = self.reader
        ahead = reader.queue([*self.unread, known])
        self._all_is_read()
        token = known
        while True:
            yield self._handed_out(token)
            self.drafter.passed(self.tail)
            if not self.left:
                return None
            if not self.drafter.resting:
                return reader.value(ahead)
            undo = reader.mark() if self.spare else None
            following = reader.queue_behind(ahead)
            token = reader.value(ahead)
            if token in self.spare:
                reader.rewind(undo)
                return None
            ahead = following
