"""Writing and reading to measure: the right bytes, stopped by the deadline, nothing left open or changed."""

from __future__ import annotations

import itertools
import math
import os
from pathlib import Path

import pytest

from qmlx_lsp.measure import disk
from qmlx_lsp.measure.disk import SLICE_BYTES
from qmlx_lsp.measure.figures import Deadline


def ticking() -> Deadline:
    """A clock that is a second later whenever it is asked, and never ends."""
    return Deadline(itertools.count().__next__, math.inf)


def test_all_of_it_is_written_and_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    written = disk.writing(file, 2 * SLICE_BYTES, ticking())
    assert file.stat().st_size == 2 * SLICE_BYTES
    assert (written.unit, written.over, written.note) == ("bytes/s", "0.01 GB", f"with {disk.SYNCED}")
    # asked at the beginning, after the first slice and at the end (the last slice needs no look)
    assert written.value == pytest.approx(2 * SLICE_BYTES / 2)
    assert disk.plain([file, file], ticking())[0] == 4 * SLICE_BYTES


def test_writing_stops_at_its_deadline(tmp_path: Path) -> None:
    file = tmp_path / "file"
    disk.writing(file, 10 * SLICE_BYTES, Deadline(itertools.count().__next__, 3))
    assert file.stat().st_size == 3 * SLICE_BYTES


def test_reading_stops_at_its_deadline(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(3 * SLICE_BYTES))
    assert disk.plain([file], Deadline(itertools.count().__next__, 2))[0] == 2 * SLICE_BYTES


def test_an_empty_file_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert disk.plain([tmp_path / "file"], ticking())[0] == 0


def test_reading_says_how_the_cache_was_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 1_000)
    found = disk.reading(file, ticking())
    assert (found.value, found.note) == (1_000.0, f"uncached by {disk.UNCACHED}")
    monkeypatch.setattr(disk, "uncache", lambda _file: False)
    found = disk.reading(file, ticking())
    assert (found.value, found.note) == (None, disk.NOT_UNCACHED)


@pytest.mark.parametrize("size", [0, 5, SLICE_BYTES, SLICE_BYTES + 5])
def test_a_file_that_is_written_around_the_cache_keeps_its_content(tmp_path: Path, size: int) -> None:
    """What macOS needs; it works anywhere."""
    file, content = tmp_path / "file", os.urandom(size)
    file.write_bytes(content)
    disk._write_anew(file)
    assert file.read_bytes() == content
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_uncaching_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    disk.uncache(file)
    assert file.read_bytes() == b"content"
