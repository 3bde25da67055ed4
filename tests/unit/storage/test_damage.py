"""Damage of every kind: rejected or a miss, never wrong bytes; put aside once; the next shorter state still works."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from qmlx_lsp.errors import CheckpointRejected
from qmlx_lsp.storage import shelf
from tests.support.faulty_files import FaultyFiles
from tests.support.toy_state import (
    Toy,
    check_fill,
    find,
    log_of,
    open_store,
    payload,
    payload_bytes,
    restore,
    save,
    why,
)

HYBRID = Toy("hybrid", hybrid=True)
LOG = log_of(60)
ENDS = (20, 40, 60)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with three checkpoints in one chain."""
    folder = tmp_path_factory.mktemp("saved")
    store = open_store(folder)
    for end in ENDS:
        save(store, HYBRID, LOG, end)
    store.close()
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "store")


def _file(folder: Path, kind: str, place: int) -> Path:
    """Segment or snapshot number ``place`` of the chain."""
    store = open_store(folder)
    found = find(store, HYBRID, LOG)[-1 - place]
    store.close()
    id_ = found.segments[place] if kind == "segments" else found.snapshot
    assert id_ is not None
    return next((folder / kind).glob(id_.hex() + "-*"))


def _flip(offset: int) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[offset] ^= 0x40
        path.write_bytes(data)

    return change


def _cut(length: int) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.read_bytes()[:length])


def _zero_tail(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-200] + bytes(200))


def _grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


CHANGES = {
    "length field": _flip(0), "huge length": _flip(6), "json": _flip(40), "padding": _flip(16_000),
    "first payload byte": _flip(16_384), "payload": _flip(16_384 + 37), "last byte": _flip(-1),
    "empty": _cut(0), "eight bytes": _cut(8), "half a header": _cut(9_000), "header only": _cut(16_384),
    "one byte short": _cut(-1), "zeroed tail": _zero_tail, "one byte long": _grow,
}  # fmt: skip


