"""Publishing: whole or not at all, in the order that survives a power cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from qmlx_lsp.storage import files
from qmlx_lsp.storage.files import as_bytes_view, publish, read_into
from tests.support.faulty_files import FaultyFiles


def test_the_order_of_publishing(tmp_path: Path) -> None:
    fs = FaultyFiles()
    assert publish(fs, tmp_path, "x", [b"ab", memoryview(b"cd")]) == 4
    assert fs.calls == ["open", "pwritev", "fsync", "rename", "fsync_dir"]
    assert (tmp_path / "x").read_bytes() == b"abcd"


def test_a_failure_anywhere_leaves_nothing(tmp_path: Path) -> None:
    for number in range(1, 6):
        with pytest.raises(OSError, match="No space"):
            publish(FaultyFiles(fail_at=number), tmp_path, "x", [b"abcd"])
        assert list(tmp_path.iterdir()) == []


def test_many_pieces_and_large_ones_are_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "WRITE_SLICE_BYTES", 1_000)
    parts = [bytes([n % 256]) * (n % 7) for n in range(1_500)] + [bytes(range(256)) * 20]
    fs = FaultyFiles()
    publish(fs, tmp_path, "x", parts)
    want = b"".join(parts)
    assert (tmp_path / "x").read_bytes() == want
    assert fs.calls.count("pwritev") >= len(want) // 1_000
    memory = bytearray(len(want))
    view = memoryview(memory)
    fd = fs.open(tmp_path / "x", 0)
    assert read_into(fs, fd, [view[at : at + 3] for at in range(0, len(want), 3)], 0) == len(want)
    assert memory == want
    with pytest.raises(EOFError):
        read_into(fs, fd, [view[:10]], len(want) - 5)
    fs.close(fd)


def test_views_of_any_shape_are_seen_as_bytes() -> None:
    assert len(as_bytes_view(memoryview(bytearray(24)).cast("i", [2, 3]))) == 24
    assert len(as_bytes_view(memoryview(b""))) == 0
