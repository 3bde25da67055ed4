"""Memory that is made while a checkpoint is read: taken in order, no more of it than needed, and filled as if all had
been there from the start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qmlx_lsp.errors import CheckpointRejected
from qmlx_lsp.state import RowBuffer
from qmlx_lsp.storage import restore
from tests.support.toy_state import Toy, find, log_of, open_store, payload, save

HYBRID = Toy("lent", hybrid=True)
TOKENS = 40


class Lender:
    """Lends memory for ``HYBRID`` piece by piece and remembers what was asked for."""

    def __init__(self, rows: int = 2, side: int = 2) -> None:
        self.memory = [bytearray(s.heads * TOKENS * s.row_bytes) for s in HYBRID.rows]
        self.whole = [bytearray(spec.nbytes) for spec in HYBRID.side]
        self.asked: list[str] = []
        self._counts = rows, side

    def rows(self) -> Iterator[RowBuffer]:
        for spec, data in list(zip(HYBRID.rows, self.memory, strict=True))[: self._counts[0]]:
            self.asked.append(spec.name)
            yield RowBuffer(spec, TOKENS, memoryview(data))

    def side(self) -> Iterator[memoryview]:
        for spec, data in list(zip(HYBRID.side, self.whole, strict=True))[: self._counts[1]]:
            self.asked.append(spec.name)
            yield memoryview(data)


@pytest.fixture(autouse=True)
def tiny_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tensor is a group of its own, and every file a job."""
    monkeypatch.setattr(restore, "JOB_BYTES", 1)
    monkeypatch.setattr(restore, "MIN_READ_BYTES", 1)


def chain(folder: Path):
    store, log = open_store(folder), log_of(TOKENS)
    for end in (15, 30, TOKENS):
        save(store, HYBRID, log, end)
    return store, log


def test_memory_made_on_the_way_holds_the_state(tmp_path: Path) -> None:
    store, log = chain(tmp_path)
    lender = Lender()
    with store.open(find(store, HYBRID, log)[0]) as state:
        state.fill(lender.rows(), lender.side())
    assert lender.asked == ["0.k", "0.v", "1.state", "1.empty"]
    for spec, data in zip(HYBRID.rows, lender.memory, strict=True):
        assert data == HYBRID.tensor(log, spec, 0, TOKENS).data
    assert lender.whole == [bytes(tensor.data) for tensor in HYBRID.snapshot(log, TOKENS)]


@pytest.mark.parametrize(("rows", "side"), [(1, 2), (0, 2), (2, 1), (2, 0)])
def test_too_little_memory_is_a_foreign_checkpoint(tmp_path: Path, rows: int, side: int) -> None:
    store, log = chain(tmp_path)
    lender = Lender(rows, side)
    with store.open(find(store, HYBRID, log)[0]) as state, pytest.raises(CheckpointRejected) as caught:
        state.fill(lender.rows(), lender.side())
    assert caught.value.reason == "foreign"


def test_failure_of_the_one_who_lends_is_his(tmp_path: Path) -> None:
    store, log = chain(tmp_path)
    lender = Lender()

    def broken() -> Iterator[RowBuffer]:
        yield next(lender.rows())
        raise MemoryError("no more")

    with store.open(find(store, HYBRID, log)[0]) as state:
        with pytest.raises(MemoryError, match="no more"):
            state.fill(broken(), lender.side())
        # Every reader has let go: else this would raise BufferError.
        lender.memory[0].append(0)


def test_no_more_memory_is_asked_for_when_a_file_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, log = chain(tmp_path)
    found = find(store, HYBRID, log)[0]
    lender = Lender()
    with store.open(found) as state:
        for file in payload(tmp_path):
            data = bytearray(file.read_bytes())
            data[-TOKENS * 100 :] = bytes(len(data[-TOKENS * 100 :]))
            with file.open("r+b") as stream:
                stream.write(data)
        # Each job is done before the next piece of memory is asked for.
        submit = restore.ThreadPoolExecutor.submit

        def at_once(pool, job):
            future = submit(pool, job)
            future.exception()
            return future

        monkeypatch.setattr(restore.ThreadPoolExecutor, "submit", at_once)
        with pytest.raises(CheckpointRejected):
            state.fill(lender.rows(), lender.side())
    assert lender.asked == ["0.k"]
