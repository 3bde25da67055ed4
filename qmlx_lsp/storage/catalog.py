"""Index and files kept in agreement: taking in, taking out, making room, starting over.

It must never decide what fits a token log (``lookup``) nor which file is worth least (``retention``); it carries
out what they say, in the order that a crash cannot turn into a lie.

Invariant: a file is published before its row is written. A crash leaves a file without a row, or (in a retirement)
a row without a file; ``settle`` mends both.
Invariant: after ``settle`` every row has its file, and every file that can be read has its row.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from qmlx_lsp.errors import StoreError
from qmlx_lsp.storage import retention
from qmlx_lsp.storage.files import FileSystem
from qmlx_lsp.storage.index import Index, damaged
from qmlx_lsp.storage.lookup import Point
from qmlx_lsp.storage.row import Row, parse_name
from qmlx_lsp.storage.segment import Encoded, FileRejected
from qmlx_lsp.storage.shelf import Shelf, damage

INDEX_NAME = "index.db"
GONE_REMEMBERED = 4_096  # how many retired files keep their reason, for ``gone``
_T = TypeVar("_T")


class Catalog:
    """Open what is below ``folder`` and settle it. Raises OSError and sqlite3.Error, as do all methods.

    ``changing`` is held (re-entrantly) by whoever changes more than one row or file.
    """

    def __init__(self, fs: FileSystem, folder: Path, quota_bytes: int) -> None:
        self.changing = threading.RLock()
        self._quota = quota_bytes
        self._gone: OrderedDict[Point, str] = OrderedDict()
        self._stray_bytes = 0  # files of ours that cannot be read just now; counted all the same
        self.shelf = Shelf(fs, folder, quota_bytes)
        self._index = Index(folder / INDEX_NAME)
        done = False
        try:
            self.settle(every_size=True)
            self.make_room(0, pinned=(), current=())
            done = True
        finally:
            if not done:
                self.close()

    def close(self) -> None:
        self._index.close()

    def ask(self, question: Callable[[Index], _T]) -> _T:
        """Put ``question`` to the index; if the database turns out to be damaged, rebuild it and ask again."""
        try:
            return question(self._index)
        except sqlite3.DatabaseError as error:
            if not damaged(error):
                raise
        with self.changing:
            self._index.rebuild()
            self._settle(every_size=False)
            return question(self._index)

    def settle(self, *, every_size: bool) -> None:
        """Make the index say what the folders hold; ``every_size`` also compares the sizes of known files."""
        with self.changing:
            self.ask(lambda _: self._settle(every_size=every_size))

    def _settle(self, *, every_size: bool) -> None:
        known = {row.name: row for row in self._index.rows()}
        present = self.shelf.names()
        self._index.delete([row.id for name, row in known.items() if name not in present])
        self._stray_bytes = 0
        kept = {row.id for name, row in known.items() if name in present}
        adopted: list[Row] = []
        for name in sorted(present - known.keys()):
            row = self._adopt(name, kept)
            if row is not None:
                adopted.append(row)
                kept.add(row.id)
        self._index.insert(adopted)
        for name in present & known.keys() if every_size else ():
            status = self.shelf.status(name)
            if status is not None and status[0] != known[name].size:
                self._take_out(known[name], "truncated", aside=True)

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

    def add(self, encoded: Encoded) -> int:
        """Publish a file, then its row; return the bytes written. On failure neither is there."""
        written = self.shelf.publish(encoded)
        recorded = False
        try:
            self.ask(lambda index: index.insert([encoded.row]))
            recorded = True
        finally:
            if not recorded:
                self.shelf.remove(encoded.row.name)
        return written

    def take_out(self, row: Row, reason: str, *, aside: bool) -> None:
        """Remove a row, and its file into the quarantine if it is to go ``aside``."""
        with self.changing:
            self.ask(lambda _: self._take_out(row, reason, aside=aside))

    def _take_out(self, row: Row, reason: str, *, aside: bool) -> None:
        self._index.delete([row.id])
        self._remember(row, reason)
        if aside:
            self.shelf.put_aside(row.name)

    def make_room(self, size: int, *, pinned: Collection[bytes], current: Collection[bytes]) -> None:
        """Retire what must go so that ``size`` more bytes fit.

        Raises:
            StoreError: too much is pinned; nothing was retired.
        """
        with self.changing:
            rows = {row.id: row for row in self.ask(lambda index: index.rows())}
            room = self._quota - size - self.shelf.aside_bytes - self._stray_bytes
            going = retention.victims(list(rows.values()), room, pinned=pinned, current=current)
            left = sum(row.size for row in rows.values()) - sum(rows[id_].size for id_ in going)
            if size and left > room:
                raise StoreError("every stored checkpoint is in use and the quota is full: raise store.quota_gib")
            removed: list[bytes] = []
            for id_ in going:  # children first, so that a crash in between leaves no child without its parent
                if self.shelf.remove(rows[id_].name):
                    self._remember(rows[id_], "evicted")
                    removed.append(id_)
            self.ask(lambda index: index.delete(removed))

    def gone(self, fingerprint: bytes) -> dict[Point, str]:
        """What was taken out since the opening, and why: ``evicted``, ``forgotten``, a rejection's reason."""
        with self.changing:
            return {point: reason for point, reason in self._gone.items() if point[0] == fingerprint}

    def _remember(self, row: Row, reason: str) -> None:
        self._gone[row.fingerprint, row.b, row.digest] = reason
        while len(self._gone) > GONE_REMEMBERED:
            self._gone.popitem(last=False)

    def counts(self) -> tuple[int, int, int]:
        """Bytes of all files, the quarantine's included; number of segments; number of snapshots."""
        rows = self.ask(lambda index: index.rows())
        segments = sum(1 for row in rows if row.a < row.b)
        size = sum(row.size for row in rows) + self.shelf.aside_bytes + self._stray_bytes
        return size, segments, len(rows) - segments

    def forget(self) -> None:
        """Delete every file and every row."""
        with self.changing:
            for row in self.ask(lambda index: index.rows()):
                self._remember(row, "forgotten")
            self.ask(lambda index: index.clear())
            self._stray_bytes = 0
            self.shelf.forget()
