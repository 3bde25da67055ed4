"""Index and files kept in agreement: taking in, taking out, making room, starting over.

It must never decide what fits a token log (``lookup``) nor which file is worth least (``retention``); it carries
out what they say, in the order that a crash cannot turn into a lie.

Invariant: a file is published before its row is written. A crash leaves a file without a row, or (in a retirement)
a row without a file; ``settle`` mends both.
Invariant: after ``settle`` every row has its file, and every file that can be read has its row.
Invariant: one process at a time changes the store (``changing``); nothing that anyone holds is deleted.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from qmlx_lsp.errors import StoreError
from qmlx_lsp.storage import retention
from qmlx_lsp.storage.files import FileSystem
from qmlx_lsp.storage.index import Index, damaged
from qmlx_lsp.storage.leases import Leases
from qmlx_lsp.storage.locks import FileLock
from qmlx_lsp.storage.lookup import Point
from qmlx_lsp.storage.row import Row, parse_name
from qmlx_lsp.storage.segment import Encoded, FileRejected
from qmlx_lsp.storage.shelf import Shelf, damage

INDEX_NAME = "index.db"
LOCK_NAME = "lock"
LOCK_WAIT_S = 10.0  # seconds that a change waits for another process's
GONE_REMEMBERED = 4_096  # how many retired files keep their reason, for ``gone``
DELETED_AT_ONCE = 16  # files deleted while nobody can take a lease
_T = TypeVar("_T")


class Catalog:
    """Open what is below ``folder`` and settle it. Raises OSError and sqlite3.Error, as do all methods.

    ``upkeep``: who opens it judges and removes by itself, so no file is compared with its row or evicted here.
    Enter ``changing.held()`` (re-entrant) around whatever changes more than one row or file.
    """

    def __init__(self, fs: FileSystem, folder: Path, quota_bytes: int, *, upkeep: bool = False) -> None:
        self._folder = folder
        self._quota = quota_bytes
        self._gone: OrderedDict[Point, str] = OrderedDict()
        self._stray_bytes = 0  # files of ours that cannot be read just now; counted all the same
        self._stamp: object = None  # of the folders, when they last agreed with the index
        fs.mkdir(folder)
        self.changing = FileLock(folder / LOCK_NAME, LOCK_WAIT_S)
        self.leases = Leases(folder)
        done = False
        try:
            with self.changing.held():
                self.shelf = Shelf(fs, folder, quota_bytes)
                self._index = Index(folder / INDEX_NAME)
                self.settle(every_size=not upkeep)
                if not upkeep:
                    self.make_room(0, pinned=(), current=())
            done = True
        finally:
            if not done:
                self.close()

    def close(self) -> None:
        self.leases.close()
        if hasattr(self, "_index"):
            self._index.close()

    def ask(self, question: Callable[[Index], _T]) -> _T:
        """Put ``question`` to the index; if the database turns out to be damaged, rebuild it and ask again."""
        try:
            return question(self._index)
        except sqlite3.DatabaseError as error:
            if not damaged(error):
                raise
        with self.changing.held():
            self._index.rebuild()
            self._settle(every_size=False)
            return question(self._index)

    # -- agreement -------------------------------------------------------------------------------------------------

    def settle(self, *, every_size: bool) -> None:
        """Make the index say what the folders hold; ``every_size`` also compares the sizes of known files.

        A folder that was taken away is made again. Costs two ``stat`` calls when nobody has been here since.
        """
        with self.changing.held():
            if self._index.moved() or not self.shelf.there():
                self.shelf.prepare()
                self.leases.appear()
                self._index.reopen()
                self._stamp = None
            if every_size or self._stamp is None or self._stamp != self.shelf.stamp():
                self.ask(lambda _: self._settle(every_size=every_size))
                self._note_agreement()

    def _note_agreement(self) -> None:
        """After a change of our own: index and folders agree. What cannot be looked at is looked at again later."""
        self._stamp = None
        with suppress(OSError):
            self._stamp = self.shelf.stamp()

    def _settle(self, *, every_size: bool) -> None:
        known = self._index.names()
        present = self.shelf.sizes()
        self._index.delete([id_ for name, (id_, _) in known.items() if name not in present])
        self._stray_bytes = 0
        kept = {id_ for name, (id_, _) in known.items() if name in present}
        adopted: list[Row] = []
        for name in sorted(present.keys() - known.keys()):
            row = self._adopt(name, kept)
            if row is not None:
                adopted.append(row)
                kept.add(row.id)
        self._index.insert(adopted)
        if every_size:
            cut = [id_ for name, (id_, size) in known.items() if present.get(name, size) != size]
            for row in self._index.get(cut).values():
                self._take_out(row, "truncated", aside=True)

    def _adopt(self, name: str, kept: Collection[bytes]) -> Row | None:
        """The row of a file that has none; a second file for the same thing is removed, a damaged one put aside."""
        status = self.shelf.status(name)
        named = parse_name(name)
        if status is None or named is None:
            return None  # gone meanwhile, or no file at all
        if named[1] in kept:
            self.shelf.remove(name)
            return None
        try:
            row = self.shelf.header(name).row
        except FileRejected as error:
            if damage(error):
                self.shelf.put_aside(name)
            else:
                self._stray_bytes += status[0]
            return None
        return replace(row, last_used=status[1], created=status[1])

    # -- changes ---------------------------------------------------------------------------------------------------

    def add(self, encoded: Encoded) -> int:
        """Publish a file, then its row; return the bytes written. On failure neither is there."""
        with self.changing.held():
            written = self.shelf.publish(encoded)
            recorded = False
            try:
                self.ask(lambda index: index.insert([encoded.row]))
                recorded = True
            finally:
                if not recorded:
                    self.shelf.remove(encoded.row.name)
            self._note_agreement()
            return written

    def take_out(self, row: Row, reason: str, *, aside: bool) -> None:
        """Remove a row, and its file into the quarantine if it is to go ``aside``. Waits for no other process."""
        self.ask(lambda _: self._take_out(row, reason, aside=aside))

    def _take_out(self, row: Row, reason: str, *, aside: bool) -> None:
        self._index.delete([row.id])
        self._stamp = None  # a file that could not be read just now may well be there: it is looked for again
        self._remember(row, reason)
        if aside:
            self.shelf.put_aside(row.name)

    def put_aside(self, name: str, reason: str) -> None:
        """Move a file into the quarantine, and take its row out if it has one."""
        named = parse_name(name)
        assert named is not None, "a name of ours"
        with self.changing.held():
            row = self.ask(lambda index: index.get([named[1]])).get(named[1])
            if row is not None and row.name == name:
                self.take_out(row, reason, aside=True)
            else:
                self.shelf.put_aside(name)
            self._note_agreement()

    def relist(self, names: Collection[str]) -> None:
        """Make the rows of ``names`` anew, from the files themselves, and settle."""
        with self.changing.held():
            known = self.ask(lambda index: index.names())
            self.ask(lambda index: index.delete([known[name][0] for name in names if name in known]))
            self.settle(every_size=True)

    def retire(self, rows: Sequence[Row], reason: str) -> list[Row]:
        """Delete files and rows, in this order, but for what somebody holds; return what was deleted.

        Give children before their parents, so that a crash in between leaves no child without its parent. Whoever
        holds a file holds the chain before it as well.
        """
        retired: list[Row] = []
        with self.changing.held():
            for at in range(0, len(rows), DELETED_AT_ONCE):
                some = {row.id: row for row in rows[at : at + DELETED_AT_ONCE]}
                with self.leases.free(tuple(some)) as free:
                    gone = [some[id_] for id_ in free if self.shelf.remove(some[id_].name)]
                self._index_delete(gone)
                for row in gone:
                    self._remember(row, reason)
                retired += gone
            self._note_agreement()
        return retired

    def expel(self, rows: Sequence[Row], reason: str) -> list[Row]:
        """As ``retire``, whoever holds them."""
        with self.changing.held():
            gone = [row for row in rows if self.shelf.remove(row.name)]
            self._index_delete(gone)
            for row in gone:
                self._remember(row, reason)
            self._note_agreement()
        return gone

    def _index_delete(self, rows: Sequence[Row]) -> None:
        self.ask(lambda index: index.delete([row.id for row in rows]))

    def make_room(self, size: int, *, pinned: Collection[bytes], current: Collection[bytes]) -> None:
        """Retire what must go so that ``size`` more bytes fit.

        Raises:
            StoreError: too much is pinned; nothing was retired.
        """
        with self.changing.held():
            room = self._quota - size - self._unlisted_bytes()
            if self.ask(lambda index: index.totals())[0] <= room:
                return
            rows = {row.id: row for row in self.ask(lambda index: index.rows())}
            held = self.leases.held().union(pinned)
            going = retention.victims(list(rows.values()), room, pinned=held, current=current)
            left = sum(row.size for row in rows.values()) - sum(rows[id_].size for id_ in going)
            if size and left > room:
                raise StoreError("every stored checkpoint is in use and the quota is full: raise store.quota_gib")
            self.retire([rows[id_] for id_ in going], "evicted")

    def gone(self, fingerprint: bytes) -> dict[Point, str]:
        """What was taken out since the opening, and why: ``evicted``, ``forgotten``, a rejection's reason."""
        return {point: reason for point, reason in tuple(self._gone.items()) if point[0] == fingerprint}

    def _remember(self, row: Row, reason: str) -> None:
        self._gone[row.fingerprint, row.b, row.digest] = reason
        while len(self._gone) > GONE_REMEMBERED:
            self._gone.popitem(last=False)

    def _unlisted_bytes(self) -> int:
        """Bytes of everything in the folder that has no row: quarantine, index, temporary and unreadable files."""
        return self.shelf.aside_bytes + self._stray_bytes + self.shelf.overhead()

    def counts(self) -> tuple[int, int, int]:
        """Bytes of all files in the folder but the index, as they lie there; numbers of segments and snapshots."""
        _, segments, snapshots = self.ask(lambda index: index.totals())
        size = sum(self.shelf.sizes().values()) + self.shelf.aside_bytes + self.shelf.overhead()
        return size, segments, snapshots

    def forget(self) -> None:
        """Delete every file and every row, whoever holds them."""
        with self.changing.held():
            for row in self.ask(lambda index: index.rows()):
                self._remember(row, "forgotten")
            self.ask(lambda index: index.clear())
            self._stray_bytes = 0
            self.shelf.forget()
