"""Taking a conversation out of the database so that nothing of it is left in the file.

It must never take anything of another conversation, and never leave half of one: the rows go in one transaction.

Invariant: when ``erase`` says that it has wiped, neither the database nor its journal holds a byte of what went:
deleted cells are overwritten, the file is built anew without free pages, the journal is emptied.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from qmlx_lsp.errors import StoreError
from qmlx_lsp.storage.records import Database, as_int

# Children before parents.
_ERASE = (
    "DELETE FROM turn WHERE entry IN (SELECT id FROM entry WHERE conversation = ?)",
    "DELETE FROM entry WHERE conversation = ?",
    "DELETE FROM told WHERE conversation = ?",
    "DELETE FROM epoch WHERE conversation = ?",
    "DELETE FROM conversation WHERE id = ?",
)


@dataclass(frozen=True, slots=True)
class Held:
    """What the log holds of a conversation, over all its epochs."""

    epochs: int
    entries: int
    turns: int
    tokens: int


def held(database: Database, conversation: int) -> Held:
    query = (
        "SELECT (SELECT count(*) FROM epoch WHERE conversation = c.id), count(entry.id), count(turn.turn),"
        " coalesce(sum(entry.length), 0) FROM conversation AS c LEFT JOIN entry ON entry.conversation = c.id"
        " LEFT JOIN turn ON turn.entry = entry.id WHERE c.id = ? GROUP BY c.id"
    )
    found = database.one(query, (conversation,)) or (0, 0, 0, 0)
    return Held(*(as_int(number) for number in found))


def erase(database: Database, conversation: int) -> bool:
    """Delete all of it, durably; whether its bytes are gone from the files as well.

    They are not while another process is in the middle of reading, or the disk has no room to build the file anew;
    then they go with the next ``erase``, or (from the journal) when the last process closes the log.
    """
    for setting in ("secure_delete = ON", "temp_store = MEMORY"):  # what stays must not reach a folder of others
        database.all(f"PRAGMA {setting}")
    with database.transaction() as run:
        for statement in _ERASE:
            run.execute(statement, (conversation,))
    return _wipe(database)


def _wipe(database: Database) -> bool:
    built_anew = False
    with suppress(StoreError):
        database.all("VACUUM")
        built_anew = True
    (busy, *_), *_ = database.all("PRAGMA wal_checkpoint(TRUNCATE)")
    return built_anew and busy == 0
