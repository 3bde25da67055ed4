"""Which stored states fit a token log: chains of segments from 0, and the snapshots at their ends. Pure.

It must never look at a file or a clock; a log goes in, and answers of the index to "what begins at this point?".

A lookup walks: from position 0 it asks for what begins there, keeps what ends in a digest of the log, and goes on
from those ends. So it costs one question per segment of the log's own chains, however much else is stored.

Invariant: every candidate's chain tiles ``[0, position)`` and every joint's digest is the log's own.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from qmlx_lsp.storage.row import Link, Raw
from qmlx_lsp.transcript.tokens import TokenLog

Point = tuple[bytes, int, bytes]  # fingerprint, position, digest of the log there
End = tuple[int, bytes]  # position, digest
# The files that begin at a position with a digest: segments, and snapshots of exactly that position.
Beginning = Callable[[int, bytes], Iterable[Raw]]


@dataclass(frozen=True, slots=True)
class Miss:
    """Why nothing can be restored; ``reason`` goes into ``usage.reason``."""

    reason: str


class Digests:
    """The log's digests, each computed once: one hash of at most 256 ids per distinct position."""

    def __init__(self, log: TokenLog) -> None:
        self._log = log
        self._known: dict[int, bytes] = {}

    def at(self, position: int) -> bytes:
        """The log's digest at ``position``, which is in the log."""
        known = self._known.get(position)
        if known is None:
            known = self._known[position] = self._log.digest(position)
        return known

    def match(self, position: int, digest: bytes) -> bool:
        """Whether ``digest`` is the log's at ``position``; False when the log is shorter."""
        return position <= len(self._log) and self.at(position) == digest


@dataclass(frozen=True, slots=True)
class Reach:
    """What of a log is stored.

    ``into``: for every position that an unbroken chain from 0 leads to, the last link of the shortest such chain
    (0 itself is reached by none). ``snapshots``: ids of the snapshots at those positions, by position.
    """

    into: Mapping[int, Link | None]
    snapshots: Mapping[int, bytes]

    @property
    def end(self) -> int:
        """How many tokens have their rows stored."""
        return max(self.into)

    def chain(self, position: int) -> list[Link]:
        """The segments from 0 to ``position``."""
        links: list[Link] = []
        while (link := self.into[position]) is not None:
            links.append(link)
            position = link.a
        return links[::-1]

    def candidates(self, log: TokenLog, *, needs_snapshot: bool) -> list[Found]:
        """What can be restored, longest first."""
        ends = self.snapshots if needs_snapshot else dict.fromkeys(self.into)
        return [Found(end, ends[end], log, self) for end in sorted(ends, reverse=True) if end]


class Found(NamedTuple):
    """A checkpoint that the index promises. ``log`` has the ids that are wanted."""

    position: int
    snapshot: bytes | None
    log: TokenLog
    reach: Reach

    @property
    def segments(self) -> tuple[bytes, ...]:
        """Ids of the segments from 0 on."""
        return tuple(link.id for link in self.reach.chain(self.position))

    @property
    def files(self) -> tuple[bytes, ...]:
        """Ids of everything the checkpoint is made of."""
        return self.segments if self.snapshot is None else (*self.segments, self.snapshot)


NOTHING = Reach({0: None}, {})


def reach(beginning: Beginning, digests: Digests, limit: int) -> Reach:
    """Walk from 0 to every position of at most ``limit`` tokens that stored segments lead to."""
    into: dict[int, Link | None] = {0: None}
    reached = {0: digests.at(0)}
    length = {0: 0}
    snapshots: dict[int, bytes] = {}
    waiting = [0]
    while waiting:
        at = heapq.heappop(waiting)  # whatever ends here begins before it, so its shortest chain is known by now
        longer = length[at] + 1
        for link in beginning(at, reached[at]):
            id_, begin, end, _, digest, _ = link
            if begin == end:
                snapshots[at] = id_
            elif end in reached:
                if longer < length[end] and digest == reached[end]:
                    into[end], length[end] = Link._make(link), longer
            elif end <= limit and digests.match(end, digest):
                heapq.heappush(waiting, end)
                into[end], length[end], reached[end] = Link._make(link), longer, digest
    return Reach(into, snapshots)


def why(own: Iterable[End], foreign: Iterable[End], gone: Mapping[Point, str], digests: Digests) -> Miss:
    """The reason why there are no candidates.

    ``own``, ``foreign``: ends (position, digest) of the fingerprint's files and of the others; ``gone``: what was
    taken out, and why. In order: something that fitted was taken out; something fits but for its snapshot or the
    segments before it; something fits under another fingerprint; nothing ever did.
    """
    taken = [(point[1], reason) for point, reason in gone.items() if digests.match(point[1], point[2])]
    if taken:
        return Miss(max(taken)[1])
    if any(digests.match(*end) for end in own):
        return Miss("incomplete")
    if any(digests.match(*end) for end in foreign):
        return Miss("fingerprint")
    return Miss("no checkpoint")


def chain_bytes(chain: Sequence[Link]) -> int:
    return sum(link.size for link in chain)
