"""Random programs on the store against a dictionary: what comes back is what was saved for exactly that prefix."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from qmlx_lsp.errors import CheckpointRejected, StoreError
from qmlx_lsp.storage.files import OsFiles
from qmlx_lsp.transcript.tokens import TokenLog
from tests.support.toy_state import (
    Toy,
    branch,
    check_fill,
    find,
    log_of,
    open_store,
    payload,
    payload_bytes,
    restore,
    save,
    why,
)

TOYS = (Toy("rows"), Toy("hybrid", hybrid=True))
QUOTAS = (80_000, 200_000, 1 << 30)


class QuickFiles(OsFiles):
    """Without the waiting: what fsync is for has its own tests."""

    def fsync(self, fd: int) -> None:
        pass


class StoreMachine(RuleBasedStateMachine):
    @initialize(quota=st.sampled_from(QUOTAS))
    def begin(self, quota: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.quota = quota
        self.now = 1_000.0
        self.logs: list[TokenLog] = [log_of(5)]
        self.saved: set[tuple[str, bytes]] = set()  # model and digest of every position ever saved
        self.lossless = quota == QUOTAS[-1]
        self._open()

    def _open(self) -> None:
        self.store = open_store(self.folder, QuickFiles(), quota=self.quota, clock=lambda: self.now)

    @rule(pick=st.integers(0, 9), count=st.integers(1, 40))
    def grow(self, pick: int, count: int) -> None:
        log = self.logs[pick % len(self.logs)]
        if len(log) < 300:  # beyond two cells of the digest
            log.extend(range(len(log), len(log) + count * 5))

    @rule(pick=st.integers(0, 9), at=st.integers(0, 400), first=st.integers(100, 103))
    def fork(self, pick: int, at: int, first: int) -> None:
        log = self.logs[pick % len(self.logs)]
        self.logs.append(branch(log, min(at, len(log)), [first, 7, 7]))

    @rule(pick=st.integers(0, 9), toy=st.sampled_from(TOYS), short=st.sampled_from([0, 0, 1, 30]))
    def save(self, pick: int, toy: Toy, short: int) -> None:
        log = self.logs[pick % len(self.logs)]
        end = max(1, len(log) - short)
        self.now += 100
        before = payload_bytes(self.folder)
        try:
            written = save(self.store, toy, log, end)
        except StoreError:
            assert not self.lossless
            return
        self.saved.add((toy.name, log.digest(end)))
        if self.lossless:
            assert payload_bytes(self.folder) == before + written
        assert find(self.store, toy, log)[0].position >= end

    @rule(pick=st.integers(0, 9), toy=st.sampled_from(TOYS))
    def restore(self, pick: int, toy: Toy) -> None:
        log = self.logs[pick % len(self.logs)]
        self.now += 100
        known = [at for at in range(len(log) + 1) if (toy.name, log.digest(at)) in self.saved]
        position, tried = restore(self.store, toy, log)  # compares every byte
        assert tried <= 1 or not self.lossless
        if not toy.hybrid:  # rows can also be had at the joints of other chains
            assert position in (0, *known) or not self.lossless
        if position:
            assert (toy.name, log.digest(position)) in self.saved
        else:
            assert why(self.store, toy, log)
        if self.lossless:
            assert position == max(known, default=0)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self._open()

    @rule()
    def lose_the_index(self) -> None:
        self.store.close()
        (self.folder / "index.db").unlink()
        self._open()

    @precondition(lambda self: not self.lossless or len(self.saved) > 2)
    @rule(pick=st.integers(0, 99), at=st.integers(0, 10**6), cut=st.booleans())
    def damage(self, pick: int, at: int, cut: bool) -> None:
        files = [path for path in payload(self.folder) if path.parent.name != "quarantine"]
        if not files:
            return
        path = files[pick % len(files)]
        data = bytearray(path.read_bytes())
        if cut:
            del data[at % len(data) :]
        else:
            data[at % len(data)] ^= 1
        path.write_bytes(data)
        self.lossless = False

    @rule(pick=st.integers(0, 9), toy=st.sampled_from(TOYS))
    def evict_while_reading(self, pick: int, toy: Toy) -> None:
        log = self.logs[pick % len(self.logs)]
        for found in find(self.store, toy, log)[:1]:
            try:
                with self.store.open(found) as state:
                    for seed in range(3):
                        try:
                            save(self.store, toy, log_of(60, seed=900 + seed))
                        except StoreError:
                            assert not self.lossless
                    self.saved |= {(toy.name, log_of(60, seed=900 + seed).digest(60)) for seed in range(3)}
                    check_fill(state, toy, log)
            except CheckpointRejected as error:
                assert not self.lossless
                self.store.reject(found, error)

    @invariant()
    def within_the_quota(self) -> None:
        if hasattr(self, "store"):
            assert self.quota >= payload_bytes(self.folder)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.folder)


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    deadline=None, max_examples=12, stateful_step_count=20, suppress_health_check=list(HealthCheck)
)
