"""The checkpoint store as a session uses it: what is found, what is written, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qmlx_lsp.errors import CheckpointRejected, StoreError
from qmlx_lsp.state import StateCopy
from qmlx_lsp.storage.checkpoints import CheckpointStore
from qmlx_lsp.transcript.tokens import TokenLog
from tests.support.faulty_files import FaultyFiles
from tests.support.toy_state import (
    Toy,
    branch,
    check_fill,
    find,
    log_of,
    open_store,
    payload,
    payload_bytes,
    put,
    restore,
    save,
    why,
)

ROWS, HYBRID = Toy("rows"), Toy("hybrid", hybrid=True)
BOTH = pytest.mark.parametrize("toy", [ROWS, HYBRID], ids=lambda toy: toy.name)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CheckpointStore]:
    store = open_store(tmp_path)
    yield store
    store.close()


@BOTH
def test_a_saved_chain_comes_back_byte_for_byte(store: CheckpointStore, toy: Toy) -> None:
    log = log_of(700)
    for end in (10, 300, 700):
        assert save(store, toy, log, end) > 0
    found = find(store, toy, log)
    assert [f.position for f in found] == [700, 300, 10]
    with store.open(found[0]) as state:
        read = check_fill(state, toy, log)
    assert read >= toy.copy(log, 0, 700).nbytes
    assert [f.position for f in find(store, toy, log, 699)] == [300, 10]


def test_short_reads_and_writes_are_finished(tmp_path: Path) -> None:
    store, log = open_store(tmp_path, FaultyFiles(max_bytes=777)), log_of(40)
    save(store, HYBRID, log)
    assert restore(store, HYBRID, log) == (40, 1)
    store.close()


def test_only_new_rows_are_written(store: CheckpointStore) -> None:
    log = log_of(2_000)
    first = save(store, ROWS, log, 1_900)
    second = save(store, ROWS, log, 2_000)
    new = ROWS.copy(log, 1_900, 2_000).nbytes + 4 * 100
    assert new < second <= new + 16_384 < first
    assert save(store, ROWS, log) == 0
    assert put(store, ROWS, log, ROWS.copy(log, 0, 1_900)).written == 0


def test_a_log_that_is_longer_than_the_copy_is_fine(store: CheckpointStore) -> None:
    log = log_of(50)
    assert save(store, HYBRID, log, 20) > 0
    assert store.covered(HYBRID.fingerprint, log, 50) == 20
    assert store.covered(HYBRID.fingerprint, log, 19) == 0


def test_branches_share_what_they_have_in_common(store: CheckpointStore) -> None:
    trunk = log_of(60)
    save(store, HYBRID, trunk, 40)
    save(store, HYBRID, trunk, 60)
    other = branch(trunk, 40, [1, 2, 3])
    assert store.covered(HYBRID.fingerprint, other, 43) == 40
    save(store, HYBRID, other)
    assert store.stats()["segments"] == 3
    assert restore(store, HYBRID, other) == (43, 1)
    assert restore(store, HYBRID, trunk) == (60, 1)
    assert [f.position for f in find(store, HYBRID, branch(trunk, 41, [9] * 30))] == [40]


def test_a_hybrid_needs_a_snapshot_at_the_position(store: CheckpointStore) -> None:
    log = log_of(30)
    copy = HYBRID.copy(log, 0, 30)
    put(store, HYBRID, log, StateCopy(0, 30, copy.rows, None))
    assert find(store, HYBRID, log) == []
    assert why(store, HYBRID, log) == "incomplete"
    assert store.covered(HYBRID.fingerprint, log, 30) == 30
    assert save(store, HYBRID, log) > 0  # start == end: the snapshot alone
    assert store.stats()["segments"] == store.stats()["snapshots"] == 1
    assert restore(store, HYBRID, log) == (30, 1)


def test_nothing_is_written_behind_a_gap(store: CheckpointStore) -> None:
    log = log_of(30)
    assert put(store, ROWS, log, ROWS.copy(log, 10, 30)).written == 0
    assert store.stats()["bytes"] == 0


def test_a_state_of_snapshots_alone_works(store: CheckpointStore) -> None:
    log = log_of(12)
    put(store, HYBRID, log, StateCopy(0, 12, (), HYBRID.snapshot(log, 12)))
    (found,) = find(store, HYBRID, log)
    with store.open(found) as state:
        assert state.rows == ()
        assert state.snapshot is not None
        memory = [bytearray(spec.nbytes) for spec in state.snapshot]
        state.fill([], [memoryview(data) for data in memory])
    assert memory[0] == HYBRID.snapshot(log, 12)[0].data


def test_misses_have_reasons(store: CheckpointStore) -> None:
    log = log_of(30)
    assert why(store, ROWS, log) == "no checkpoint"
    save(store, ROWS, log)
    assert why(store, Toy("other"), log) == "fingerprint"
    assert find(store, Toy("other"), log) == []
    assert why(store, ROWS, log_of(30, seed=5)) == "no checkpoint"
    store.forget()
    assert why(store, ROWS, log) == "forgotten"


def test_the_ids_decide_not_the_digest(store: CheckpointStore) -> None:
    log, lie = log_of(30), log_of(30, seed=3)
    save(store, ROWS, log)
    lie.digest = log.digest  # type: ignore[method-assign]
    (found,) = find(store, ROWS, lie)
    with store.open(found) as state, pytest.raises(CheckpointRejected) as error:
        check_fill(state, ROWS, log)
    assert error.value.reason == "ids"


def test_buffers_of_another_layout_are_foreign(store: CheckpointStore) -> None:
    log = log_of(30)
    save(store, ROWS, log)
    (found,) = find(store, ROWS, log)
    with store.open(found) as state, pytest.raises(CheckpointRejected) as error:
        state.fill([], [])
    assert error.value.reason == "foreign"


def test_lent_memory_is_not_kept_even_after_a_failure(store: CheckpointStore, tmp_path: Path) -> None:
    from qmlx_lsp.state import RowBuffer

    log = log_of(30)
    save(store, ROWS, log)
    (path,) = payload(tmp_path)
    data = bytearray(path.read_bytes())
    data[-200] ^= 1
    path.write_bytes(data)
    memory = [bytearray(spec.tensor(30).nbytes) for spec in ROWS.rows]
    (found,) = find(store, ROWS, log)
    with store.open(found) as state:
        buffers = [RowBuffer(spec, 30, memoryview(data)) for spec, data in zip(ROWS.rows, memory, strict=True)]
        with pytest.raises(CheckpointRejected) as error:
            state.fill(buffers, [])
        for buffer in buffers:
            buffer.data.release()
    for data in memory:
        data.append(0)  # a BufferError if somebody still looks at it
    assert error.value.reason == "corrupt"


def test_a_lease_keeps_what_is_read_and_a_pin_what_is_wanted(tmp_path: Path) -> None:
    now = [1_000.0]
    log, other = log_of(30), log_of(30, seed=1)
    one = _size(tmp_path / "probe", ROWS, log)
    store = open_store(tmp_path / "store", quota=one + 100, clock=lambda: now[0])
    save(store, ROWS, log)
    (found,) = find(store, ROWS, log)
    with store.open(found) as state:
        with pytest.raises(StoreError):
            save(store, ROWS, other)
        check_fill(state, ROWS, log)
    store.pin("conversation", found)
    with pytest.raises(StoreError):
        save(store, ROWS, other)
    store.pin("conversation", None)
    now[0] += 1
    assert save(store, ROWS, other) > 0
    assert why(store, ROWS, log) == "evicted"
    with pytest.raises(CheckpointRejected) as error, store.open(found):
        pass
    assert error.value.reason == "evicted"
    store.reject(found, error.value)  # blames nobody
    assert store.stats()["quarantined"] == 0
    store.close()


def test_what_is_larger_than_the_quota_is_refused_and_costs_nothing(tmp_path: Path) -> None:
    log = log_of(400)
    store = open_store(tmp_path, quota=30_000)
    save(store, ROWS, log, 20)
    before = payload(tmp_path)
    with pytest.raises(StoreError, match=r"quota.*raise store\.quota_gib"):
        save(store, ROWS, log)
    assert payload(tmp_path) == before
    store.close()


def test_a_floor_of_free_space_is_kept(tmp_path: Path) -> None:
    store = open_store(tmp_path, floor=1 << 62)
    with pytest.raises(StoreError, match="free"):
        save(store, ROWS, log_of(10))
    assert payload(tmp_path) == []
    store.close()


def test_a_quota_counts_every_model_and_is_kept_at_once_and_at_start(tmp_path: Path) -> None:
    quota = 200_000
    store = open_store(tmp_path, quota=quota)
    for toy in (ROWS, HYBRID):
        for seed in range(20):
            save(store, toy, log_of(50, seed=seed))
            assert store.stats()["bytes"] == payload_bytes(tmp_path) <= quota
    assert restore(store, HYBRID, log_of(50, seed=19)) == (50, 1)
    store.close()
    store = open_store(tmp_path, quota=quota // 2)
    assert store.stats()["bytes"] == payload_bytes(tmp_path) <= quota // 2
    store.close()


def test_files_that_somebody_deleted_are_noticed(store: CheckpointStore, tmp_path: Path) -> None:
    log = log_of(60)
    for end in (20, 40, 60):
        save(store, ROWS, log, end)
    found = find(store, ROWS, log)[0]
    path = next(p for p in payload(tmp_path) if p.name.startswith(found.segments[1].hex()))
    path.unlink()
    with pytest.raises(CheckpointRejected) as error, store.open(found):
        pass
    assert error.value.reason == "missing"
    store.reject(found, error.value)
    assert restore(store, ROWS, log) == (20, 1)
    save(store, ROWS, log)
    assert restore(store, ROWS, log) == (60, 1)
    assert store.stats()["bytes"] == payload_bytes(tmp_path)
    assert store.stats()["quarantined"] == 0


def test_modes_are_private(store: CheckpointStore, tmp_path: Path) -> None:
    save(store, HYBRID, log_of(10))
    for path in tmp_path.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_forget_really_deletes(store: CheckpointStore, tmp_path: Path) -> None:
    log = log_of(10)
    save(store, HYBRID, log)
    (tmp_path / "segments" / ".tmp-1-00000000-00000000").write_bytes(b"x")
    store.forget()
    assert payload(tmp_path) == []
    assert store.stats()["bytes"] == 0
    assert find(store, HYBRID, log) == []
    assert save(store, HYBRID, log) > 0


def test_a_folder_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as error:
        open_store(tmp_path / "file" / "store")
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)


def _size(folder: Path, toy: Toy, log: TokenLog) -> int:
    store = open_store(folder)
    size = save(store, toy, log)
    store.close()
    return size
