"""What must not be deleted just now: checkpoints that are being read, and those that somebody asked to keep.

It must never block: taking and giving back is one short step under its own lock, whoever saves meanwhile.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager


class Leases:
    """Counted leases (by use) and pins (by owner; an owner has one set). Ids are files' ids."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leased: Counter[bytes] = Counter()
        self._pins: dict[str, frozenset[bytes]] = {}

    @contextmanager
    def lease(self, ids: Collection[bytes]) -> Iterator[None]:
        with self._lock:
            self._leased.update(ids)
        try:
            yield
        finally:
            with self._lock:
                self._leased.subtract(ids)
                self._leased += Counter()  # drops what is at zero

    def pin(self, owner: str, ids: Collection[bytes]) -> None:
        """Keep ``ids`` instead of what ``owner`` kept before; none at all unpins."""
        with self._lock:
            if ids:
                self._pins[owner] = frozenset(ids)
            else:
                self._pins.pop(owner, None)

    def held(self) -> set[bytes]:
        """Ids of everything leased or pinned."""
        with self._lock:
            return {*self._leased, *(id_ for ids in self._pins.values() for id_ in ids)}
