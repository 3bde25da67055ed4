"""The conversation log as people see it: every entry of every epoch, numbered through, also while a daemon appends.

It must never write. What the daemon holds in memory it knows nothing of: it reads what is on the disk.

Invariant: an entry's number and row never change once its reply is finished, so whoever follows can go on from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from qmlx_lsp.storage.records import ENTRY_COLUMNS, Database, as_bytes, as_int, entry_from, pack, unpack
from qmlx_lsp.transcript.entry import Entry, Finish


@dataclass(frozen=True, slots=True)
class Epoch:
    """``created``: seconds since 1970. ``why`` it began: a word or two, empty for the first one. ``opening``: tokens
    at its beginning that repeat what earlier epochs said."""

    number: int
    created: float
    why: str
    opening: int


@dataclass(frozen=True, slots=True)
class Told:
    """An entry in its place. ``number`` counts from 1 over all epochs; ``row`` only grows. ``carried``: it is part of
    its epoch's opening. ``turn``: the turn whose reply it is."""

    number: int
    row: int
    epoch: int
    carried: bool
    turn: int | None
    created: float
    entry: Entry

    @property
    def open(self) -> bool:
        """Whether it is a reply that still grows, or that a crash has cut off."""
        return self.entry.finish is Finish.OPEN


class History:
    """All conversations in the database at ``path``. Raises StoreError, as does every method."""

    def __init__(self, path: Path) -> None:
        self._database = Database(path, read_only=True)

    def close(self) -> None:
        self._database.close()

    def version(self) -> int:
        """Changes whenever another process has written."""
        return as_int((self._database.one("PRAGMA data_version") or (0,))[0])

    def roots(self) -> list[str]:
        """Roots of all conversations, oldest first."""
        return [unpack(as_bytes(root)) for (root,) in self._database.all("SELECT root FROM conversation ORDER BY id")]

    def find(self, root: str) -> int | None:
        """The conversation of ``root``; another one after it was forgotten and begun anew."""
        found = self._database.one("SELECT id FROM conversation WHERE root = ?", (pack(root),))
        return None if found is None else as_int(found[0])

    def entries(self, conversation: int, after: Told | None = None) -> list[Told]:
        """All entries, or those behind ``after``, in order."""
        columns = ", ".join(f"entry.{column}" for column in ENTRY_COLUMNS.split(", "))
        query = (
            f"SELECT entry.id, entry.epoch, epoch.opening, turn.turn, entry.created, {columns}"  # noqa: S608
            " FROM entry JOIN epoch ON epoch.conversation = entry.conversation AND epoch.epoch = entry.epoch"
            " LEFT JOIN turn ON turn.entry = entry.id WHERE entry.conversation = ? AND entry.id > ?"
            " ORDER BY entry.epoch, entry.id"
        )
        row, number = (after.row, after.number) if after is not None else (0, 0)
        found: list[Told] = []
        for at, values in enumerate(self._database.all(query, (conversation, row)), number + 1):
            id_, epoch, opening, turn, created, *rest = values
            try:
                entry = entry_from(rest)
            except ValueError as error:
                raise self._database.corrupt(str(error)) from None
            carried = entry.start < as_int(opening)
            turn = None if turn is None else as_int(turn)
            found.append(Told(at, as_int(id_), as_int(epoch), carried, turn, float(str(created)), entry))
        return found

    def began(self, conversation: int, epoch: int) -> tuple[float, int]:
        """When the epoch's first entry was rendered (or, without one, the epoch was made), in seconds since 1970; and
        how many entries earlier epochs have."""
        query = (
            "SELECT COALESCE((SELECT created FROM entry WHERE conversation = ?1 AND epoch = ?2 ORDER BY id LIMIT 1),"
            " (SELECT created FROM epoch WHERE conversation = ?1 AND epoch = ?2), 0),"
            " (SELECT COUNT(*) FROM entry WHERE conversation = ?1 AND epoch < ?2)"
        )
        created, earlier = self._database.one(query, (conversation, epoch)) or (0.0, 0)
        return float(str(created)), as_int(earlier)

    def epochs(self, conversation: int) -> list[Epoch]:
        """Asked after ``entries``, it knows the epochs of all of them."""
        query = "SELECT epoch, created, why, opening FROM epoch WHERE conversation = ? ORDER BY epoch"
        found = self._database.all(query, (conversation,))
        return [Epoch(as_int(n), float(str(at)), str(why), as_int(op)) for n, at, why, op in found]
