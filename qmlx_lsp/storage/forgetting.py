"""Forgetting a conversation: its text, its ids, and every checkpoint that no other conversation needs.

It must never touch what another conversation reaches, and never say that something is gone that is not.

Invariant: the checkpoints go first, the log last. Interrupted in between, the log still knows what to look for, and
forgetting again finishes it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from qmlx_lsp.storage import upkeep
from qmlx_lsp.storage.catalog import Catalog
from qmlx_lsp.storage.conversations import ConversationLog
from qmlx_lsp.storage.erasing import Held
from qmlx_lsp.storage.lookup import Digests
from qmlx_lsp.storage.row import Row
from qmlx_lsp.storage.survey import Amount

NOTHING = Amount(0, 0)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What went, or would go. ``files`` and their ``bytes`` are checkpoints. ``wiped``: see ``erasing.erase``."""

    root: str
    held: Held
    checkpoints: Amount
    wiped: bool

    def as_dict(self) -> dict[str, Any]:
        return {"root": self.root, **asdict(self.held), **self.checkpoints._asdict(), "wiped": self.wiped}


def going(
    rows: Sequence[Row], mine: Collection[upkeep.Line], others: Collection[upkeep.Line], held: Collection[bytes]
) -> list[Row]:
    """The files that hold ids of ``mine`` and that ``others`` do not need, children before parents. Pure.

    More than ``upkeep.forgotten`` finds: also files that no chain leads to any more, and all that no conversation
    reaches and nobody holds: an epoch that was prepared and given up is among them, and nothing else tells whose it
    was. The others of these can never be used again.
    """
    found = {row.id: row for row in upkeep.forgotten(rows, mine, others)}
    needed = upkeep.holders(upkeep.claims(rows, others))
    found |= {row.id: row for row in rows if row.id not in needed and row.id not in held}
    for line in mine:
        digests = Digests(line.log)
        for row in rows:
            if row.id not in needed and digests.match(row.a, row.parent) and digests.match(row.b, row.digest):
                found[row.id] = row
    return sorted(found.values(), key=lambda row: (-row.a, row.id))


def of_root(log: ConversationLog, root: str, rows: Sequence[Row], held: Collection[bytes]) -> list[Row]:
    """The files that go with the conversation of ``root``; ``rows`` were read before, and ``held`` are the ids of
    those that living processes hold. Raises StoreError."""
    known = log.find(root)
    if known is None:
        return []
    others = [line for line in upkeep.lines(log) if line.root != root]
    return going(rows, upkeep.past_and_present(log, known), others, held)


def forget_checkpoints(log: ConversationLog, root: str, catalog: Catalog) -> Amount:
    """Delete the checkpoints of ``root``, whoever holds them. Raises OSError, sqlite3.Error and StoreError."""
    with catalog.changing.held():
        catalog.settle(every_size=False)  # files that have no row yet are files all the same
        rows = catalog.ask(lambda index: index.rows())
    return upkeep.forget(catalog, of_root(log, root, rows, catalog.leases.held()), lambda _done, _total: None)


def forget_text(log: ConversationLog, root: str, checkpoints: Amount) -> Forgotten | None:
    """Delete the conversation of ``root`` from the log; None when there is none."""
    known, before = log.find(root), log.held(root)
    if known is None or before is None:
        return None
    return Forgotten(root, before, checkpoints, log.erase(known))
