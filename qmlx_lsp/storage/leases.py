"""What must not be deleted just now, in this process and in others: what is being read, and what is to be kept.

Every open store has a file of its own below ``owners/`` with the ids it holds, and keeps that file locked while it
lives. A file whose lock can be had belongs to a dead process and is swept; so no clock and no heartbeat is needed,
and a pid that was given out again deceives nobody.

It must never fail a reader: where the folder cannot be written, nobody can delete there either, and leases are
kept in this process alone.

Invariant: who deletes asks ``free`` and deletes within it; meanwhile nobody comes to hold anything. So a lease that
was taken before its rows were looked up is respected by every process, or the lookup finds the rows gone.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from qmlx_lsp.storage.files import FOLDER_MODE
from qmlx_lsp.storage.locks import flock, open_lock, try_flock, unlock
from qmlx_lsp.storage.row import ID_BYTES

FOLDER = "owners"
GATE_WAIT_S = 2.0  # seconds; a reader that has waited so long goes on, and may find its files gone: a miss
_GATE = "gate"


class Leases:
    """Counted leases (by use) and pins (by owner; an owner has one set). Ids are files' ids."""

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._leased: Counter[bytes] = Counter()
        self._pins: dict[str, frozenset[bytes]] = {}
        self._folder = folder / FOLDER
        self._name = f"{os.getpid()}-{secrets.token_hex(4)}"
        self._own = self._gate = -1
        self._published: frozenset[bytes] = frozenset()
        self.appear()

    def appear(self) -> None:
        """Tell other processes what we hold, in a new file: at the beginning, and when the folder was taken away."""
        with self._lock:
            self._disappear()
            with suppress(OSError):
                self._folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
                self._gate = open_lock(self._folder / _GATE)
                entered = flock(self._gate, fcntl.LOCK_SH, GATE_WAIT_S)  # no sweeper sees the file before its lock
                try:
                    self._own = open_lock(self._folder / self._name)
                    flock(self._own, fcntl.LOCK_EX, GATE_WAIT_S)
                finally:
                    if entered:
                        unlock(self._gate)
            self._publish()

    def _disappear(self) -> None:
        if self._own >= 0:
            with suppress(OSError):
                (self._folder / self._name).unlink()
        for fd in (self._own, self._gate):
            if fd >= 0:
                os.close(fd)
        self._own = self._gate = -1
        self._published = frozenset()

    def close(self) -> None:
        """Hold nothing any more."""
        with self._lock:
            self._disappear()

    @contextmanager
    def lease(self, ids: Collection[bytes]) -> Iterator[None]:
        """Hold ``ids`` until the context ends."""
        with self._lock:
            self._leased.update(ids)
            self._publish()
        try:
            yield
        finally:
            with self._lock:
                self._leased.subtract(ids)
                self._leased += Counter()  # drops what is at zero
                self._publish()

    def pin(self, owner: str, ids: Collection[bytes]) -> None:
        """Keep ``ids`` instead of what ``owner`` kept before; none at all unpins."""
        with self._lock:
            if ids:
                self._pins[owner] = frozenset(ids)
            else:
                self._pins.pop(owner, None)
            self._publish()

    def _mine(self) -> frozenset[bytes]:
        return frozenset(self._leased).union(*self._pins.values())

    def _publish(self) -> None:
        """Tell the other processes, if there is anything new to tell."""
        mine = self._mine()
        if mine == self._published or self._own < 0:
            return
        data = b"".join(sorted(mine))
        with suppress(OSError):
            entered = flock(self._gate, fcntl.LOCK_SH, GATE_WAIT_S)
            try:
                os.pwrite(self._own, data, 0)
                os.ftruncate(self._own, len(data))
                self._published = mine
            finally:
                if entered:
                    unlock(self._gate)

    def held(self) -> set[bytes]:
        """Ids of everything leased or pinned, here and in other processes."""
        with self._lock:
            return {*self._mine(), *self._others(sweep=False)}

    @contextmanager
    def free(self, ids: Collection[bytes]) -> Iterator[list[bytes]]:
        """Those of ``ids`` that nobody holds, in their order. Nobody can come to hold them until the context ends."""
        with self._lock:
            entered = self._gate >= 0 and flock(self._gate, fcntl.LOCK_EX, GATE_WAIT_S)
            try:
                held = self._mine() | self._others(sweep=entered)
                yield [id_ for id_ in ids if id_ not in held]
            finally:
                if entered:
                    unlock(self._gate)

    def _others(self, *, sweep: bool) -> set[bytes]:
        """What other living processes hold. ``sweep`` deletes the files of dead ones: with the gate closed only."""
        found: set[bytes] = set()
        with suppress(OSError):
            for file in sorted(self._folder.iterdir()):
                if file.name in (self._name, _GATE):
                    continue
                ids = _held_by(file)
                if ids is not None:
                    found |= ids
                elif sweep:
                    file.unlink()
        return found


def owners(folder: Path) -> tuple[set[bytes], list[str]]:
    """What living processes hold of a store, and the names of dead ones' files. Changes nothing."""
    held: set[bytes] = set()
    dead: list[str] = []
    with suppress(OSError):
        for file in sorted((folder / FOLDER).iterdir()):
            ids = set() if file.name == _GATE else _held_by(file)
            if ids is None:
                dead.append(file.name)
            else:
                held |= ids
    return held, dead


def _held_by(file: Path) -> set[bytes] | None:
    """The ids in an owner's file, or None when the owner is dead."""
    try:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return set()
    try:
        if try_flock(fd, fcntl.LOCK_SH):
            return None
        data = os.pread(fd, os.fstat(fd).st_size, 0)
    finally:
        os.close(fd)
    return {data[at : at + ID_BYTES] for at in range(0, len(data) - ID_BYTES + 1, ID_BYTES)}
