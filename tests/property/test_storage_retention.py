"""Retention over random stores: within the quota, prefix-closed, pinned kept, useless first."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from qmlx_lsp.storage.retention import reachable, victims
from qmlx_lsp.storage.row import Kind, Row


def _row(kind: Kind, model: int, a: int, b: int, branch: int, size: int, used: int) -> Row:
    """Branches of one model part at 0; ``branch`` 0 and 1 therefore share nothing."""
    parent, digest = (b"%d/%d/%d" % (model, branch, at) for at in (a, b))
    fingerprint = b"model %d" % model
    needs = model == 1
    return Row(kind, fingerprint, a, b, parent if a else b"", digest, size, 0, b"", needs, float(used), 0.0)


@st.composite
def _stores(draw: st.DrawFn) -> list[Row]:
    rows: dict[bytes, Row] = {}
    for _ in range(draw(st.integers(0, 14))):
        a = draw(st.integers(0, 5))
        span = draw(st.integers(0, 3))
        kind = Kind.SEGMENT if span else Kind.SNAPSHOT
        model, size, used = draw(st.integers(0, 1)), draw(st.integers(1, 50)), draw(st.integers(0, 9))
        row = _row(kind, model, a if span else a + 1, a + max(span, 1), draw(st.integers(0, 1)), size, used)
        rows[row.id] = row
    return list(rows.values())


@settings(deadline=None, max_examples=80)
@given(_stores(), st.integers(0, 400), st.data())
def test_the_invariants_of_retention(rows: list[Row], quota: int, data: st.DataObject) -> None:
    ids = [row.id for row in rows]
    pinned = set(data.draw(st.lists(st.sampled_from(ids), max_size=3))) if ids else set()
    current = data.draw(st.sampled_from([frozenset(), frozenset({b"model 0"})]))
    going = victims(rows, quota, pinned=pinned, current=current)
    kept = [row for row in rows if row.id not in set(going)]

    assert len(set(going)) == len(going)
    assert set(going) <= set(ids) - pinned
    before, after = reachable(rows), reachable(kept)
    for step in range(len(going) + 1):  # at every moment of the deletion, should a crash fall there
        left = [row for row in rows if row.id not in set(going[:step])]
        now = reachable(left)
        for row in left:
            point = (row.fingerprint, row.a, row.parent)
            assert point not in before or point in now or row.a == 0
    if sum(row.size for row in kept) > quota:  # then everything left is held by something pinned
        held = {(row.fingerprint, row.a, row.parent) for row in kept if row.id in pinned}
        for row in sorted(kept, key=lambda row: -row.b):
            end = (row.fingerprint, row.b, row.digest)
            assert row.id in pinned or (row.kind is Kind.SEGMENT and end in held), row
            held.add((row.fingerprint, row.a, row.parent))
    assert after <= before


@settings(deadline=None, max_examples=50)
@given(_stores(), st.integers(0, 400))
def test_nothing_goes_without_need(rows: list[Row], quota: int) -> None:
    going = victims(rows, quota)
    sizes = {row.id: row.size for row in rows}
    total = sum(sizes.values())
    assert bool(going) == (total > quota)
    if going:
        assert total - sum(sizes[id_] for id_ in going[:-1]) > quota


def _order(rows: list[Row], **options: frozenset[bytes]) -> list[bytes]:
    return victims(rows, 0, **options)


def test_foreign_then_useless_then_the_least_recently_used() -> None:
    foreign = _row(Kind.SEGMENT, 0, 0, 1, 0, 1, used=9)
    used, unused = (_row(Kind.SNAPSHOT, 1, 1, 1, 0, 1, used=5), _row(Kind.SNAPSHOT, 1, 2, 2, 0, 1, used=3))
    trunk, tail, bare = (
        _row(Kind.SEGMENT, 1, 0, 1, 0, 1, used=5),
        _row(Kind.SEGMENT, 1, 1, 2, 0, 1, used=5),
        _row(Kind.SEGMENT, 1, 2, 3, 0, 1, used=8),
    )
    orphan = _row(Kind.SEGMENT, 1, 4, 5, 0, 1, used=7)
    going = _order([used, unused, trunk, tail, bare, orphan, foreign], current=frozenset({b"model 1"}))
    assert going == [x.id for x in (foreign, orphan, bare, unused, tail, used, trunk)]


def test_a_parent_outlives_its_children_even_when_it_was_used_before_them() -> None:
    parent, child = _row(Kind.SEGMENT, 0, 0, 1, 0, 1, used=0), _row(Kind.SEGMENT, 0, 1, 2, 0, 1, used=9)
    assert _order([parent, child]) == [child.id, parent.id]
    assert _order([parent, child], pinned=frozenset({child.id})) == []
    assert _order([parent, child], pinned=frozenset({parent.id})) == [child.id]
