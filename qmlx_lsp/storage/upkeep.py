"""What people do to a store by hand: whose files are these, which can go, mend it, forget.

It must never decide while a file's owner cannot be known: a conversation log that cannot be read is an error, and
nothing is deleted. Conversations themselves are only read.

Invariant (read files before logs): ids are in the conversation log before their checkpoint is in the store. So what
was seen in the store, and is reached by no log that was read afterwards, belongs to no conversation.
Invariant (prefix-closed): a claim holds the whole chain before everything in it.
Invariant: ``collect`` removes nothing that a living process holds, ``forget`` whatever it is told to.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from qmlx_lsp.errors import StoreError
from qmlx_lsp.storage import retention
from qmlx_lsp.storage.catalog import Catalog
from qmlx_lsp.storage.conversations import Conversation, ConversationLog
from qmlx_lsp.storage.files import FileSystem
from qmlx_lsp.storage.leases import owners
from qmlx_lsp.storage.lookup import Digests
from qmlx_lsp.storage.row import Kind, Row
from qmlx_lsp.storage.shelf import damage, file_path, reason_of
from qmlx_lsp.storage.survey import Amount, Findings, Progress, check, survey, usage
from qmlx_lsp.transcript.tokens import TokenLog

YOUNG_S = 600.0  # seconds; a segment that has just been written may still get its snapshot
BATCH = 64  # files that are deleted before other processes may change the store again
NO_SNAPSHOT, UNREACHABLE, UNCLAIMED, QUOTA = "no snapshot", "unreachable", "unclaimed", "quota"


@dataclass(frozen=True, slots=True)
class Line:
    """A conversation in one of its epochs: where it belongs, and its tokens."""

    root: str
    epoch: int
    log: TokenLog


@dataclass(frozen=True, slots=True)
class Claim:
    """What one model has stored of a conversation. ``positions`` can be restored, the longest first."""

    line: Line
    fingerprint: bytes
    rows: list[Row]
    positions: list[int]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a collection removes, by reason and in this order; ``kept``: what could go, but is in use or young."""

    going: dict[str, list[Row]]
    kept: list[Row]

    @property
    def rows(self) -> list[Row]:
        return [row for rows in self.going.values() for row in rows]


# --- whose files these are ------------------------------------------------------------------------------------------


def lines(log: ConversationLog) -> list[Line]:
    """Every conversation in its current epoch. Raises StoreError."""
    found = [log.find(root) for root in log.roots()]
    return [_line(log, conversation) for conversation in found if conversation is not None]


def past_and_present(log: ConversationLog, conversation: Conversation) -> list[Line]:
    """One conversation in all its epochs, the current one last. Raises StoreError."""
    return [_line(log, replace(conversation, epoch=epoch)) for epoch in range(conversation.epoch + 1)]


def _line(log: ConversationLog, conversation: Conversation) -> Line:
    tokens = TokenLog()
    for entry in log.entries(conversation):
        tokens.extend(entry.ids)
    return Line(conversation.root, conversation.epoch, tokens)


def claims(rows: Iterable[Row], of: Iterable[Line]) -> list[Claim]:
    """For every line and every model: what of it is stored. Nothing is no claim. Pure."""
    models: dict[bytes, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row.a, row.b)):
        models.setdefault(row.fingerprint, []).append(row)
    found: list[Claim] = []
    for line in of:
        digests = Digests(line.log)
        for fingerprint, ordered in models.items():
            claim = _claim(line, digests, fingerprint, ordered)
            if claim.rows:
                found.append(claim)
    return found


def _claim(line: Line, digests: Digests, fingerprint: bytes, ordered: Sequence[Row]) -> Claim:
    """``ordered``: the model's rows by position, so that whatever leads to a row has been seen before it."""
    reached = {0}
    restorable: set[int] = set()
    mine: list[Row] = []
    for row in ordered:
        if row.a not in reached or not digests.match(row.a, row.parent) or not digests.match(row.b, row.digest):
            continue
        mine.append(row)
        (restorable if row.kind is Kind.SNAPSHOT else reached).add(row.b)
    ends = restorable if any(row.needs_snapshot for row in ordered) else reached
    return Claim(line, fingerprint, mine, sorted(ends - {0}, reverse=True))


def holders(found: Iterable[Claim]) -> dict[bytes, set[str]]:
    """For every claimed file, by id: the roots of the conversations that reach it."""
    roots: dict[bytes, set[str]] = {}
    for claim in found:
        for row in claim.rows:
            roots.setdefault(row.id, set()).add(claim.line.root)
    return roots


def amount(rows: Iterable[Row]) -> Amount:
    sizes = [row.size for row in rows]
    return Amount(len(sizes), sum(sizes))


# --- what can go ----------------------------------------------------------------------------------------------------