@pytest.mark.parametrize("reopen", [False, True], ids=["while open", "before opening"])
@pytest.mark.parametrize("kind", ["segments", "snapshots"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_damage_is_rejected_and_the_next_shorter_state_serves(
    folder: Path, kind: str, change: Callable[[Path], None], reopen: bool
) -> None:
    path = _file(folder, kind, 1)
    store = open_store(folder)
    if reopen:
        store.close()
        change(path)
        store = open_store(folder)
    else:
        change(path)
    position, _ = restore(store, HYBRID, LOG)
    assert position == (60 if kind == "snapshots" else 20)
    shorter = restore(store, HYBRID, log_of(40))
    assert shorter[0] == 20
    assert not path.exists() or (reopen and kind == "snapshots" and position == 60)
    assert store.stats()["quarantined"] == 1
    assert store.stats()["bytes"] == payload_bytes(folder)
    store.close()


def test_swapped_files_contradict_their_names(folder: Path) -> None:
    first, second = _file(folder, "segments", 0), _file(folder, "segments", 1)
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(data)
    store = open_store(folder)
    assert restore(store, HYBRID, LOG)[0] == 0
    store.close()


def test_a_file_under_a_made_up_name_is_not_taken_in(folder: Path) -> None:
    path = _file(folder, "segments", 0)
    shutil.copy(path, path.with_name("0" * 32 + path.name[32:]))
    store = open_store(folder)
    assert store.stats()["quarantined"] == 1
    assert restore(store, HYBRID, LOG) == (60, 1)
    store.close()


@pytest.mark.parametrize("garbage", [None, b"", b"no database " * 500, "old", "stale", "tables"])
def test_the_index_is_rebuilt_from_the_files(folder: Path, garbage: bytes | str | None) -> None:
    path = folder / "index.db"
    if garbage is None:
        path.unlink()
    elif isinstance(garbage, bytes):
        path.write_bytes(garbage)
    else:
        connection = sqlite3.connect(path)
        if garbage == "old":
            connection.execute("PRAGMA user_version = 99")
        elif garbage == "stale":
            connection.execute("DELETE FROM file WHERE b > 20")
        else:
            connection.execute("ALTER TABLE file RENAME COLUMN digest TO whatever")
        connection.commit()
        connection.close()
    store = open_store(folder)
    assert (store.stats()["segments"], store.stats()["snapshots"]) == (3, 3)
    assert restore(store, HYBRID, LOG) == (60, 1)
    store.close()


def test_an_index_that_breaks_under_way_is_rebuilt(folder: Path) -> None:
    store = open_store(folder)
    store._catalog.ask(lambda index: index._connection.execute("DROP TABLE file"))
    assert restore(store, HYBRID, LOG) == (60, 1)
    store.close()


def test_a_directory_and_strangers_in_the_folder_are_left_alone(folder: Path) -> None:
    path = _file(folder, "segments", 2)
    path.unlink()
    path.mkdir()
    (folder / "segments" / "notes.txt").write_text("mine")
    store = open_store(folder)
    assert restore(store, HYBRID, LOG)[0] == 40
    assert (folder / "segments" / "notes.txt").exists()
    store.close()


def test_temporary_files_of_dead_processes_are_swept(folder: Path) -> None:
    import os

    segments = folder / "segments"
    for pid in (2**22 + 1, os.getpid(), 0, 9_999_999_999):
        (segments / f".tmp-{pid}-deadbeef-00000000").write_bytes(b"x")
    alive = segments / f".tmp-{os.getppid()}-deadbeef-00000000"
    alive.write_bytes(b"x")
    open_store(folder).close()
    assert [p.name for p in segments.glob(".tmp-*")] == [alive.name]


def test_a_disk_that_does_not_answer_costs_no_file(folder: Path) -> None:
    files = FaultyFiles(code=errno.EIO)
    store = open_store(folder, files)
    found = find(store, HYBRID, LOG)[0]
    files.fail_at = files.count + 1
    with pytest.raises(CheckpointRejected) as error, store.open(found):
        pass
    assert error.value.reason == "unreadable"
    store.reject(found, error.value)
    store.close()
    store = open_store(folder)
    assert restore(store, HYBRID, LOG) == (60, 1)
    store.close()


def test_every_failing_read_is_a_rejection(folder: Path) -> None:
    files = FaultyFiles(code=errno.EIO)
    store = open_store(folder, files)
    found = find(store, HYBRID, LOG)[0]
    at = files.count
    with store.open(found) as state:
        check_fill(state, HYBRID, LOG)
    reads = files.count - at
    assert reads >= 12
    for number in range(1, reads + 1):
        files.fail_at = files.count + number
        with pytest.raises(CheckpointRejected) as error, store.open(found) as state:
            check_fill(state, HYBRID, LOG)
        assert error.value.reason == "unreadable"
    with store.open(found) as state:
        check_fill(state, HYBRID, LOG)
    store.close()


def test_the_engine_may_reject_too(folder: Path) -> None:
    store = open_store(folder)
    found = find(store, HYBRID, LOG)[0]
    store.reject(found, CheckpointRejected("shape", "layer 7 has another shape"))
    store.reject(found, CheckpointRejected("shape", "said twice"))
    assert store.stats()["quarantined"] == 1
    assert restore(store, HYBRID, LOG) == (40, 1)
    store.close()


def test_the_quarantine_is_capped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "QUARANTINE_FILES", 2)
    for path in payload(folder):
        _flip(100)(path)
    store = open_store(folder)
    assert restore(store, HYBRID, LOG)[0] == 0
    store.close()
    (folder / "index.db").unlink()
    store = open_store(folder)
    assert len(list((folder / "quarantine").iterdir())) == 2
    assert store.stats()["bytes"] == payload_bytes(folder)
    store.close()


def test_sizes_are_compared_at_the_opening(folder: Path) -> None:
    _cut(17_000)(_file(folder, "segments", 2))
    store = open_store(folder)
    assert (store.stats()["segments"], store.stats()["quarantined"]) == (2, 1)
    assert store.stats()["bytes"] == payload_bytes(folder)
    assert [found.position for found in find(store, HYBRID, LOG)] == [40, 20]
    assert why(store, HYBRID, LOG) == "truncated"
    store.close()
