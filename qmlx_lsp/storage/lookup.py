"""Which stored states fit a token log: chains of segments from 0, and the snapshots at their ends. Pure.

It must never look at a file or a clock; rows and a log go in, candidates come out.

Invariant: every candidate's chain tiles ``[0, position)`` and every joint's digest is the log's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from qmlx_lsp.storage.row import Link
from qmlx_lsp.transcript.tokens import TokenLog

Point = tuple[bytes, int, bytes]  # fingerprint, position, digest of the log there
Reach = Mapping[int, tuple[bytes, ...]]


@dataclass(frozen=True, slots=True)
class Miss:
    """Why nothing can be restored; ``reason`` goes into ``usage.reason``."""

    reason: str


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint that the index promises. ``segments`` are ids from 0 on; ``log`` has the ids that are wanted."""

    position: int
    segments: tuple[bytes, ...]
    snapshot: bytes | None
    log: TokenLog = field(repr=False, compare=False)

    @property
    def files(self) -> tuple[bytes, ...]:
        """Ids of everything the checkpoint is made of."""
        return self.segments if self.snapshot is None else (*self.segments, self.snapshot)


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


def reach(segments: Iterable[Link], digests: Digests) -> dict[int, tuple[bytes, ...]]:
    """Every position that an unbroken chain from 0 leads to, with the shortest such chain (ids of segments).

    ``segments`` are rows of one fingerprint. Position 0 is always there, with no segments.
    """
    chains: dict[int, tuple[bytes, ...]] = {0: ()}
    for row in sorted(segments, key=lambda row: row.a):  # whatever ends at ``a`` begins before it: one pass is enough
        before = chains.get(row.a)
        if before is None or row.parent != digests.at(row.a) or not digests.match(row.b, row.digest):
            continue
        known = chains.get(row.b)
        if known is None or len(known) > len(before) + 1:
            chains[row.b] = (*before, row.id)
    return chains


def candidates(
    chains: Reach, snapshots: Sequence[Link], digests: Digests, log: TokenLog, *, needs_snapshot: bool
) -> list[Found]:
    """What can be restored, longest first."""
    if not needs_snapshot:
        return [Found(end, chains[end], None, log) for end in sorted(chains, reverse=True) if end]
    fitting = [row for row in snapshots if row.b and row.b in chains and digests.match(row.b, row.digest)]
    fitting.sort(key=lambda row: row.b, reverse=True)
    return [Found(row.b, chains[row.b], row.id, log) for row in fitting]


def why(
    own: Sequence[Link], foreign: Iterable[tuple[int, bytes]], gone: Mapping[Point, str], digests: Digests
) -> Miss:
    """The reason why ``candidates`` found nothing.

    ``own``: rows of the fingerprint; ``foreign``: ends of the others; ``gone``: what was taken out, and why. In
    order: something that fitted was taken out; something fits but for its snapshot or the segments before it;
    something fits under another fingerprint; nothing ever did.
    """
    taken = [(point[1], reason) for point, reason in gone.items() if digests.match(point[1], point[2])]
    if taken:
        return Miss(max(taken)[1])
    if any(digests.match(row.b, row.digest) for row in own):
        return Miss("incomplete")
    if any(digests.match(position, digest) for position, digest in foreign):
        return Miss("fingerprint")
    return Miss("no checkpoint")
