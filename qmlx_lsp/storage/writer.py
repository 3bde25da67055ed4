"""Write-behind: copies of states wait in memory, within a budget, and are written on a thread of their own.

It must never make anybody wait: who submits goes on at once, and what does not fit the budget is refused, because
its rows are still in the live state and can be copied again.

Invariant: the copies of one owner are written in the order in which they were submitted.
Invariant: a snapshot that a newer one of the same log overtakes in the queue is not written; its rows are.
Invariant: every future ends, also when the queue is abandoned at the end of the process.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from qmlx_lsp.errors import StoreError
from qmlx_lsp.state import StateCopy
from qmlx_lsp.storage.checkpoints import CheckpointStore
from qmlx_lsp.storage.saving import Key, Saved


@dataclass(slots=True, eq=False)
class _Item:
    owner: str
    key: Key
    copy: StateCopy
    merged: StateCopy | None  # rows that go from many small segments into one
    future: Future[Saved] = field(default_factory=Future)

    @property
    def nbytes(self) -> int:
        return self.copy.nbytes + (self.merged.nbytes if self.merged else 0)


class WriteBehind:
    """Writes into ``store``; holds at most about ``budget_bytes`` of copies. Any thread may call."""

    def __init__(self, store: CheckpointStore, budget_bytes: int) -> None:
        self._store = store
        self._budget = budget_bytes
        self._changed = threading.Condition()
        self._queue: deque[_Item] = deque()
        self._writing: _Item | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="qmlx-writer", daemon=True)
        self._thread.start()

    @property
    def waiting_bytes(self) -> int:
        """Bytes of copies that are not on the disk yet."""
        with self._changed:
            return self._held()

    def _held(self) -> int:
        items = [*self._queue, self._writing] if self._writing else self._queue
        return sum(item.nbytes for item in items)

    @property
    def full(self) -> bool:
        """Whether a copy made now would be refused: look before you copy."""
        with self._changed:
            return self._stopping or self._held() >= self._budget

    def submit(self, owner: str, key: Key, copy: StateCopy, merged: StateCopy | None = None) -> Future[Saved] | None:
        """Write ``copy`` (and then ``merged``) soon; None when the budget does not allow it.

        A copy larger than the whole budget is taken when nothing else waits. The future raises StoreError.
        """
        item = _Item(owner, key, copy, merged)
        with self._changed:
            held = self._held()
            if self._stopping or (held and held + item.nbytes > self._budget):
                return None
            for other in self._queue:
                overtaken = other.key.log is key.log and other.copy.end < copy.end and copy.snapshot is not None
                if overtaken and other.copy.end not in key.anchors:
                    other.copy = replace(other.copy, snapshot=None)
            self._queue.append(item)
            self._changed.notify_all()
        return item.future

    def pending(self, owner: str) -> list[Future[Saved]]:
        """What of ``owner`` is not on the disk yet, in order; it goes before everybody else's from now on."""
        with self._changed:
            mine = [item for item in self._queue if item.owner == owner]
            others = [item for item in self._queue if item.owner != owner]
            self._queue = deque([*mine, *others])
            if self._writing is not None and self._writing.owner == owner:
                mine.insert(0, self._writing)
            return [item.future for item in mine if not item.future.done()]

    def stop(self, timeout_s: float) -> int:
        """Take nothing more, write what waits, the owner with the deepest checkpoint first; at most ``timeout_s``.

        Returns how many copies were given up; their futures raise StoreError.
        """
        with self._changed:
            self._stopping = True
            deepest: dict[str, int] = {}
            for item in self._queue:
                deepest[item.owner] = max(item.copy.end, deepest.get(item.owner, 0))
            self._queue = deque(sorted(self._queue, key=lambda item: -deepest[item.owner]))
            self._changed.notify_all()
        self._thread.join(timeout_s)
        with self._changed:
            left: Sequence[_Item] = tuple(self._queue)
            self._queue.clear()
        for item in left:
            item.future.set_exception(StoreError("the program ended before the checkpoint was written"))
        return len(left) + self._thread.is_alive()

    def _run(self) -> None:
        while (item := self._next()) is not None:
            try:
                result = self._store.save(item.key, item.copy, owner=item.owner)
                if item.merged is not None:
                    result = replace(result, written=result.written + self._merge(item), merge=None)
            except Exception as error:  # noqa: BLE001 - carried to whoever waits for it
                item.future.set_exception(error)
            else:
                item.future.set_result(result)
            del item  # idle, the thread holds nobody's rows

    def _merge(self, item: _Item) -> int:
        """Tidying up: what it cannot do now, it can do after another turn."""
        assert item.merged is not None
        try:
            return self._store.merge(item.key, item.merged, owner=item.owner)
        except StoreError:
            return 0

    def _next(self) -> _Item | None:
        with self._changed:
            self._writing = None
            while not self._queue and not self._stopping:
                self._changed.wait()
            self._writing = self._queue.popleft() if self._queue else None
            return self._writing
