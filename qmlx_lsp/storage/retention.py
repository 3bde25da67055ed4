"""Which files go: when the store is too large, when snapshots are superseded, when segments are too many. Pure.

It must never look at a clock or a disk.

Order when room is needed: files of models that are no longer used, oldest first; files that can never match again
(a segment that no chain from 0 leads to, or with neither segment nor snapshot behind it where the model needs a
snapshot); snapshots that a deeper one of the same log supersedes and that were not used after it; then the least
recently used.

Invariant (prefix-closed): whatever a chain from 0 led to before and is kept can still be reached afterwards.
Invariant (pinned): a pinned file stays, and with it everything before it.
Invariant (quota): what is left is within the quota unless all of it is pinned or held by something pinned.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from qmlx_lsp.storage.lookup import Point
from qmlx_lsp.storage.row import Kind, Link, Row

KEEP_LAST = 3  # newest snapshots of a log
KEEP_CELL = 1_024  # tokens: of those that are not further away, the first is kept …
KEEP_RATIO = 4  # … and of those that are up to four times as far, and so on
SMALL_ROWS = 256  # rows; a segment of fewer is worth merging
MERGE_RUN = 16  # so many small neighbours become one
MERGE_ROWS = 4_096  # rows of one merged segment at most

_FOREIGN, _USELESS, _SPARE, _USED = range(4)
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
    deeper = _last_use_behind(rows)
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
        spare = row.kind is Kind.SNAPSHOT and deeper.get(_end(row), float("-inf")) >= row.last_used
        group = _FOREIGN if foreign else _USELESS if useless else _SPARE if spare else _USED
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


def _last_use_behind(rows: Sequence[Row]) -> dict[Point, float]:
    """For every point that a chain with a snapshot passes: when the latest of those snapshots was used."""
    at = {_end(row): row.last_used for row in rows if row.kind is Kind.SNAPSHOT}
    behind: dict[Point, float] = {}
    for row in sorted((row for row in rows if row.kind is Kind.SEGMENT), key=lambda row: row.b, reverse=True):
        used = max(at.get(_end(row), float("-inf")), behind.get(_end(row), float("-inf")))
        if used > behind.get(_begin(row), float("-inf")):
            behind[_begin(row)] = used
    return behind


def hopeless(rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """What can never be restored: files that no chain from 0 leads to; and segments that one does lead to, of models
    that need a snapshot, with no snapshot at their end or behind it."""
    reached = reachable(rows)
    needing = {row.fingerprint for row in rows if row.needs_snapshot}
    behind = _last_use_behind(rows).keys() | {_end(row) for row in rows if row.kind is Kind.SNAPSHOT}
    lost = [row for row in rows if _begin(row) not in reached]
    barren = [
        row
        for row in rows
        if row.kind is Kind.SEGMENT
        and row.fingerprint in needing
        and _begin(row) in reached
        and _end(row) not in behind
    ]
    return lost, barren


def leaves_first(rows: Sequence[Row], going: Iterable[Row], kept: Collection[bytes]) -> list[Row]:
    """Those of ``going`` that can go without taking the ground from something that stays, children before parents.

    ``kept``: ids that stay, and so does what they hang on.
    """
    reached = reachable(rows)
    hanging = Counter(_begin(row) for row in rows)
    gone: list[Row] = []
    for row in sorted(going, key=lambda row: (-row.a, row.kind is Kind.SEGMENT, row.id)):
        holds = row.kind is Kind.SEGMENT and hanging[_end(row)] > 0 and _begin(row) in reached
        if row.id not in kept and not holds:
            gone.append(row)
            hanging[_begin(row)] -= 1
    return gone


def superseded(positions: Collection[int], anchors: Collection[int]) -> list[int]:
    """Which snapshots of one log are not worth their bytes.

    Kept are the last KEEP_LAST, those at ``anchors`` (the end of the system entry, where new conversations begin),
    and ever fewer the further they are from the end: they serve a conversation that forks. Those are the first ones
    of the cells of a fixed grid, whose cells are larger the further away they are. Cells lie within cells, so what
    is kept in a large one has been kept in the small ones before.
    """
    newest_first = sorted(positions, reverse=True)
    first: dict[tuple[int, int], int] = {}
    for position in newest_first[KEEP_LAST:]:
        cell = KEEP_CELL
        while cell <= newest_first[0] - position:
            cell *= KEEP_RATIO
        first[cell, position // cell] = position
    kept = {*newest_first[:KEEP_LAST], *first.values(), *anchors}
    return [position for position in newest_first if position not in kept]


def merge_span(chain: Sequence[Link], fixed: Collection[int]) -> tuple[int, int] | None:
    """Rows ``[a, b)`` that lie in MERGE_RUN or more small segments of ``chain`` and should lie in one.

    Joints at ``fixed`` positions (snapshots stand there, or other conversations begin) stay joints.
    """
    run: list[Link] = []
    for link in (*chain, None):
        small = link is not None and link.b - link.a < SMALL_ROWS
        if link and small and run and link.a not in fixed and link.b - run[0].a <= MERGE_ROWS:
            run.append(link)
            continue
        if len(run) >= MERGE_RUN:
            return run[0].a, run[-1].b
        run = [link] if link and small else []
    return None


def _begin(row: Row) -> Point:
    return row.fingerprint, row.a, row.parent


def _end(row: Row) -> Point:
    return row.fingerprint, row.b, row.digest
