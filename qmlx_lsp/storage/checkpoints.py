"""The checkpoint store: finds, reads, writes and retires the model's states on disk.

It must never serve a state that is doubtful, fail a turn because of its own trouble (a lookup then finds
nothing), or delete what is leased.

Invariant: after a crash at any moment the next opening finds every checkpoint whole or not at all.
Invariant: everything in the folder stays within the quota, the quarantine and temporary files included. The index
alone does not count (about 300 bytes a file, and a journal of at most a MiB), for it can be thrown away.
Invariant: several processes may use one store; one at a time writes, and what anyone holds is not deleted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

from qmlx_lsp.errors import CheckpointRejected, StoreError
from qmlx_lsp.state import StateCopy, StoredState
from qmlx_lsp.storage import lookup
from qmlx_lsp.storage.catalog import Catalog
from qmlx_lsp.storage.files import FileSystem, OsFiles
from qmlx_lsp.storage.lookup import Digests, Found, Miss, Reach
from qmlx_lsp.storage.restore import OpenCheckpoint
from qmlx_lsp.storage.saving import Key, Saved, Saver
from qmlx_lsp.storage.segment import FileRejected
from qmlx_lsp.storage.shelf import damage, reason_of
from qmlx_lsp.transcript.tokens import TokenLog

__all__ = ["CheckpointStore", "Found", "Key", "Miss", "Saved"]

_T = TypeVar("_T")

_TROUBLE = (OSError, sqlite3.Error)
_NO_FAULT = ("evicted", "unreadable")  # reasons of ours that blame no file


class CheckpointStore:
    """One store below ``folder``. Sizes are bytes; ``clock`` gives seconds.

    ``quota_bytes`` bounds the files of the store, ``free_floor_bytes`` is what a save leaves free on the volume.
    Any thread may call; saves run one after another.

    Raises:
        StoreError: the folder cannot be used.
    """

    def __init__(
        self,
        folder: Path,
        *,
        files: FileSystem | None = None,
        quota_bytes: int,
        free_floor_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self._folder = folder
        self._quota = quota_bytes
        self._clock = clock
        self._files = files or OsFiles()
        self._current: set[bytes] = set()  # fingerprints in use since the store was opened
        try:
            self._catalog = Catalog(self._files, folder, quota_bytes)
        except _TROUBLE as error:
            raise StoreError(self._useless(error)) from error
        self._saver = Saver(self._catalog, self._files, folder, quota_bytes, free_floor_bytes, clock)

    def _useless(self, error: Exception) -> str:
        why = reason_of(error) if isinstance(error, OSError) else str(error)
        return f"the checkpoint store {self._folder} cannot be used ({why}): make the folder writable or move it"

    def close(self) -> None:
        """Close the index. Open checkpoints can still be read; nothing else works afterwards."""
        self._catalog.close()

    # -- finding ---------------------------------------------------------------------------------------------------

    def find(self, fingerprint: bytes, log: TokenLog, *, needs_snapshot: bool, limit: int) -> list[Found]:
        """Checkpoints of at most ``limit`` tokens that fit ``log``, longest first. Trouble finds nothing."""
        return self._stored(fingerprint, log, limit).candidates(log, needs_snapshot=needs_snapshot)

    def why_none(self, fingerprint: bytes, log: TokenLog, *, limit: int) -> str:
        """Why ``find`` came back empty.

        ``evicted``, ``forgotten`` or a rejection's reason (``corrupt`` …) if something that fitted was taken out
        since the opening; ``incomplete`` if rows are there without a snapshot, or behind a gap; ``fingerprint`` if
        it fits another model; ``unreadable`` if the index does not answer; else ``no checkpoint``.
        """
        limit = min(limit, len(log))
        try:
            own = self._catalog.ask(lambda index: index.ends(fingerprint, limit, own=True))
            foreign = self._catalog.ask(lambda index: index.ends(fingerprint, limit, own=False))
        except _TROUBLE:
            return "unreadable"
        return lookup.why(own, foreign, self._catalog.gone(fingerprint), Digests(log)).reason

    def covered(self, fingerprint: bytes, log: TokenLog, limit: int) -> int:
        """How many tokens of ``log``, at most ``limit``, have their rows in the store; 0 in case of trouble."""
        return self._stored(fingerprint, log, limit).end

    def _stored(self, fingerprint: bytes, log: TokenLog, limit: int) -> Reach:
        self._current.add(fingerprint)
        try:
            return self._saver.reach(fingerprint, Digests(log), min(limit, len(log)))
        except _TROUBLE:
            return lookup.NOTHING

    # -- reading ---------------------------------------------------------------------------------------------------

    def open(self, found: Found) -> AbstractContextManager[StoredState]:
        """The checkpoint, leased until the context ends. Entering raises CheckpointRejected."""
        return self._opened(found)

    @contextmanager
    def _opened(self, found: Found) -> Iterator[StoredState]:
        ids = found.files
        with self._catalog.leases.lease(ids):
            try:
                rows = self._catalog.ask(lambda index: index.get(ids))
            except _TROUBLE as error:
                raise CheckpointRejected("unreadable", f"the checkpoint index cannot be read: {error}") from None
            if len(rows) != len(ids):
                raise CheckpointRejected("evicted", "the checkpoint was retired after it was found")
            known = [rows[id_] for id_ in ids]
            paths = [self._catalog.shelf.path(row.name) for row in known]
            with OpenCheckpoint(self._files, found, paths, known) as state:
                self._touch(ids)
                yield state

    def _touch(self, ids: tuple[bytes, ...]) -> None:
        now = self._clock()
        try:
            self._catalog.ask(lambda index: index.touch(ids, now))
        except _TROUBLE:
            return  # a use that is not noted costs nothing but a little of the order of retirement

    def reject(self, found: Found, error: CheckpointRejected) -> None:
        """Take the offending file out of the store: it is never served again, nor is what needs it.

        A rejection that names no file (the engine could not use the state) costs the checkpoint's last file. A
        disk that does not answer costs the index row only, until the next save or opening.
        """
        if not isinstance(error, FileRejected) and error.reason in _NO_FAULT:
            return
        ids = found.files
        try:
            rows = self._catalog.ask(lambda index: index.get(ids))
            if isinstance(error, FileRejected):
                bad = next((row for row in rows.values() if row.name == error.name), None)
            else:
                bad = rows.get(ids[-1])
            if bad is not None:  # else somebody was faster
                aside = not isinstance(error, FileRejected) or damage(error)
                self._catalog.take_out(bad, error.reason, aside=aside)
        except _TROUBLE:
            return  # the file's own checksums go on protecting everyone

    def pin(self, owner: str, found: Found | None) -> None:
        """Keep a checkpoint, whatever the quota says, until ``owner`` pins another one or None."""
        self._catalog.leases.pin(owner, found.files if found else ())

    # -- writing ---------------------------------------------------------------------------------------------------

    def save(self, key: Key, copy: StateCopy, *, owner: str | None = None) -> Saved:
        """Write rows ``[copy.start, copy.end)`` and the snapshot at ``copy.end``.

        Nothing is written when both are there already, and when the chain up to ``copy.start`` is no longer there
        (what stands behind a gap could never match): ask ``covered`` again. The deepest checkpoint is pinned for
        ``owner``; the log's snapshots that it makes worthless are deleted.

        Raises:
            StoreError: no space, no permission, larger than the quota …; whatever was stored before still is.
        """
        assert 0 <= copy.start <= copy.end <= len(key.log), "a copy is of tokens that are in the log"
        return self._change(key, lambda: self._saver.save(key, copy, owner, self._current))

    def merge(self, key: Key, copy: StateCopy, *, owner: str | None = None) -> int:
        """Put the rows of ``copy``, which lie in many small segments (``Saved.merge``), into one; bytes written.

        Raises:
            StoreError: as ``save``.
        """
        return self._change(key, lambda: self._saver.merge(key, copy, owner, self._current))

    def _change(self, key: Key, change: Callable[[], _T]) -> _T:
        self._current.add(key.fingerprint)
        try:
            with self._catalog.changing.held():
                self._catalog.settle(every_size=False)
                return change()
        except OSError as error:
            message = f"checkpoints cannot be written to {self._folder}: {reason_of(error)}"
            raise StoreError(f"{message}; free some space or check the folder") from error
        except sqlite3.Error as error:
            raise StoreError(f"the checkpoint index in {self._folder} cannot be written: {error}") from error

    def stats(self) -> dict[str, int]:
        """``bytes`` on disk (all but the index), ``index_bytes``, ``quota_bytes``, number of ``segments`` and
        ``snapshots``.

        ``quarantined`` counts the files found damaged since the opening, and those that lay aside by then.
        Raises StoreError when the index does not answer.
        """
        try:
            size, segments, snapshots = self._catalog.counts()
            index_bytes = self._catalog.shelf.index_bytes()
        except _TROUBLE as error:
            raise StoreError(self._useless(error)) from error
        return {
            "bytes": size,
            "index_bytes": index_bytes,
            "quota_bytes": self._quota,
            "segments": segments,
            "snapshots": snapshots,
            "quarantined": self._catalog.shelf.set_aside,
        }

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def catalog(self) -> Catalog:
        """What ``upkeep`` works on. Raises OSError and sqlite3.Error where this class raises StoreError."""
        return self._catalog

    def forget(self) -> None:
        """Delete everything, files and index. Raises StoreError when the disk refuses."""
        try:
            self._catalog.forget()
        except _TROUBLE as error:
            raise StoreError(self._useless(error)) from error
