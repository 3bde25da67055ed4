"""The store under load: long chains, many checkpoints, two processes, a save beside a restore."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from qmlx_lsp.storage.checkpoints import CheckpointStore
from qmlx_lsp.storage.index import Index
from qmlx_lsp.storage.row import Kind, Row
from qmlx_lsp.transcript.tokens import TokenLog
from tests.support.toy_state import (
    Toy,
    check_fill,
    find,
    log_of,
    open_store,
    restore,
    save,
)

ROWS, HYBRID = Toy("rows"), Toy("hybrid", hybrid=True)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CheckpointStore]:
    store = open_store(tmp_path)
    yield store
    store.close()


def test_longer_chains_than_there_are_descriptors(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qmlx_lsp.storage.restore.MAX_HELD_FILES", 2)
    log = log_of(12)
    for end in range(2, 13, 2):
        save(store, HYBRID, log, end)
    assert restore(store, HYBRID, log) == (12, 1)


def test_a_lookup_asks_little_however_much_is_stored(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand checkpoints on one log, and a thousand other logs with the same opening."""
    log = log_of(100_000)
    ends = range(100, 100_001, 100)
    rows = []
    for b in ends:
        digests = (log.digest(b - 100), log.digest(b))
        rows.append(Row(Kind.SEGMENT, ROWS.fingerprint, b - 100, b, *digests, 1, 1, b"", False, 0.0, 0.0))
    asked: list[str] = []
    for name in ("beginning", "window"):
        real = getattr(Index, name)
        monkeypatch.setattr(Index, name, lambda *given, _real=real, _name=name: asked.append(_name) or _real(*given))
    store._catalog.ask(lambda index: index.insert(rows))
    found = find(store, ROWS, log)
    assert [len(f.segments) for f in found[:2]] == [1_000, 999]
    assert asked == ["window"] * 13  # of 8,192 tokens each
    others = [
        Row(Kind.SEGMENT, ROWS.fingerprint, 100, 300 + n, log.digest(100), b"%016d" % n, 1, 1, b"", False, 0.0, 0.0)
        for n in range(1_000)
    ]
    store._catalog.ask(lambda index: index.insert(others))
    asked.clear()
    short = TokenLog(log.ids(0, 200))
    assert [f.position for f in find(store, ROWS, short)] == [200, 100]
    assert asked == ["window", "beginning", "beginning", "beginning"]  # crowded: from point to point


def test_two_processes_may_share_a_store(store: CheckpointStore, tmp_path: Path) -> None:
    other, log = open_store(tmp_path), log_of(40)
    save(store, HYBRID, log, 20)
    assert restore(other, HYBRID, log) == (20, 1)
    save(other, HYBRID, log)
    assert save(store, HYBRID, log) == 0
    found = find(store, HYBRID, log)[0]
    with store.open(found) as state:
        other.forget()
        check_fill(state, HYBRID, log)
    assert find(store, HYBRID, log) == []
    assert save(store, HYBRID, log) > 0
    assert restore(other, HYBRID, log) == (40, 1)
    assert other.stats() == store.stats()
    other.close()


def test_one_thread_saves_while_another_restores(store: CheckpointStore) -> None:
    log = log_of(400)
    save(store, HYBRID, log, 1)

    def write() -> None:
        for end in range(20, 401, 20):
            save(store, HYBRID, log, end)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        seen = [restore(store, HYBRID, log)]
        while not writing.done():
            seen.append(restore(store, HYBRID, log))
        writing.result()
    seen.append(restore(store, HYBRID, log))
    assert seen == sorted(seen)
    assert seen[-1] == (400, 1)
