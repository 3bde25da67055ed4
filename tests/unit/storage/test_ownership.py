"""One process writes a conversation log; the second is told who does, and let in when that one has gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qmlx_lsp.errors import StoreError
from qmlx_lsp.storage import locks, ownership
from qmlx_lsp.storage.conversations import ConversationLog

ROOT = Path(__file__).parents[3]
WRITER = """
import sys
from pathlib import Path
from qmlx_lsp.storage.conversations import ConversationLog
log = ConversationLog(Path(sys.argv[1]), clock=lambda: 1.0)
log.open("/project", "identity")
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(ownership, "OWNER_WAIT_S", 0.0)
    return tmp_path / "conversations.sqlite3"


def _open(path: Path, *, read_only: bool = False) -> ConversationLog:
    return ConversationLog(path, clock=lambda: 1.0, read_only=read_only)


def test_a_second_writer_in_another_process_is_told_who_writes(path: Path) -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdin=pipe, stdout=pipe, cwd=ROOT) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        before = path.read_bytes()
        with pytest.raises(StoreError) as error:
            _open(path)
        assert f"pid {other.pid}" in str(error.value)
        assert str(path) in str(error.value)
        assert "end that process" in str(error.value)
        assert path.read_bytes() == before
        reader = _open(path, read_only=True)
        assert reader.roots() == ["/project"]
        reader.close()
        other.kill()
    log = _open(path)  # the kernel has let go
    assert log.roots() == ["/project"]
    log.close()


def test_the_lock_is_let_go_with_the_log(path: Path) -> None:
    first = _open(path)
    with pytest.raises(StoreError, match=f"pid {os.getpid()}"):
        _open(path)
    first.close()
    _open(path).close()


def test_a_failed_opening_holds_nothing(path: Path) -> None:
    path.write_bytes(b"no database " * 1_000)
    for _ in range(2):
        with pytest.raises(StoreError, match="damaged"):
            _open(path)
    path.unlink()
    _open(path).close()


def test_who_ends_soon_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _open(path)
    monkeypatch.setattr(ownership, "OWNER_WAIT_S", 60.0)
    slept: list[float] = []

    class Clock:
        monotonic = staticmethod(lambda: 0.0)

        @staticmethod
        def sleep(seconds: float) -> None:
            slept.append(seconds)
            first.close()

    monkeypatch.setattr(locks, "time", Clock)
    _open(path).close()
    assert len(slept) == 1
