"""Leases and pins between stores: in one process, in two, and when one of them has died."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from qmlx_lsp.storage.leases import FOLDER, Leases

ONE, TWO = b"1" * 16, b"2" * 16
ROOT = Path(__file__).parents[3]


def test_what_one_holds_the_other_does_not_delete(tmp_path: Path) -> None:
    mine, other = Leases(tmp_path), Leases(tmp_path)
    with mine.lease([ONE]):
        assert other.held() == {ONE}
        with other.free([ONE, TWO]) as free:
            assert free == [TWO]
    assert other.held() == set()
    mine.pin("a", [ONE])
    mine.pin("b", [ONE, TWO])
    mine.pin("a", [])
    assert other.held() == {ONE, TWO}
    mine.pin("b", [TWO])
    assert other.held() == mine.held() == {TWO}
    mine.close()
    assert other.held() == set()
    other.close()
    assert sorted(file.name for file in (tmp_path / FOLDER).iterdir()) == ["gate"]


def test_counted_within_one_process(tmp_path: Path) -> None:
    mine, other = Leases(tmp_path), Leases(tmp_path)
    with mine.lease([ONE]):
        with mine.lease([ONE]):
            pass
        assert mine.held() == other.held() == {ONE}
    assert mine.held() == other.held() == set()


def test_nobody_comes_to_hold_what_is_being_deleted(tmp_path: Path) -> None:
    mine, other = Leases(tmp_path), Leases(tmp_path)
    held = threading.Event()

    def reader() -> None:
        with other.lease([ONE]):
            held.set()

    thread = threading.Thread(target=reader)
    with mine.free([ONE]) as free:
        assert free == [ONE]
        thread.start()
        assert not held.wait(0.05)  # it cannot come true, however long one waits
    thread.join()
    assert held.is_set()


HOLD = """
import sys, pathlib
from qmlx_lsp.storage.leases import Leases
leases = Leases(pathlib.Path(sys.argv[1]))
leases.pin("x", [b"1" * 16])
print("held", flush=True)
sys.stdin.read()
"""


def test_a_dead_process_holds_nothing_and_its_file_is_swept(tmp_path: Path) -> None:
    mine = Leases(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        assert mine.held() == {ONE}
        child.kill()
    assert mine.held() == set()
    assert len(list((tmp_path / FOLDER).iterdir())) == 3  # the gate, ours, and the dead one's
    with mine.free([ONE]) as free:
        assert free == [ONE]
    assert len(list((tmp_path / FOLDER).iterdir())) == 2


@pytest.mark.parametrize("obstacle", ["file", "missing"])
def test_where_nothing_can_be_written_leases_are_kept_here(tmp_path: Path, obstacle: str) -> None:
    if obstacle == "file":
        (tmp_path / FOLDER).write_text("in the way")
    mine = Leases(tmp_path if obstacle == "file" else tmp_path / "not" / "there")
    with mine.lease([ONE]):
        assert mine.held() == {ONE}
        with mine.free([ONE, TWO]) as free:
            assert free == [TWO]
    mine.close()


def test_a_folder_that_was_taken_away_is_entered_again(tmp_path: Path) -> None:
    mine, other = Leases(tmp_path), Leases(tmp_path)
    mine.pin("a", [ONE])
    for file in (tmp_path / FOLDER).iterdir():
        file.unlink()
    (tmp_path / FOLDER).rmdir()
    mine.appear()
    other.appear()
    assert other.held() == {ONE}
    mine.close()
    other.close()
