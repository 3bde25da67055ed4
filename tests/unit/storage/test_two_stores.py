"""Two owners of one folder: they see each other's files, respect each other's leases, and count the same bytes."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from qmlx_lsp.errors import StoreError
from qmlx_lsp.storage.checkpoints import CheckpointStore
from qmlx_lsp.transcript.tokens import TokenLog
from tests.support.toy_state import Toy, check_fill, find, key, log_of, open_store, payload_bytes, restore, save, why

HYBRID = Toy("hybrid", hybrid=True)


def _size_of_one(folder: Path, tokens: int = 60) -> int:
    store = open_store(folder)
    size = save(store, HYBRID, log_of(tokens))
    store.close()
    return size


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[CheckpointStore, CheckpointStore]]:
    one, other = open_store(tmp_path / "s"), open_store(tmp_path / "s")
    yield one, other
    one.close()
    other.close()


def test_what_one_saves_the_other_finds_and_goes_on_from(two: tuple[CheckpointStore, CheckpointStore]) -> None:
    one, other = two
    log = log_of(90)
    for store, end in ((one, 20), (other, 50), (one, 90)):
        assert save(store, HYBRID, log, end) > 0
    assert save(other, HYBRID, log) == 0
    assert restore(other, HYBRID, log) == restore(one, HYBRID, log) == (90, 1)
    assert one.stats() == other.stats()
    assert one.stats()["segments"] == 3


def test_what_is_being_read_survives_the_others_eviction(tmp_path: Path) -> None:
    size = _size_of_one(tmp_path / "size")
    quota = size + size // 2
    one, other = (open_store(tmp_path / "s", quota=quota) for _ in range(2))
    first, second = log_of(60, seed=1), log_of(60, seed=2)
    save(one, HYBRID, first)
    with one.open(find(one, HYBRID, first)[0]) as state:
        with pytest.raises(StoreError, match="in use"):
            save(other, HYBRID, second)
        check_fill(state, HYBRID, first)
    assert save(other, HYBRID, second) > 0
    assert find(one, HYBRID, first) == []
    assert why(other, HYBRID, first) == "evicted"
    assert other.stats()["bytes"] == payload_bytes(tmp_path / "s") <= quota
    one.close()
    other.close()


def test_one_forgets_under_the_other(two: tuple[CheckpointStore, CheckpointStore]) -> None:
    one, other = two
    log = log_of(60)
    save(one, HYBRID, log, 40)
    found = find(one, HYBRID, log)[0]
    one.pin("me", found)
    other.forget()
    assert restore(one, HYBRID, log) == (0, 0)
    assert one.stats()["segments"] == 0
    assert one.save(key(HYBRID, log), HYBRID.copy(log, 40, 60)).written == 0  # behind the gap
    assert save(one, HYBRID, log) > 0
    assert restore(other, HYBRID, log) == (60, 1)


def test_a_folder_deleted_under_both_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    one, other = open_store(folder), open_store(folder)
    log = log_of(60)
    save(one, HYBRID, log, 40)
    shutil.rmtree(folder)
    assert restore(one, HYBRID, log)[0] == 0
    assert save(one, HYBRID, log, 40) > 0
    assert save(other, HYBRID, log) > 0
    assert restore(one, HYBRID, log) == restore(other, HYBRID, log) == (60, 1)
    assert one.stats()["bytes"] == other.stats()["bytes"] == payload_bytes(folder)
    one.close()
    other.close()


def test_an_index_that_one_rebuilds_is_seen_by_the_other(two: tuple[CheckpointStore, CheckpointStore]) -> None:
    one, other = two
    log = log_of(60)
    save(one, HYBRID, log, 20)
    other._catalog._index.rebuild()
    other._catalog.settle(every_size=True)
    save(one, HYBRID, log, 40)
    save(other, HYBRID, log)
    assert restore(one, HYBRID, log) == restore(other, HYBRID, log) == (60, 1)
    assert one.stats() == other.stats()


def test_two_projects_in_a_store_for_one_do_not_push_each_other_out(tmp_path: Path) -> None:
    """A quota of 1.2 checkpoints: who is open keeps its own, and nothing is written again and again."""
    wide = Toy("wide", hybrid=True, width=512)
    store = open_store(tmp_path / "size")
    size = save(store, wide, log_of(500))
    store.close()
    stores = [open_store(tmp_path / "s", quota=size * 6 // 5) for _ in range(2)]
    logs = [log_of(480, seed=1), log_of(480, seed=2)]
    written = refused = 0
    for turn in range(20):
        store, log = stores[turn % 2], logs[turn % 2]
        log.extend([turn])
        before = store.covered(wide.fingerprint, log, len(log))
        try:
            written += store.save(key(wide, log), wide.copy(log, before, len(log)), owner="mine").written
        except StoreError:
            refused += 1
    assert refused == 10  # always the same one
    assert restore(stores[0], wide, logs[0])[0] == len(logs[0])
    assert written < size * 6 // 5
    for store in stores:
        store.close()


def test_many_threads_of_two_stores_at_once(tmp_path: Path) -> None:
    size = _size_of_one(tmp_path / "size")
    quota = 9 * size  # more than one conversation in all its pieces
    stores = [open_store(tmp_path / "s", quota=quota) for _ in range(2)]
    wrong: list[str] = []

    def work(number: int) -> None:
        store = stores[number % 2]
        for turn in range(12):
            log = log_of(20 + 5 * turn, seed=number % 3)
            try:
                save(store, HYBRID, log)
                restore(store, HYBRID, log)  # compares every byte
            except StoreError as error:
                if "in use" not in str(error):
                    wrong.append(str(error))
            except Exception as error:  # noqa: BLE001 - to be seen by the test, not by the thread
                wrong.append(repr(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    store = open_store(tmp_path / "s", quota=quota)
    assert store.stats()["bytes"] == payload_bytes(tmp_path / "s") <= quota
    assert store.stats()["quarantined"] == 0
    for made in (*stores, store):
        made.close()


def test_what_the_store_counts_is_what_lies_on_the_disk(tmp_path: Path) -> None:
    """Files deleted by hand, damaged ones, another's temporary file: after one operation the sums agree."""
    folder = tmp_path / "s"
    store = open_store(folder)
    log = log_of(200)
    for end in range(20, 201, 20):
        save(store, HYBRID, log, end)
    segments = sorted((folder / "segments").iterdir())
    for file in segments[:3]:
        file.unlink()
    segments[4].write_bytes(segments[4].read_bytes()[:-3])
    segments[5].write_bytes(b"")
    other = TokenLog(range(1_000, 1_030))
    (folder / "segments" / f".tmp-{os.getppid()}-00000000-00000000").write_bytes(b"x" * 1_000)
    save(store, HYBRID, other)
    restore(store, HYBRID, log)
    save(store, HYBRID, log)
    assert store.stats()["bytes"] == payload_bytes(folder)
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert store.stats()["bytes"] + store.stats()["index_bytes"] == total
    store.close()
