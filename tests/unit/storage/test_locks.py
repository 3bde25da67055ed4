"""Locks between processes: re-entrant, given up by the dead, waited for a bounded time, and fair."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from qmlx_lsp.storage.locks import FileLock, open_lock, try_flock
from tests.support.toy_state import Toy, log_of, open_store, save

ROOT = Path(__file__).parents[3]
HOLD = """
import sys, pathlib
from qmlx_lsp.storage.locks import FileLock
with FileLock(pathlib.Path(sys.argv[1]), 5).held():
    print("held", flush=True)
    sys.stdin.read()
"""


def _holder(path: Path) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    return child


def test_another_process_is_waited_for_so_long_and_its_death_sets_free(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with _holder(path) as child:
        with pytest.raises(TimeoutError, match=r"another process has been using .* for 0\.02 s"):
            FileLock(path, 0.02).held().__enter__()
        child.kill()
    lock = FileLock(path, 5)
    with lock.held(), lock.held():
        pass
    with FileLock(path, 0.02).held():  # it was let go of
        pass


def test_a_store_that_another_process_holds_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path / "s")
    monkeypatch.setattr(store._catalog.changing, "_wait_s", 0.02)
    with _holder(tmp_path / "s" / "lock") as child:
        with pytest.raises(Exception, match=r"^checkpoints cannot be written to .*: another process has been using"):
            save(store, Toy("rows"), log_of(5))
        child.kill()
    assert save(store, Toy("rows"), log_of(5)) > 0
    store.close()


def test_who_waits_comes_before_who_takes_it_again(tmp_path: Path) -> None:
    """The greedy one lets go and takes it again at once, and would win every time but for the line."""
    path = tmp_path / "lock"
    order: list[str] = []

    def modest() -> None:
        with FileLock(path, 20).held():
            order.append("modest")

    greedy = FileLock(path, 20)
    with greedy.held():
        thread = threading.Thread(target=modest)
        thread.start()
        _wait_for_line(path.with_name("lock.next"))
    with greedy.held():
        order.append("greedy")
    thread.join()
    assert order == ["modest", "greedy"]


def _wait_for_line(path: Path) -> None:
    """Return when somebody stands in it."""
    while True:
        fd = open_lock(path)
        empty = try_flock(fd, fcntl.LOCK_SH)
        os.close(fd)
        if not empty:
            return


def test_a_lock_whose_file_was_deleted_locks_out_those_who_come_later(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lock"
    lock = FileLock(path, 0.02)
    with lock.held():
        pass
    path.unlink()
    with lock.held(), pytest.raises(TimeoutError):
        FileLock(path, 0.02).held().__enter__()