def plan(
    rows: Sequence[Row], room: int, *, held: Collection[bytes], claimed: Collection[bytes] | None, now: float
) -> Plan:
    """What a collection removes so that the rest takes at most ``room`` bytes. Pure.

    ``held``: ids that living processes hold. ``claimed``: ids that conversations reach; the others go as well,
    unless it is None.
    """
    lost, barren = retention.hopeless(rows)
    young = {row.id for row in barren if now - row.created < YOUNG_S}
    stays = {*held, *young}
    wanted = {UNREACHABLE: lost, NO_SNAPSHOT: barren}
    if claimed is not None:
        wanted[UNCLAIMED] = [row for row in rows if row.id not in claimed]
    left = list(rows)
    going: dict[str, list[Row]] = {}
    for reason, some in wanted.items():
        here = {row.id for row in left}
        going[reason] = retention.leaves_first(left, [row for row in some if row.id in here], stays)
        gone = {row.id for row in going[reason]}
        left = [row for row in left if row.id not in gone]
    by_id = {row.id: row for row in left}
    going[QUOTA] = [by_id[id_] for id_ in retention.victims(left, room, pinned=held)]
    gone = {row.id for rows in going.values() for row in rows}
    candidates = {row.id: row for some in wanted.values() for row in some}
    return Plan(going, [row for id_, row in candidates.items() if id_ not in gone])


def look_for_room(
    fs: FileSystem, folder: Path, quota_bytes: int, *, left_over: int, claimed_by: Callable[[], list[Line]] | None,
    now: float,
) -> Plan:  # fmt: skip
    """The plan for the store in ``folder``; changes nothing.

    ``left_over``: bytes that go anyhow. ``claimed_by`` reads the conversations, once the files have been seen.
    """
    with trouble(folder):
        rows = survey(fs, folder).rows
        found = usage(folder)
        listed = sum(row.size for row in rows)
        other = sum(kind.bytes for name, kind in found.items() if name != "index") - listed - left_over
        held, _ = owners(folder)
        claimed = holders(claims(rows, claimed_by())) if claimed_by is not None else None
        return plan(rows, quota_bytes - other, held=held, claimed=claimed, now=now)


def forgotten(rows: Sequence[Row], mine: Iterable[Line], others: Iterable[Line]) -> list[Row]:
    """What goes when the conversation ``mine`` is forgotten and ``others`` are not: all that no other one reaches,
    and all that is of no use without it, children before parents. Pure."""
    kept = holders(claims(rows, others))
    going = {row.id: row for claim in claims(rows, mine) for row in claim.rows if row.id not in kept}
    before, _ = retention.hopeless(rows)
    lost = {row.id for row in before}
    orphans, _ = retention.hopeless([row for row in rows if row.id not in going])
    going |= {row.id: row for row in orphans if row.id not in lost}
    return sorted(going.values(), key=lambda row: (-row.a, row.id))


# --- doing it -------------------------------------------------------------------------------------------------------


@contextmanager
def trouble(folder: Path) -> Iterator[None]:
    """Turn what the disk or the index says into one line for a user."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"the checkpoint store {folder} cannot be used: {reason_of(error)}") from error
    except sqlite3.Error as error:
        raise StoreError(f"the checkpoint index in {folder} cannot be used: {error}") from error


@contextmanager
def opened(fs: FileSystem, folder: Path, quota_bytes: int) -> Iterator[Catalog]:
    """The store's catalog, for changing it by hand. Raises StoreError, also for what happens inside."""
    with trouble(folder):
        catalog = Catalog(fs, folder, quota_bytes, upkeep=True)
        try:
            yield catalog
        finally:
            catalog.close()


def collect(catalog: Catalog, chosen: Plan, progress: Progress) -> Plan:
    """Remove what ``chosen`` says and nobody holds by now; returns what was removed and what was not."""
    with catalog.leases.free(()):
        pass  # which sweeps what dead processes held
    total, done = sum(row.size for row in chosen.rows), 0
    removed: dict[str, list[Row]] = {}
    for reason, rows in chosen.going.items():
        removed[reason] = []
        for some in _batches(rows):
            removed[reason] += catalog.retire(some, "evicted")
            done += sum(row.size for row in some)
            progress(done, total)
    gone = {row.id for rows in removed.values() for row in rows}
    return Plan(removed, chosen.kept + [row for row in chosen.rows if row.id not in gone])


def forget(catalog: Catalog, rows: Sequence[Row], progress: Progress) -> Amount:
    """Delete ``rows`` (children before parents), whoever holds them, and what lies in the quarantine, for nobody can
    say whose that is."""
    total, gone = sum(row.size for row in rows), Amount(0, 0)
    for some in _batches(rows):
        for row in catalog.expel(some, "forgotten"):
            gone = gone.plus(row.size)
        progress(gone.bytes, total)
    with catalog.changing.held():
        catalog.shelf.forget_aside()
    return gone


def _batches(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    return (rows[at : at + BATCH] for at in range(0, len(rows), BATCH))


def repair(catalog: Catalog, fs: FileSystem, folder: Path, findings: Findings) -> list[str]:
    """Put aside what is damaged still, and bring index and files into agreement; returns the names put aside.

    A disk that does not answer is no damage to a file: it stays.
    """
    done: list[str] = []
    for found in findings.damaged:
        with catalog.changing.held():
            error = check(fs, file_path(folder, found.name))[1]
            if error is not None and damage(error):
                catalog.put_aside(error.name, error.reason)
        if error is None or damage(error) or error.reason == "missing":
            done.append(found.name)
    catalog.relist(findings.contradicted)
    return done
