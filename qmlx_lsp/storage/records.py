"""How the conversation log lies in SQLite: schema, one connection, entries as rows and back.

It must never repair or delete: a database that cannot be read is the user's, and the error names it.

Invariant: every entry carries a checksum over all that makes it; a damaged one is an error, never other tokens.
Invariant: what a transaction has committed is on the disk (WAL, ``synchronous=FULL``, ``fullfsync`` on macOS).
Invariant: one process writes (``ownership``). A file that is not ours, or newer than we are, is not changed by a bit.
Invariant: a file of an earlier version is brought forward whole or not at all.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import xxhash

from qmlx_lsp.errors import StoreError
from qmlx_lsp.storage import ownership
from qmlx_lsp.storage.files import FOLDER_MODE, OsFiles
from qmlx_lsp.transcript.entry import Entry, Finish, Kind
from qmlx_lsp.transcript.tokens import PackedIds, ids_to_bytes

LOCK_WAIT_S = 10.0  # seconds to wait for another process

# What leads from each version of the schema to the next, the empty database first. Never change one that was
# released: databases of every age are brought forward by them.
# Free text is stored as bytes: paths may hold what is no valid Unicode, and text may hold NUL.
_FIRST = """
CREATE TABLE conversation (id INTEGER PRIMARY KEY AUTOINCREMENT, root BLOB NOT NULL UNIQUE, epoch INTEGER NOT NULL);
CREATE TABLE epoch (
    conversation INTEGER NOT NULL REFERENCES conversation, epoch INTEGER NOT NULL, identity TEXT NOT NULL,
    created REAL NOT NULL, PRIMARY KEY (conversation, epoch)
) WITHOUT ROWID;
CREATE TABLE entry (
    id INTEGER PRIMARY KEY AUTOINCREMENT, conversation INTEGER NOT NULL, epoch INTEGER NOT NULL,
    start INTEGER NOT NULL, length INTEGER NOT NULL, kind TEXT NOT NULL, finish TEXT, path BLOB,
    text BLOB NOT NULL, ids BLOB NOT NULL,
    checksum BLOB NOT NULL, created REAL NOT NULL,
    FOREIGN KEY (conversation, epoch) REFERENCES epoch
);
CREATE INDEX entry_by_epoch ON entry (conversation, epoch, id);
CREATE TABLE turn (
    turn INTEGER PRIMARY KEY AUTOINCREMENT, entry INTEGER NOT NULL UNIQUE REFERENCES entry, header INTEGER NOT NULL,
    usage BLOB
);
CREATE TABLE told (
    conversation INTEGER NOT NULL REFERENCES conversation, path BLOB NOT NULL, state BLOB NOT NULL,
    PRIMARY KEY (conversation, path)
) WITHOUT ROWID;
"""
# ``opening``: tokens at the epoch's beginning that were carried over. ``why`` it began. ``tool``: the tool whose call
# an entry answers, in the template's tool role.
_SECOND = """
ALTER TABLE epoch ADD COLUMN opening INTEGER NOT NULL DEFAULT 0;
ALTER TABLE epoch ADD COLUMN why TEXT NOT NULL DEFAULT '';
ALTER TABLE entry ADD COLUMN tool BLOB;
"""
MIGRATIONS = (_FIRST, _SECOND)
SCHEMA_VERSION = len(MIGRATIONS)
FORGOTTEN = "this conversation has been forgotten meanwhile: ask again"
_TABLES = {"conversation", "epoch", "entry", "turn", "told"}  # which every version has


def pack(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def unpack(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


class NothingYet(StoreError):
    """There is no log to be read, or one that is just being made."""


def as_int(value: object) -> int:
    assert isinstance(value, int)
    return value


def as_bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value


class Database:
    """One connection under one lock, for any thread.

    Raises:
        StoreError: the file is damaged, from a newer version, not ours, missing (``read_only``), not accessible, or
            another process writes it (unless ``read_only``).
    """

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._owned = -1
        self._connection: sqlite3.Connection | None = None
        with self.errors():
            done = False
            try:
                if read_only:
                    self._open_to_read()
                else:
                    self._open_to_write()
                done = True
            finally:
                if not done:
                    self.close()

    def _open_to_read(self) -> None:
        version = self._version() if self.path.exists() else 0
        if version == 0:
            raise NothingYet(f"there is no conversation log at {self.path} yet: ask something first")
        if version < SCHEMA_VERSION:  # nobody has written since the update
            try:
                Database(self.path, read_only=False).close()
            except StoreError:
                if self._version() < SCHEMA_VERSION:  # else a daemon that begins has been faster
                    raise
        self._connection = self._connect("ro")

    def _open_to_write(self) -> None:
        OsFiles().mkdir(self.path.parent)
        self._owned = ownership.take(self.path)
        self.path.touch(mode=0o600, exist_ok=True)  # SQLite would make it readable for all
        version = self._version()
        self._connection = self._connect("rw")
        if 0 < version < SCHEMA_VERSION:
            self._be_alone()
        for setting in ("journal_mode = WAL", "synchronous = FULL", "fullfsync = ON", "foreign_keys = ON"):
            self._connection.execute(f"PRAGMA {setting}")
        self._bring_forward()

    def _be_alone(self) -> None:
        """A daemon of the first version holds no lock while it has the file open, and would go on with a schema that
        is no more. Only who is alone can leave the journal of several."""
        assert self._connection is not None, "the database is open"
        try:
            self._connection.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.OperationalError as error:
            message = f"the conversation log {self.path} is open in another process ({error})"
            raise StoreError(f"{message}: stop the older qmlx-lsp (`qmlx-lsp daemon stop`) and try again") from error

    def _connect(self, mode: str) -> sqlite3.Connection:
        target = f"{self.path.absolute().as_uri()}?mode={mode}"
        return sqlite3.connect(target, uri=True, timeout=LOCK_WAIT_S, isolation_level=None, check_same_thread=False)

    def _version(self) -> int:
        """The file's version, 0 for an empty one. Changes nothing. Raises StoreError when it is none that we know."""
        with closing(self._connect("ro")) as look:
            (version,) = look.execute("PRAGMA user_version").fetchone()
            tables = {name for (name,) in look.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not (tables >= _TABLES if version > 0 else (version == 0 and not tables)):
            raise StoreError(f"{self.path} is no conversation log of qmlx-lsp: move the file away")
        if version > SCHEMA_VERSION:
            raise StoreError(f"{self.path} was written by a newer version of qmlx-lsp: update, or move the file away")
        return int(version)

    def _bring_forward(self) -> None:
        """From whatever version it has, an empty file included, to this one; all of it or nothing."""
        with self.transaction() as run:
            (version,) = run.execute("PRAGMA user_version").fetchone()
            for migration in MIGRATIONS[version:]:
                for statement in migration.split(";"):
                    run.execute(statement)
            if version < SCHEMA_VERSION:
                run.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            if self._owned >= 0:
                ownership.give_up(self._owned)
                self._owned = -1

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what the disk or SQLite says into one line for a user."""
        try:
            yield
        except sqlite3.OperationalError as error:
            message = f"the conversation log {self.path} cannot be used ({error})"
            raise StoreError(f"{message}: check space and permissions of {self.path.parent}") from error
        except sqlite3.IntegrityError as error:
            forgotten = "FOREIGN KEY" in str(error)
            raise (StoreError(FORGOTTEN) if forgotten else self.corrupt(str(error))) from error
        except sqlite3.DatabaseError as error:
            raise self.corrupt(str(error)) from error
        except OSError as error:
            message = f"the conversation log {self.path} cannot be opened ({error.strerror})"
            raise StoreError(f"{message}: make the folder writable (mode {FOLDER_MODE:o})") from error

    def corrupt(self, detail: str) -> StoreError:
        message = f"the conversation log {self.path} is damaged ({detail})"
        return StoreError(f"{message}: restore it from a backup, or move it away to begin anew; nothing was deleted")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All of it, on the disk when this returns, or nothing."""
        with self._lock, self.errors():
            assert self._connection is not None, "the conversation log is closed"
            self._connection.execute("BEGIN IMMEDIATE")
            done = False
            try:
                yield self._connection
                self._connection.execute("COMMIT")
                done = True
            finally:
                if not done:
                    with suppress(sqlite3.Error):  # the first error is the one to tell
                        self._connection.execute("ROLLBACK")

    def all(self, query: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
        with self._lock, self.errors():
            assert self._connection is not None, "the conversation log is closed"
            return self._connection.execute(query, values).fetchall()

    def one(self, query: str, values: Sequence[object] = ()) -> tuple[object, ...] | None:
        found = self.all(query, values)
        return found[0] if found else None


def entry_values(entry: Entry) -> tuple[object, ...]:
    """The columns of ENTRY_COLUMNS, in their order."""
    path = None if entry.path is None else pack(entry.path)
    tool = None if entry.tool is None else pack(entry.tool)
    finish = None if entry.finish is None else entry.finish.value
    text, ids = pack(entry.text), ids_to_bytes(entry.ids)
    checksum = _checksum(entry.start, entry.kind.value, finish, path, tool, text, ids)
    return entry.start, len(entry.ids), entry.kind.value, finish, path, tool, text, ids, checksum


ENTRY_COLUMNS = "start, length, kind, finish, path, tool, text, ids, checksum"


def entry_from(values: Sequence[object]) -> Entry:
    """The inverse of ``entry_values``. Raises ValueError when the row is damaged."""
    start, length, kind, finish, path, tool, text, ids, checksum = values
    # SQLite holds the columns to no type; whatever is not what was written fails the checksum or is refused here.
    if not (isinstance(start, int) and isinstance(text, bytes) and isinstance(ids, bytes)):
        raise ValueError("an entry has columns of the wrong type")  # noqa: TRY004 - damage, not a wrong call
    if not (path is None or isinstance(path, bytes)) or not (tool is None or isinstance(tool, bytes)):
        raise ValueError("an entry has a path or a tool of the wrong type")
    if checksum != _checksum(start, str(kind), None if finish is None else str(finish), path, tool, text, ids):
        raise ValueError(f"the entry at token {start} does not have its checksum")
    entry = Entry(
        _KINDS[kind] if kind in _KINDS else Kind(str(kind)),
        unpack(text),
        PackedIds(ids),
        start,
        None if finish is None else _FINISHES[finish] if finish in _FINISHES else Finish(str(finish)),
        None if path is None else unpack(path),
        None if tool is None else unpack(tool),
    )
    if len(entry.ids) != length:
        raise ValueError(f"the entry at token {start} is {len(entry.ids)} ids long instead of {length}")
    return entry


# A word of the database is looked up some thousand times when a long conversation is opened.
_KINDS: Mapping[object, Kind] = {kind.value: kind for kind in Kind}
_FINISHES: Mapping[object, Finish] = {finish.value: finish for finish in Finish}


def _checksum(
    start: int, kind: str, finish: str | None, path: bytes | None, tool: bytes | None, text: bytes, ids: bytes
) -> bytes:
    head, said, ended = b"%d" % start, kind.encode(), (finish or "").encode()
    where = b"-" if path is None else b"+" + path
    last = b"" if tool is None else b"tool%d:%b" % (len(tool), tool)  # which entries of the first version have not
    # In one piece and one call: opening a conversation hashes thousands of short entries.
    hashed = b"%d:%b%d:%b%d:%b%d:%b%d:%b%b%b" % (
        len(head), head, len(said), said, len(ended), ended, len(where), where, len(text), text, last, ids,
    )  # fmt: skip
    return xxhash.xxh3_128_digest(hashed)
