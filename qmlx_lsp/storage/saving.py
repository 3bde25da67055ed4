"""Writing states into the catalog: new rows, a snapshot where the model needs one, and small segments made one.

It must never write what the chain from 0 already covers, nor anything behind a gap, nor touch what is stored
before it knows that the new files fit.

Invariant: bytes written are new rows and snapshots; rows are written again only when MERGE_RUN small segments
become one (``retention.merge_span``), so each row at most once per size class.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from qmlx_lsp.errors import StoreError
from qmlx_lsp.state import StateCopy
from qmlx_lsp.storage import retention
from qmlx_lsp.storage.catalog import Catalog
from qmlx_lsp.storage.files import FileSystem
from qmlx_lsp.storage.index import LookAhead
from qmlx_lsp.storage.lookup import Digests, Found, Reach, chain_bytes, reach
from qmlx_lsp.storage.row import Link
from qmlx_lsp.storage.segment import Encoded, encode_segment, encode_snapshot
from qmlx_lsp.transcript.tokens import TokenLog


@dataclass(frozen=True, slots=True)
class Saved:
    """What a save has come to.

    ``written``: bytes. ``covered``: tokens whose rows are stored, up to the copy's end. ``found``: the deepest
    checkpoint there, or None. ``merge``: rows ``[a, b)`` that lie in many small segments; a copy of them given to
    ``merge`` puts them into one.
    """

    written: int
    covered: int
    found: Found | None
    merge: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Key:
    """What a copy is of: a model, and a log of at least the copy's tokens.

    ``anchors``: positions whose snapshots are kept for other conversations (the system entry's end).
    """

    fingerprint: bytes
    log: TokenLog
    needs_snapshot: bool
    anchors: tuple[int, ...] = ()


class Saver:
    """Writes into ``catalog``. Every method raises StoreError, OSError and sqlite3.Error."""

    def __init__(
        self, catalog: Catalog, fs: FileSystem, folder: Path, quota_bytes: int, floor_bytes: int,
        clock: Callable[[], float],
    ) -> None:  # fmt: skip
        self._catalog = catalog
        self._fs = fs
        self._folder = folder
        self._quota = quota_bytes
        self._floor = floor_bytes
        self._clock = clock

    def reach(self, fingerprint: bytes, digests: Digests, limit: int) -> Reach:
        """What is stored of a log, up to ``limit`` tokens."""
        return self._catalog.ask(lambda index: reach(LookAhead(index, fingerprint), digests, limit))

    def save(self, key: Key, copy: StateCopy, owner: str | None, current: Collection[bytes]) -> Saved:
        """See ``CheckpointStore.save``."""
        digests = Digests(key.log)
        before = self.reach(key.fingerprint, digests, copy.end)
        new = self._new_files(key, copy, before)
        written = 0
        after = before
        if new:
            chain = before.chain(copy.end if copy.end in before.into else copy.start)
            self._check_size(sum(encoded.row.size for encoded in new), chain_bytes(chain))
            pinned = frozenset(link.id for link in chain)
            self._catalog.make_room(sum(e.row.size for e in new), pinned=pinned, current=current)
            written = sum(self._catalog.add(encoded) for encoded in new)
            after = self.reach(key.fingerprint, digests, copy.end)
        found = next(iter(after.candidates(key.log, needs_snapshot=key.needs_snapshot)), None)
        if owner is not None and found is not None:
            self._catalog.leases.pin(owner, found.files)
        kept = self._thin(key, after) if new else set(after.snapshots)
        if new:
            self._sweep(key, after)
        fixed = kept.union(key.anchors) if key.needs_snapshot else key.anchors
        return Saved(written, after.end, found, retention.merge_span(after.chain(after.end), fixed))

    def _new_files(self, key: Key, copy: StateCopy, before: Reach) -> list[Encoded]:
        """The files that make ``copy`` a checkpoint; none when they are there, or when a gap lies before it."""
        if copy.start not in before.into:
            return []
        new: list[Encoded] = []
        end, now = key.log.digest(copy.end), self._clock()
        if copy.end not in before.into:
            new.append(self._segment(key, copy, now))
        if copy.snapshot is not None and copy.end and copy.end not in before.snapshots:
            new.append(encode_snapshot(key.fingerprint, copy.end, end, copy.snapshot, now))
        return new

    @staticmethod
    def _segment(key: Key, copy: StateCopy, now: float) -> Encoded:
        span, ends = (copy.start, copy.end), (key.log.digest(copy.start), key.log.digest(copy.end))
        ids = key.log.ids(*span)
        return encode_segment(
            key.fingerprint, span, ends, copy.rows, ids, needs_snapshot=key.needs_snapshot, now=now
        )  # fmt: skip

    def _check_size(self, new: int, needed: int) -> None:
        """Refuse before anything is touched what could only be kept by throwing itself away."""
        if new + needed > self._quota:
            have = f"a checkpoint of {new + needed:,} bytes does not fit into the quota of {self._quota:,} bytes"
            raise StoreError(f"{have}: raise store.quota_gib or begin a new conversation")
        free = self._fs.free_bytes(self._folder)
        if free - new < self._floor:
            left = f"only {free:,} bytes are free on the volume of {self._folder}"
            raise StoreError(f"{left}: free some space or lower store.free_floor_gib ({self._floor:,} bytes)")

    def _thin(self, key: Key, stored: Reach) -> set[int]:
        """Delete the snapshots that newer ones make worthless; returns the positions of those that stay."""
        gone = retention.superseded(stored.snapshots, key.anchors)
        rows = self._catalog.ask(lambda index: index.get([stored.snapshots[position] for position in gone]))
        retired = self._catalog.retire(list(rows.values()), "superseded") if rows else []
        return set(stored.snapshots) - {row.b for row in retired}

    def merge(self, key: Key, copy: StateCopy, owner: str | None, current: Collection[bytes]) -> int:
        """See ``CheckpointStore.merge``."""
        digests = Digests(key.log)
        before = self.reach(key.fingerprint, digests, len(key.log))
        replaced = [link for link in before.chain(before.end) if copy.start <= link.a and link.b <= copy.end]
        tiles = bool(replaced) and (replaced[0].a, replaced[-1].b) == (copy.start, copy.end)
        if not tiles or len(replaced) < retention.MERGE_RUN:
            return 0
        encoded = self._segment(key, copy, self._clock())
        self._check_size(encoded.row.size, chain_bytes(before.chain(before.end)))
        pinned = frozenset(link.id for link in before.chain(before.end))
        self._catalog.make_room(encoded.row.size, pinned=pinned, current=current)
        written = self._catalog.add(encoded)
        after = self.reach(key.fingerprint, digests, len(key.log))
        found = next(iter(after.candidates(key.log, needs_snapshot=key.needs_snapshot)), None)
        if owner is not None and found is not None:
            self._catalog.leases.pin(owner, found.files)
        self._retire_replaced(key.fingerprint, replaced)
        return written

    def _retire_replaced(self, fingerprint: bytes, replaced: list[Link]) -> None:
        """Delete segments that a merged one covers, up to the first on which something else hangs."""
        going: set[bytes] = set()
        for link in reversed(replaced):
            hanging = {other.id for other in self._begin_at(fingerprint, link)}
            if link is not replaced[-1] and not hanging <= going:
                break
            going.add(link.id)
        rows = self._catalog.ask(lambda index: index.get(tuple(going)))
        self._catalog.retire(sorted(rows.values(), key=lambda row: -row.b), "merged")

    def _sweep(self, key: Key, stored: Reach) -> None:
        """Delete segments that a merged one has replaced and that are there all the same: the merge was cut off."""
        chain = stored.chain(stored.end)
        inner = stored.into.keys() - {0, *(link.b for link in chain)}
        for link in chain if inner else ():
            last = max((position for position in inner if link.a < position < link.b), default=0)
            if last and last not in stored.snapshots:
                path = [before for before in stored.chain(last) if before.a >= link.a]
                if path and path[0].a == link.a:
                    behind = self._begin_at(key.fingerprint, path[-1])
                    path += [other for other in behind if (other.b, other.digest) == (link.b, link.digest)]
                    self._retire_replaced(key.fingerprint, path)

    def _begin_at(self, fingerprint: bytes, link: Link) -> list[Link]:
        """What hangs on the end of a segment."""
        return self._catalog.ask(lambda index: index.beginning(fingerprint, link.b, link.digest))
