"""Faults at every single call of the store: what was stored before stays, what is served is right."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from qmlx_lsp.errors import StoreError
from qmlx_lsp.storage.checkpoints import CheckpointStore
from tests.support.faulty_files import FaultyFiles, PowerCut
from tests.support.toy_state import Toy, find, log_of, open_store, payload, payload_bytes, restore, save

HYBRID = Toy("hybrid", hybrid=True)
OLD, NEW = log_of(30), log_of(50)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with one checkpoint, and another one of a foreign conversation, older."""
    folder = tmp_path_factory.mktemp("before")
    store = open_store(folder)
    save(store, HYBRID, OLD)
    store.close()
    return folder


def _calls_of_a_save(before: Path, tmp_path: Path) -> tuple[int, int]:
    """Calls that opening makes, and calls up to the end of a save."""
    folder = shutil.copytree(before, tmp_path / "count")
    files = FaultyFiles()
    store = open_store(folder, files)
    opening = files.count
    save(store, HYBRID, NEW)
    store.close()
    return opening, files.count


def _check(folder: Path, *, new_is_acknowledged: bool = False) -> None:
    """A reopened store serves the old checkpoint, and the new one whole or not at all; a save then works."""
    store = open_store(folder)
    assert restore(store, HYBRID, OLD) == (30, 1)
    position, tried = restore(store, HYBRID, NEW)
    assert position == 50 or (position == 30 and not new_is_acknowledged)
    assert tried == 1
    assert store.stats()["bytes"] == payload_bytes(folder)
    assert not list((folder / "segments").glob(".tmp*"))
    save(store, HYBRID, NEW)
    assert restore(store, HYBRID, NEW) == (50, 1)
    store.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failing_call_costs_that_save_only(before: Path, tmp_path: Path, code: int) -> None:
    opening, end = _calls_of_a_save(before, tmp_path)
    messages: list[str] = []
    for number in range(opening + 1, end + 1):
        folder = shutil.copytree(before, tmp_path / str(number))
        files = FaultyFiles(fail_at=number, code=code)
        store = open_store(folder, files)
        try:
            save(store, HYBRID, NEW)
            stands = 50  # the failing call was one that can be done without
        except StoreError as error:
            stands = 30
            messages.append(str(error))
        assert not list(folder.rglob(".tmp*"))
        assert store.stats()["bytes"] == payload_bytes(folder)
        assert restore(store, HYBRID, OLD) == (30, 1)
        assert restore(store, HYBRID, NEW)[0] == stands
        save(store, HYBRID, NEW)  # space has returned
        assert restore(store, HYBRID, NEW) == (50, 1)
        store.close()
        _check(folder, new_is_acknowledged=True)
    assert len(messages) >= 12
    assert not any("\n" in message for message in messages)


def test_a_full_disk_is_not_made_worse(before: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(before, tmp_path / "full")

    class Full(FaultyFiles):
        def _step(self, call: str) -> None:
            super()._step(call)
            if call == "pwritev":
                raise OSError(errno.ENOSPC, "No space left on device")

    store = open_store(folder, Full())
    left = payload(folder)
    for _ in range(3):
        with pytest.raises(StoreError, match="No space"):
            save(store, HYBRID, NEW)
    assert payload(folder) == left
    assert restore(store, HYBRID, NEW) == (30, 1)
    store.close()


@pytest.mark.parametrize(("power", "index"), [(False, "kept"), (True, "kept"), (True, "old"), (True, "gone")])
def test_dying_at_any_call_of_a_save(before: Path, tmp_path: Path, power: bool, index: str) -> None:
    opening, end = _calls_of_a_save(before, tmp_path)
    for number in range(opening + 1, end + 2):  # the last one: after the save
        folder = shutil.copytree(before, tmp_path / str(number))
        files = FaultyFiles(die_at=number)
        store = open_store(folder, files)
        saved = _dies(store) is False
        store.close()
        _orphan_temporary_files(folder)
        if power:
            files.lose_unsynced()
        if index == "old":  # SQLite may lose its newest rows (synchronous=NORMAL)
            for path in folder.glob("index.db*"):
                path.unlink()
            shutil.copy(before / "index.db", folder / "index.db")
        elif index == "gone":
            (folder / "index.db").unlink()
        _check(folder, new_is_acknowledged=saved)


def _dies(store: CheckpointStore) -> bool:
    try:
        save(store, HYBRID, NEW)
    except PowerCut:
        return True
    return False


def _orphan_temporary_files(folder: Path) -> None:
    """Make the temporary files those of a process that is dead, as they would be."""
    for path in folder.rglob(".tmp-*"):
        path.rename(path.with_name(f".tmp-4194305-00000000-{path.name[-8:]}"))


def test_dying_at_any_call_of_an_eviction_or_an_opening(tmp_path: Path) -> None:
    """Three chains of two; the quota halves at the next opening, which dies at every call in turn."""
    logs = [log_of(30, seed=seed) for seed in range(3)]
    full = tmp_path / "full"
    now = [1_000.0]
    store = open_store(full, clock=lambda: now[0])
    for log in logs:
        for end in (10, 30):
            now[0] += 100
            save(store, HYBRID, log, end)
    store.close()
    quota = payload_bytes(full) // 2
    number, died = 0, True
    while died:
        number += 1
        folder = shutil.copytree(full, tmp_path / str(number))
        died = _dies_opening(folder, number, quota)
        store = open_store(folder, quota=quota)
        assert store.stats()["bytes"] == payload_bytes(folder) <= quota
        for log in logs:
            found = find(store, HYBRID, log)
            position, tried = restore(store, HYBRID, log)
            assert tried == bool(found)
            assert position == (found[0].position if found else 0)
        assert restore(store, HYBRID, logs[-1]) == (30, 1)
        store.close()
        shutil.rmtree(folder)
    assert number > 10


def _dies_opening(folder: Path, number: int, quota: int) -> bool:
    try:
        open_store(folder, FaultyFiles(die_at=number), quota=quota).close()
    except PowerCut:
        return True
    return False
