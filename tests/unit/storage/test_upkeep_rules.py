"""Which snapshots are superseded and which segments are merged: the rules, and the store that follows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmlx_lsp.storage import retention
from qmlx_lsp.storage.checkpoints import CheckpointStore
from qmlx_lsp.storage.retention import KEEP_LAST, MERGE_RUN, merge_span, superseded
from qmlx_lsp.storage.row import Link
from tests.support.toy_state import Toy, branch, find, key, log_of, open_store, payload, payload_bytes, restore, save

ROWS, HYBRID = Toy("rows"), Toy("hybrid", hybrid=True)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CheckpointStore]:
    store = open_store(tmp_path)
    yield store
    store.close()


# --- snapshots ------------------------------------------------------------------------------------------------------


@given(st.sets(st.integers(1, 200_000), max_size=60), st.sets(st.integers(1, 200_000), max_size=2))
def test_what_is_kept_of_a_logs_snapshots(positions: set[int], anchors: set[int]) -> None:
    gone = set(superseded(positions, anchors))
    kept = sorted(positions - gone, reverse=True)
    assert gone <= positions - anchors
    assert kept[:KEEP_LAST] == sorted(positions, reverse=True)[:KEEP_LAST]
    assert len(kept) <= KEEP_LAST + len(anchors) + 2 * 5  # two for each power of four up to 200 times 1,024 tokens
    for position in gone:  # what is gone has somebody before it, not much further from the end
        far = max(positions) - position
        assert any(kept_too < position and max(positions) - kept_too <= 8 * max(far, 1_024) for kept_too in kept)


def test_over_a_thousand_turns_few_are_kept_and_they_reach_back() -> None:
    kept: set[int] = set()
    for turn in range(1, 1_001):
        kept.add(turn * 500)
        kept -= set(superseded(kept, {500}))
        assert {turn * 500, max(1, turn - 1) * 500, max(1, turn - 2) * 500, 500} <= kept
        for far in (4_000, 16_000, 64_000, 256_000):  # somebody stands at a quarter of the way back, roughly
            if turn * 500 > 2 * far:
                assert any(far / 4 <= turn * 500 - position <= far * 4 for position in kept)
    assert len(kept) <= 3 + 1 + 2 * 5


def test_the_store_keeps_the_last_the_anchor_and_ever_fewer_of_the_rest(
    store: CheckpointStore, tmp_path: Path
) -> None:
    log = log_of(3_000)
    expected: set[int] = set()
    for end in range(50, 3_001, 50):
        start = store.covered(HYBRID.fingerprint, log, end)
        store.save(key(HYBRID, log, 100), HYBRID.copy(log, start, end))
        expected.add(end)
        expected -= set(superseded(expected, {100}))
    assert {found.position for found in find(store, HYBRID, log)} == expected
    assert {3_000, 2_950, 2_900, 100} < expected
    assert len(expected) < 12
    assert len(list((tmp_path / "snapshots").iterdir())) == len(expected)
    assert store.stats()["bytes"] == payload_bytes(tmp_path)
    assert restore(store, HYBRID, log) == (3_000, 1)


def test_a_snapshot_that_another_conversation_holds_is_not_thinned_out(store: CheckpointStore) -> None:
    log = log_of(100)
    for end in range(10, 31, 10):
        save(store, HYBRID, log, end)
    store.pin("other", find(store, HYBRID, log)[1])
    for end in range(40, 101, 10):
        save(store, HYBRID, log, end)
    assert [found.position for found in find(store, HYBRID, log)] == [100, 90, 80, 20, 10]
    store.pin("other", None)
    log.extend(range(10))
    save(store, HYBRID, log)
    assert [found.position for found in find(store, HYBRID, log)] == [110, 100, 90, 10]


# --- segments -------------------------------------------------------------------------------------------------------


def _chain(ends: list[int]) -> list[Link]:
    begins = [0, *ends]
    return [Link(b"%d" % b, a, b, b"", b"", 1) for a, b in zip(begins, ends, strict=False)]


def test_a_run_of_small_neighbours_is_one_span() -> None:
    ends = [1_000, *range(1_010, 1_010 + 10 * MERGE_RUN, 10)]
    assert merge_span(_chain(ends), ()) == (1_000, 1_000 + 10 * MERGE_RUN)
    assert merge_span(_chain(ends[:-1]), ()) is None
    assert merge_span([], ()) is None
    middle = 1_000 + 10 * (MERGE_RUN // 2)
    assert merge_span(_chain(ends), (middle,)) is None
    assert merge_span(_chain(ends), (1_000,)) == (1_000, 1_000 + 10 * MERGE_RUN)  # the ends of a span stay joints
    assert merge_span(_chain(ends), (1_000 + 10 * MERGE_RUN,)) == (1_000, 1_000 + 10 * MERGE_RUN)


@given(st.lists(st.integers(1, 600), max_size=80), st.sets(st.integers(0, 20_000), max_size=3))
def test_spans_are_of_small_segments_only(sizes: list[int], fixed: set[int]) -> None:
    ends = [sum(sizes[: at + 1]) for at in range(len(sizes))]
    chain = _chain(ends)
    span = merge_span(chain, fixed)
    if span is not None:
        inside = [link for link in chain if span[0] <= link.a and link.b <= span[1]]
        assert len(inside) >= MERGE_RUN
        assert (inside[0].a, inside[-1].b) == span
        assert all(link.b - link.a < retention.SMALL_ROWS for link in inside)
        assert not fixed & {link.a for link in inside[1:]}
        assert span[1] - span[0] <= retention.MERGE_ROWS


def _talk(store: CheckpointStore, toy: Toy, turns: int, step: int = 5) -> tuple[int, int]:
    """Small turns, saved as a session does; bytes written, and bytes of all rows."""
    log = log_of(turns * step)
    merge, written = None, 0
    for end in range(step, len(log) + 1, step):
        saved = store.save(key(toy, log), toy.copy(log, end - step, end), owner="me")
        written += saved.written
        if merge is not None:
            rows = tuple(toy.tensor(log, spec, *merge) for spec in toy.rows)
            copy = type(toy.copy(log, 0, 1))(*merge, rows, None)
            written += store.merge(key(toy, log), copy, owner="me")
            merge = None
        else:
            merge = saved.merge
        if end % 50 == 0:
            assert restore(store, toy, log)[0] == end
    assert restore(store, toy, log) == (len(log), 1)
    return written, toy.copy(log, 0, len(log)).nbytes


@pytest.mark.parametrize("toy", [ROWS, pytest.param(HYBRID, marks=pytest.mark.slow)], ids=lambda toy: toy.name)
def test_many_small_turns_end_up_in_few_segments(store: CheckpointStore, tmp_path: Path, toy: Toy) -> None:
    _talk(store, toy, 200)
    assert store.stats()["segments"] < 50
    assert len(list((tmp_path / "segments").iterdir())) == store.stats()["segments"]
    assert store.stats()["bytes"] == payload_bytes(tmp_path)
    assert store.stats()["quarantined"] == 0


def test_what_others_hang_on_is_not_merged_away(store: CheckpointStore) -> None:
    log = log_of(20 * MERGE_RUN)
    fork = branch(log, 50, [1, 2, 3])
    for end in range(10, len(log) + 1, 10):
        saved = store.save(key(ROWS, log), ROWS.copy(log, end - 10, end))
    save(store, ROWS, fork)
    assert saved.merge is not None
    store.merge(key(ROWS, log), ROWS.copy(log, *saved.merge))
    assert restore(store, ROWS, log) == (len(log), 1)
    assert restore(store, ROWS, fork) == (53, 1)
    assert [found.position for found in find(store, ROWS, log)][:2] == [len(log), 50]


def test_a_merge_of_something_else_is_refused(store: CheckpointStore) -> None:
    log = log_of(20 * MERGE_RUN)
    for end in range(10, len(log) + 1, 10):
        save(store, ROWS, log, end)
    before = payload(store._folder)
    assert store.merge(key(ROWS, log), ROWS.copy(log, 5, len(log))) == 0
    assert store.merge(key(ROWS, log), ROWS.copy(log, 0, 20)) == 0
    assert store.merge(key(ROWS, branch(log, 0, range(len(log)))), ROWS.copy(log, 0, len(log))) == 0
    assert payload(store._folder) == before
