"""Dying, and failing, at every single call of a save that thins out snapshots, and of a merge of small segments."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from qmlx_lsp.errors import StoreError
from qmlx_lsp.storage.checkpoints import CheckpointStore
from qmlx_lsp.storage.retention import MERGE_RUN
from tests.support.faulty_files import FaultyFiles, PowerCut
from tests.support.toy_state import Toy, branch, find, key, log_of, open_store, payload_bytes, restore, save

HYBRID, ROWS = Toy("hybrid", hybrid=True), Toy("rows")
STEP = 5
LOG = log_of(STEP * (MERGE_RUN + 4))
Operation = Callable[[CheckpointStore], object]


def _thin(store: CheckpointStore) -> None:
    """The snapshots between the first and the last three have become too many."""
    log = log_of(60)
    store.save(key(HYBRID, log), HYBRID.copy(log, 50, 60), owner="me")


def _merge(store: CheckpointStore) -> None:
    store.merge(key(ROWS, LOG), ROWS.copy(LOG, 0, len(LOG)), owner="me")


def _before_thin(store: CheckpointStore) -> None:
    for end in range(10, 51, 10):
        save(store, HYBRID, log_of(60), end)


def _before_merge(store: CheckpointStore) -> None:
    for end in range(STEP, len(LOG) + 1, STEP):
        save(store, ROWS, LOG, end)


CASES = {
    "thin": (_before_thin, _thin, HYBRID, log_of(60), (50, 60)),
    "merge": (_before_merge, _merge, ROWS, LOG, (len(LOG), len(LOG))),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    folder = tmp_path / "before"
    store = open_store(folder)
    CASES[request.param][0](store)
    store.close()
    return request.param, folder


def _calls(before: Path, folder: Path, operation: Operation) -> tuple[int, int]:
    files = FaultyFiles()
    store = open_store(shutil.copytree(before, folder), files)
    opening = files.count
    operation(store)
    store.close()
    return opening, files.count


@pytest.mark.slow
@pytest.mark.parametrize("end", ["fails", "dies", "loses power"])
def test_at_any_call(case: tuple[str, Path], tmp_path: Path, end: str) -> None:
    name, before = case
    _, operation, toy, log, (least, most) = CASES[name]
    opening, last = _calls(before, tmp_path / "count", operation)
    assert last - opening > 10
    for number in range(opening + 1, last + 1):
        folder = shutil.copytree(before, tmp_path / str(number))
        files = FaultyFiles(fail_at=number) if end == "fails" else FaultyFiles(die_at=number)
        store = open_store(folder, files)
        with contextlib.suppress(StoreError, PowerCut):
            operation(store)
        store.close()
        for path in folder.rglob(".tmp-*"):
            path.rename(path.with_name(f".tmp-4194305-00000000-{path.name[-8:]}"))  # its process is dead
        if end == "loses power":
            files.lose_unsynced()
        again = open_store(folder)
        position, tried = restore(again, toy, log)
        assert least <= position <= most
        assert tried == 1
        assert again.stats()["bytes"] == payload_bytes(folder)
        assert again.stats()["quarantined"] == 0
        operation(again)
        assert restore(again, toy, log) == (most, 1)
        longer = branch(log, len(log), [1, 2, 3])
        save(again, toy, longer)  # sweeps what a merge that was cut off has left
        assert restore(again, toy, longer) == (most + 3, 1)
        assert len(find(again, toy, longer)) < 10
        assert again.stats()["segments"] < 10
        again.close()
        shutil.rmtree(folder)
