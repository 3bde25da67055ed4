"""The index: one SQLite row per file of the store, so that a lookup opens no file.

It must never hold anything that the files do not: a database that is missing, damaged or of another version is
thrown away, and ``Catalog`` fills the new one from the files' headers.

Invariant: a row is written after its file is published.
Invariant: one connection under one lock, so any thread may call.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from qmlx_lsp.storage.row import Kind, Link, Raw, Row

SCHEMA_VERSION = 2
LAST_USED_STEP_S = 60.0  # seconds; a use within this time of the last one is not written down
LOCK_WAIT_S = 5.0  # seconds to wait for another process
WAL_LIMIT_BYTES = 1 << 20
IDS_PER_QUERY = 500
WINDOW_TOKENS = 8_192  # a lookup looks so far ahead at once …
WINDOW_FILES = 256  # … unless so many files begin there; then it goes from point to point …
CROWDED_TOKENS = 65_536  # … for so far
ENDS_LOOKED_AT = 20_000  # newest files that are asked why a lookup found nothing

_SCHEMA = """
CREATE TABLE file (
    id BLOB PRIMARY KEY, kind TEXT NOT NULL, fingerprint BLOB NOT NULL, a INTEGER NOT NULL, b INTEGER NOT NULL,
    parent BLOB NOT NULL, digest BLOB NOT NULL, bytes INTEGER NOT NULL, data_offset INTEGER NOT NULL,
    header_sum BLOB NOT NULL, needs_snapshot INTEGER NOT NULL, last_used REAL NOT NULL, created REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX file_by_begin ON file (fingerprint, a, parent, b, digest, bytes);
"""
_SELECT = (
    "SELECT id, kind, fingerprint, a, b, parent, digest, bytes, data_offset, header_sum, needs_snapshot, "
    "last_used, created FROM file "
)
_SELECT_LINKS = "SELECT id, a, b, parent, digest, bytes FROM file "
_INSERT = "INSERT OR REPLACE INTO file VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_TOUCH = "UPDATE file SET last_used = ? WHERE id = ? AND abs(last_used - ?) >= ?"
_DAMAGE = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH})


def damaged(error: sqlite3.Error) -> bool:
    """Whether ``error`` says that the database itself is bad (as opposed to locked, full or read-only)."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return code is not None and (code & 0xFF) in _DAMAGE


class Index:
    """Open ``path``, or start afresh when what is there cannot be used.

    Raises:
        sqlite3.Error: the folder cannot be written, or another process holds the database.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        self._open()

    def _open(self) -> None:
        self._connection = self._connect()
        try:
            usable = self._usable()
        except sqlite3.DatabaseError as error:
            if not damaged(error):
                self.close()
                raise
            usable = False
        if not usable:
            self.rebuild()

    def _connect(self) -> sqlite3.Connection:
        self._path.touch(mode=0o600, exist_ok=True)  # SQLite would make it readable for all
        self._opened = self._path.stat()
        return sqlite3.connect(self._path, timeout=LOCK_WAIT_S, isolation_level=None, check_same_thread=False)

    def _usable(self) -> bool:
        self._connection.execute(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        version: tuple[int] = self._connection.execute("PRAGMA user_version").fetchone()
        check: tuple[str] = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        return version[0] == SCHEMA_VERSION and check[0] == "ok"

    def moved(self) -> bool:
        """Whether the file is no longer the one that was opened: deleted, or replaced by another process."""
        try:
            return not os.path.samestat(self._path.stat(), self._opened)
        except FileNotFoundError:
            return True

    def reopen(self) -> None:
        """Open what is there now, or begin an empty one. Raises as the constructor does."""
        with self._lock:
            self._connection.close()
            self._open()

    def rebuild(self) -> None:
        """Throw the database away and begin an empty one; the caller fills it from the files."""
        with self._lock:
            self._connection.close()
            for suffix in ("", "-wal", "-shm", "-journal"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            self._connection = self._connect()
            self._usable()
            with self._transaction():
                for statement in _SCHEMA.split(";"):
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            done = False
            try:
                yield
                self._connection.execute("COMMIT")
                done = True
            finally:
                if not done:
                    with suppress(sqlite3.Error):  # the first error is the one to tell
                        self._connection.execute("ROLLBACK")

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        with self._lock:
            found = self._connection.execute(query, values).fetchall()
        return [_row(*values) for values in found]

    def rows(self) -> list[Row]:
        """Every row."""
        return self._rows(_SELECT)

    def names(self) -> dict[str, tuple[bytes, int]]:
        """Every file's name, with its id and its size in bytes."""
        with self._lock:
            found = self._connection.execute("SELECT kind, id, header_sum, bytes FROM file").fetchall()
        endings = {kind.value: kind.suffix for kind in Kind}
        return {f"{id_.hex()}-{sum_.hex()}.{endings[kind]}": (id_, size) for kind, id_, sum_, size in found}

    def beginning(self, fingerprint: bytes, position: int, digest: bytes) -> list[Link]:
        """Files that begin at ``position`` of a log with ``digest`` there; a snapshot begins where it stands."""
        query = _SELECT_LINKS + "WHERE fingerprint = ? AND a = ? AND parent = ?"
        with self._lock:
            return list(map(Link._make, self._connection.execute(query, (fingerprint, position, digest))))

    def window(self, fingerprint: bytes, begin: int, end: int, most: int) -> list[Raw]:
        """Up to ``most`` files that begin at positions ``[begin, end)``, of whatever logs, by position."""
        query = _SELECT_LINKS + "WHERE fingerprint = ? AND a >= ? AND a < ? ORDER BY a LIMIT ?"
        with self._lock:
            return self._connection.execute(query, (fingerprint, begin, end, most)).fetchall()

    def ends(self, fingerprint: bytes, limit: int, *, own: bool) -> list[tuple[int, bytes]]:
        """Position and digest of the newest files of ``fingerprint`` (or of all others) that end by ``limit``."""
        query = "SELECT DISTINCT b, digest FROM file WHERE (fingerprint = ?) = ? AND b <= ? "
        query += "ORDER BY last_used DESC LIMIT ?"
        with self._lock:
            return self._connection.execute(query, (fingerprint, own, limit, ENDS_LOOKED_AT)).fetchall()

    def totals(self) -> tuple[int, int, int]:
        """Bytes of all files, number of segments, number of snapshots."""
        query = "SELECT coalesce(sum(bytes), 0), count(*), coalesce(sum(a = b), 0) FROM file"
        with self._lock:
            size, files, snapshots = self._connection.execute(query).fetchone()
        return size, files - snapshots, snapshots

    def get(self, ids: Sequence[bytes]) -> dict[bytes, Row]:
        """Rows by id; those that are gone are left out."""
        found: list[Row] = []
        for at in range(0, len(ids), IDS_PER_QUERY):
            some = ids[at : at + IDS_PER_QUERY]
            found += self._rows(_SELECT + f"WHERE id IN ({', '.join('?' * len(some))})", some)
        return {row.id: row for row in found}

    def insert(self, rows: Sequence[Row]) -> None:
        if not rows:
            return
        with self._transaction():
            self._connection.executemany(_INSERT, [_values(row) for row in rows])

    def delete(self, ids: Sequence[bytes]) -> None:
        if not ids:
            return
        with self._transaction():
            self._connection.executemany("DELETE FROM file WHERE id = ?", [(id_,) for id_ in ids])

    def clear(self) -> None:
        """Delete every row, in place: another process may have the database open."""
        with self._transaction():
            self._connection.execute("DELETE FROM file")
        with self._lock:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._connection.execute("VACUUM")

    def touch(self, ids: Iterable[bytes], now: float) -> None:
        """Note a use, coarsely (LAST_USED_STEP_S)."""
        with self._transaction():
            self._connection.executemany(_TOUCH, [(now, id_, now, LAST_USED_STEP_S) for id_ in ids])


def look(path: Path) -> list[Row]:
    """Every row of the index at ``path``; makes and mends nothing. Raises sqlite3.Error when it cannot be used."""
    target = path.absolute().as_uri() + "?mode=rw"  # read-only, SQLite would leave its journals behind
    with closing(sqlite3.connect(target, uri=True, timeout=LOCK_WAIT_S, isolation_level=None)) as connection:
        version: tuple[int] = connection.execute("PRAGMA user_version").fetchone()
        if version[0] != SCHEMA_VERSION:
            raise sqlite3.DatabaseError(f"version {version[0]} instead of {SCHEMA_VERSION}")
        try:
            return [_row(*values) for values in connection.execute(_SELECT)]
        except (KeyError, TypeError) as error:
            raise sqlite3.DatabaseError(f"a row makes no sense ({error})") from None


class LookAhead:
    """``Index.beginning`` for a walk towards higher positions, with one question for many points.

    Where so much begins that other logs must be among it, every point is asked for by itself.
    """

    def __init__(self, index: Index, fingerprint: bytes) -> None:
        self._index = index
        self._fingerprint = fingerprint
        self._end = 0
        self._known: dict[int, list[Raw]] | None = None  # by position

    def __call__(self, position: int, digest: bytes) -> Sequence[Raw]:
        if position >= self._end:
            self._look(position)
        if self._known is None:
            return self._index.beginning(self._fingerprint, position, digest)
        return [link for link in self._known.get(position, ()) if link[3] == digest]

    def _look(self, position: int) -> None:
        self._end = position + WINDOW_TOKENS
        links = self._index.window(self._fingerprint, position, self._end, WINDOW_FILES)
        if len(links) == WINDOW_FILES:
            self._known, self._end = None, position + CROWDED_TOKENS
            return
        self._known = {position: list(some) for position, some in groupby(links, key=itemgetter(1))}


_KINDS = {kind.value: kind for kind in Kind}


def _row(id_: bytes, kind: str, *rest: Any) -> Row:
    fingerprint, a, b, parent, digest, size, data_offset, header_sum, needs, last_used, created = rest
    times = (last_used, created)
    row = Row(_KINDS[kind], fingerprint, a, b, parent, digest, size, data_offset, header_sum, bool(needs), *times)
    vars(row)["id"] = id_  # known already, and thousands of hashes are a good part of an opening
    return row


def _values(row: Row) -> tuple[object, ...]:
    return (
        row.id, row.kind.value, row.fingerprint, row.a, row.b, row.parent, row.digest, row.size, row.data_offset,
        row.header_sum, row.needs_snapshot, row.last_used, row.created,
    )  # fmt: skip
