"""Write-behind: order, budget, what is overtaken, and the end."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path

import pytest

from qmlx_lsp.errors import StoreError
from qmlx_lsp.storage.writer import WriteBehind
from qmlx_lsp.transcript.tokens import TokenLog
from tests.support.faulty_files import FaultyFiles
from tests.support.toy_state import Toy, find, key, log_of, open_store, restore

HYBRID, ROWS = Toy("hybrid", hybrid=True), Toy("rows")
WAIT_S = 20


class Gated(FaultyFiles):
    """Writes only while ``go`` is set; ``began`` is set when somebody would like to."""

    def __init__(self, **faults: int) -> None:
        super().__init__(**faults)
        self.go, self.began = threading.Event(), threading.Event()

    def pwritev(self, fd, pieces, offset):  # type: ignore[no-untyped-def]
        self.began.set()
        assert self.go.wait(WAIT_S)
        return super().pwritev(fd, pieces, offset)


class Desk:
    """A store behind a gate, and a writer in front of it."""

    def __init__(self, folder: Path, budget: int = 1 << 30) -> None:
        self.files = Gated()
        self.store = open_store(folder, self.files)
        self.writer = WriteBehind(self.store, budget)

    def submit(self, toy: Toy, log: TokenLog, a: int, b: int, owner: str = "me", *anchors: int):  # type: ignore[no-untyped-def]
        return self.writer.submit(owner, key(toy, log, *anchors), toy.copy(log, a, b))


@pytest.fixture
def desk(tmp_path: Path):  # type: ignore[no-untyped-def]
    made: list[Desk] = []

    def make(budget: int = 1 << 30) -> Desk:
        made.append(Desk(tmp_path / "s", budget))
        return made[-1]

    yield make
    for each in made:
        each.files.go.set()
        each.writer.stop(WAIT_S)
        each.store.close()


Make = Callable[..., Desk]


def test_what_is_overtaken_in_the_queue_leaves_its_rows_and_no_snapshot(desk: Make) -> None:
    d, log = desk(), log_of(60)
    futures = [d.submit(HYBRID, log, 0, 10, "me", 20)]
    assert d.files.began.wait(WAIT_S)  # the first one is being written: it stays as it is
    futures += [d.submit(HYBRID, log, a, a + 10, "me", 20) for a in range(10, 60, 10)]
    d.files.go.set()
    saved = [future.result(WAIT_S) for future in futures]
    assert [s.covered for s in saved] == [10, 20, 30, 40, 50, 60]
    assert [s.found.position for s in saved] == [10, 20, 20, 20, 20, 60]
    assert [found.position for found in find(d.store, HYBRID, log)] == [60, 20, 10]
    assert restore(d.store, HYBRID, log) == (60, 1)


def test_beyond_the_budget_nothing_is_taken_and_nothing_waits(desk: Make) -> None:
    log = log_of(600)
    size = ROWS.copy(log, 0, 200).nbytes
    d = desk(2 * size + 10)
    assert not d.writer.full
    first = d.submit(ROWS, log, 0, 200)
    assert d.writer.waiting_bytes == size
    second = d.submit(ROWS, log, 200, 400)
    assert d.submit(ROWS, log, 400, 600) is None
    assert (d.writer.waiting_bytes, d.writer.full) == (2 * size, False)
    d.files.go.set()
    wait([first, second], WAIT_S)
    third = d.submit(ROWS, log, 400, 600)
    assert third.result(WAIT_S).covered == 600


def test_a_copy_larger_than_the_budget_is_taken_when_it_is_alone(desk: Make) -> None:
    d, log = desk(10), log_of(60)
    future = d.submit(ROWS, log, 0, 60)
    assert d.writer.full
    assert d.submit(ROWS, log_of(5, seed=1), 0, 5) is None
    d.files.go.set()
    assert future.result(WAIT_S).covered == 60


def test_who_is_asked_for_goes_first(desk: Make) -> None:
    d = desk()
    logs = {name: log_of(20, seed=seed) for seed, name in enumerate("abc")}
    done: list[str] = []
    for name, log in logs.items():
        for a in (0, 10):
            d.submit(ROWS, log, a, a + 10, name).add_done_callback(lambda _, name=name: done.append(name))
            assert d.files.began.wait(WAIT_S)  # a's first
    pending = d.writer.pending("c")
    assert len(pending) == 2
    d.files.go.set()
    wait(pending, WAIT_S)
    wait([*d.writer.pending("a"), *d.writer.pending("b")], WAIT_S)
    assert done == ["a", "c", "c", "a", "b", "b"]
    assert d.writer.pending("a") == []


def test_at_the_end_the_deepest_conversation_is_written_first(desk: Make) -> None:
    d = desk()
    shallow, deep = log_of(20, seed=1), log_of(300, seed=2)
    done: list[str] = []
    d.submit(ROWS, log_of(5), 0, 5, "first")
    assert d.files.began.wait(WAIT_S)
    d.submit(HYBRID, shallow, 0, 20, "shallow").add_done_callback(lambda _: done.append("shallow"))
    d.submit(HYBRID, deep, 0, 100, "deep").add_done_callback(lambda _: done.append("deep"))
    d.submit(HYBRID, deep, 100, 300, "deep").add_done_callback(lambda _: done.append("deeper"))
    lost: list[int] = []
    stopping = threading.Thread(target=lambda: lost.append(d.writer.stop(WAIT_S)))
    stopping.start()
    while not d.writer.full:  # it is, as soon as it takes nothing more
        pass
    d.files.go.set()
    stopping.join()
    assert lost == [0]
    assert done == ["deep", "deeper", "shallow"]
    assert restore(d.store, HYBRID, deep) == (300, 1)
    assert d.submit(ROWS, shallow, 0, 20) is None
    assert d.writer.full


def test_an_end_that_cannot_wait_says_what_was_given_up(desk: Make) -> None:
    d, log = desk(), log_of(60)
    first, second = d.submit(ROWS, log, 0, 30), d.submit(ROWS, log, 30, 60)
    assert d.files.began.wait(WAIT_S)
    assert d.writer.stop(0.0) == 2
    with pytest.raises(StoreError, match="ended before"):
        second.result(WAIT_S)
    d.files.go.set()
    assert first.result(WAIT_S).covered == 30


def test_a_failure_reaches_who_waits_and_the_next_one_works(desk: Make) -> None:
    d, log = desk(), log_of(60)
    d.files.fail_at, d.files.code = d.files.count + 3, errno.ENOSPC
    d.files.go.set()
    with pytest.raises(StoreError, match="No space left"):
        d.submit(HYBRID, log, 0, 30).result(WAIT_S)
    assert d.submit(HYBRID, log, 0, 60).result(WAIT_S).found.position == 60
