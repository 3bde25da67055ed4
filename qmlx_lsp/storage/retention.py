"""Which files go when the store is too large. Pure: rows and a quota in, ids out.

It must never look at a clock or a disk.

Order: files of models that are no longer used, oldest first; files that can never match again (a segment that no
chain from 0 leads to, or with neither segment nor snapshot behind it where the model needs a snapshot); then the
least recently used.

Invariant (prefix-closed): whatever a chain from 0 led to before and is kept can still be reached afterwards.
Invariant (pinned): a pinned file stays, and with it everything before it.
Invariant (quota): what is left is within the quota unless all of it is pinned or held by something pinned.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from qmlx_lsp.storage.lookup import Point
from qmlx_lsp.storage.row import Kind, Row

_FOREIGN, _USELESS, _USED = range(3)
_Key = tuple[int, float, float, int, bytes]


def victims(
    rows: Sequence[Row], quota_bytes: int, *, pinned: Collection[bytes] = (), current: Collection[bytes] = ()
) -> list[bytes]:
    """Ids to delete, in this order, so that the rest takes at most ``quota_bytes``.

    ``pinned``: ids that stay. ``current``: fingerprints in use; the others are foreign, unless it is empty.
    """
    excess = sum(row.size for row in rows) - quota_bytes
    if excess <= 0:
        return []
    pinned, current = frozenset(pinned), frozenset(current)
    needing = {row.fingerprint for row in rows if row.needs_snapshot}
    reached = reachable(rows)
    by_id = {row.id: row for row in rows}
    ending: dict[Point, list[Row]] = {}
    held: Counter[Point] = Counter()  # how many kept files begin where a segment ends
    for row in rows:
        held[_begin(row)] += 1
        if row.kind is Kind.SEGMENT:
            ending.setdefault(_end(row), []).append(row)

    def key(row: Row) -> _Key:
        useless = _begin(row) not in reached or (row.kind is Kind.SEGMENT and row.fingerprint in needing)
        foreign = bool(current) and row.fingerprint not in current
        group = _FOREIGN if foreign else _USELESS if useless else _USED
        return group, row.last_used, row.created, -row.b, row.id

    def free(row: Row) -> bool:
        """Nothing kept hangs on it. A snapshot holds nothing; nor does a segment that nothing leads to."""
        return row.kind is Kind.SNAPSHOT or _begin(row) not in reached or not held[_end(row)]

    heap = [key(row) for row in rows if row.id not in pinned and free(row)]
    heapq.heapify(heap)
    gone: list[bytes] = []
    while heap and excess > 0:
        row = by_id[heapq.heappop(heap)[-1]]
        gone.append(row.id)
        excess -= row.size
        point = _begin(row)
        held[point] -= 1
        if not held[point] and point in reached:
            for parent in ending.get(point, ()):
                if parent.id not in pinned and _begin(parent) in reached:
                    heapq.heappush(heap, key(parent))
    return gone


def reachable(rows: Iterable[Row]) -> set[Point]:
    """Every point that a chain of segments from 0 leads to, over all fingerprints."""
    points: set[Point] = set()
    for row in sorted((row for row in rows if row.kind is Kind.SEGMENT), key=lambda row: row.a):
        if row.a == 0 or _begin(row) in points:
            points.add(_begin(row))
            points.add(_end(row))
    return points


def _begin(row: Row) -> Point:
    return row.fingerprint, row.a, row.parent


def _end(row: Row) -> Point:
    return row.fingerprint, row.b, row.digest
