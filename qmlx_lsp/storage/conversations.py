"""The conversation log: what was told, asked and answered, with its token ids. The truth that outlives the cache.

It must never lose what it acknowledged, edit an entry that is finished, or delete a damaged database.

Invariant (tiling): the entries of an epoch lie end to end from token 0; a gap or an overlap is refused.
Invariant (durable): when ``append``, ``finish_reply`` or ``journal_reply`` returns, its data is on the disk.
Invariant (one open reply): while a reply is open, it is the last entry of its epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from sqlite3 import Connection

import orjson

from qmlx_lsp.errors import StoreError
from qmlx_lsp.storage import erasing
from qmlx_lsp.storage.records import (
    ENTRY_COLUMNS,
    FORGOTTEN,
    Database,
    as_bytes,
    as_int,
    entry_from,
    entry_values,
    pack,
    unpack,
)
from qmlx_lsp.transcript.entry import Entry, Finish, Kind

_OF_EPOCH = "WHERE entry.conversation = ? AND entry.epoch = ?"


@dataclass(frozen=True, slots=True)
class Conversation:
    """One root's conversation in one of its epochs. ``identity``: digest of tokenizer, template and thinking mode.
    ``opening``: tokens at the epoch's beginning that repeat what earlier epochs said."""

    id: int
    root: str
    epoch: int
    identity: str
    opening: int = 0


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """A question and its reply. ``span``: the reply's place in its epoch's token log; ``usage`` is empty while it is
    open."""

    turn: int
    epoch: int
    question: str
    text: str
    finish: Finish
    span: tuple[int, int]
    usage: dict[str, object]


class ConversationLog:
    """All conversations, in one database at ``path``. Any thread may call. ``clock`` gives seconds.

    ``read_only`` is for looking in while the daemon writes.

    Raises:
        StoreError: by every method, when the database is damaged or the disk refuses; names the file and a remedy.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float], read_only: bool = False) -> None:
        self._clock = clock
        self._database = Database(path, read_only=read_only)

    def close(self) -> None:
        self._database.close()

    # -- conversations and epochs ------------------------------------------------------------------------------------

    def find(self, root: str) -> Conversation | None:
        query = (
            "SELECT id, epoch, identity, opening FROM conversation JOIN epoch USING (epoch)"
            " WHERE root = ? AND epoch.conversation = conversation.id"
        )
        found = self._database.one(query, (pack(root),))
        return (
            Conversation(as_int(found[0]), root, as_int(found[1]), str(found[2]), as_int(found[3])) if found else None
        )

    def epochs(self, root: str) -> list[Conversation]:
        """The conversation of ``root`` in each of its epochs, oldest first."""
        query = (
            "SELECT id, epoch.epoch, identity, opening FROM conversation JOIN epoch ON epoch.conversation = id"
            " WHERE root = ? ORDER BY epoch.epoch"
        )
        found = self._database.all(query, (pack(root),))
        return [Conversation(as_int(i), root, as_int(n), str(identity), as_int(op)) for i, n, identity, op in found]

    def roots(self) -> list[str]:
        """Roots of all conversations, oldest first."""
        return [unpack(as_bytes(root)) for (root,) in self._database.all("SELECT root FROM conversation ORDER BY id")]

    def open(self, root: str, identity: str) -> Conversation:
        """The conversation of ``root``; a new one where there is none, a new epoch where the identity has changed."""
        known = self.find(root)
        if known is not None:
            return known if known.identity == identity else self.new_epoch(known, identity, why="model")
        with self._database.transaction() as run:
            run.execute("INSERT OR IGNORE INTO conversation (root, epoch) VALUES (?, 0)", (pack(root),))
            (id_,) = run.execute("SELECT id FROM conversation WHERE root = ?", (pack(root),)).fetchone()
            run.execute("INSERT OR IGNORE INTO epoch VALUES (?, 0, ?, ?, 0, '')", (id_, identity, self._clock()))
        return Conversation(as_int(id_), root, 0, identity)

    def new_epoch(
        self,
        conversation: Conversation,
        identity: str,
        *,
        why: str,
        opening: Sequence[Entry] = (),
        told: Mapping[str, str] | None = None,
    ) -> Conversation:
        """Begin a new token log with the entries of ``opening``, which tile it from token 0, and note what they have
        ``told``; all of it or nothing. ``why`` is a word or two. The entries of earlier epochs stay on the disk."""
        carried = sum(len(entry.ids) for entry in opening)
        with self._database.transaction() as run:
            query = "UPDATE conversation SET epoch = epoch + 1 WHERE id = ? RETURNING epoch"
            found = run.execute(query, (conversation.id,)).fetchone()
            if found is None:
                raise StoreError(FORGOTTEN)
            epoch = as_int(found[0])
            values = (conversation.id, epoch, identity, self._clock(), carried, why)
            run.execute("INSERT INTO epoch VALUES (?, ?, ?, ?, ?, ?)", values)
            run.execute("DELETE FROM told WHERE conversation = ?", (conversation.id,))
            begun = replace(conversation, epoch=epoch, identity=identity, opening=carried)
            self._add(run, begun, opening)
            self._note(run, begun, told or {})
        return begun

    def begin_anew(self, root: str) -> Conversation | None:
        """A new, empty epoch of ``root``'s conversation, which was told nothing; the one that is there if that is
        empty. None when there is no conversation."""
        known = self.find(root)
        query = "SELECT 1 FROM entry WHERE conversation = ? AND epoch = ? LIMIT 1"
        if known is None or self._database.one(query, (known.id, known.epoch)) is None:
            return known
        return self.new_epoch(known, known.identity, why="new")

    def held(self, root: str) -> erasing.Held | None:
        """What the log holds of ``root``; None when there is no conversation."""
        known = self.find(root)
        return None if known is None else erasing.held(self._database, known.id)

    def erase(self, conversation: Conversation) -> bool:
        """Delete the conversation in all its epochs; see ``erasing.erase``."""
        return erasing.erase(self._database, conversation.id)

    # -- entries -----------------------------------------------------------------------------------------------------

    def entries(self, conversation: Conversation) -> list[Entry]:
        """The entries of the conversation's epoch, in order; they tile ``[0, n)``."""
        query = f"SELECT {ENTRY_COLUMNS} FROM entry {_OF_EPOCH} ORDER BY id"  # noqa: S608 - constants
        found, end = list[Entry](), 0
        try:
            for values in self._database.all(query, (conversation.id, conversation.epoch)):
                entry = entry_from(values)
                if entry.start != end:
                    raise ValueError(f"an entry begins at token {entry.start} instead of {end}")  # noqa: TRY301
                found.append(entry)
                end = entry.end
        except ValueError as error:
            raise self._database.corrupt(str(error)) from None
        return found

    def append(self, conversation: Conversation, entries: Sequence[Entry], told: Mapping[str, str | None]) -> None:
        """Add entries behind the last one, and note for paths what they are now known to hold (None: nothing)."""
        with self._database.transaction() as run:
            self._add(run, conversation, entries)
            self._note(run, conversation, told)

    @staticmethod
    def _note(run: Connection, conversation: Conversation, told: Mapping[str, str | None]) -> None:
        for path, state in told.items():
            if state is None:
                run.execute("DELETE FROM told WHERE conversation = ? AND path = ?", (conversation.id, pack(path)))
            else:
                values = (conversation.id, pack(path), pack(state))
                run.execute("INSERT OR REPLACE INTO told VALUES (?, ?, ?)", values)

    def told(self, conversation: Conversation) -> dict[str, str]:
        """What was noted with ``append`` in the current epoch."""
        query = "SELECT path, state FROM told WHERE conversation = ? ORDER BY path"
        found = self._database.all(query, (conversation.id,))
        return {unpack(as_bytes(path)): unpack(as_bytes(state)) for path, state in found}

    def _add(self, run: Connection, conversation: Conversation, entries: Sequence[Entry]) -> int:
        """Insert ``entries``; return the row id of the last one, 0 when there are none."""
        of_epoch = (conversation.id, conversation.epoch)
        query = f"SELECT start + length, finish FROM entry {_OF_EPOCH} ORDER BY id DESC LIMIT 1"  # noqa: S608
        end, finish = run.execute(query, of_epoch).fetchone() or (0, None)
        if entries and finish == Finish.OPEN:
            raise AssertionError("an open reply is the last entry of its log: finish or drop it first")
        last = 0
        for entry in entries:
            if entry.start != end:
                raise AssertionError(f"an entry begins at token {entry.start}, the log ends at {end}")
            marks = ", ".join("?" * 12)
            insert = f"INSERT INTO entry (conversation, epoch, {ENTRY_COLUMNS}, created) VALUES ({marks})"  # noqa: S608
            last = run.execute(insert, (*of_epoch, *entry_values(entry), self._clock())).lastrowid or 0
            end = entry.end
        return last

    def _entry(self, values: Sequence[object]) -> Entry:
        try:
            return entry_from(values)
        except ValueError as error:
            raise self._database.corrupt(str(error)) from None

    # -- replies -----------------------------------------------------------------------------------------------------

    def begin_reply(self, conversation: Conversation, entry: Entry) -> int:
        """Append an open reply whose ids are the template's reply header alone; return its turn id.

        Turn ids are unique over all conversations and only ever grow.
        """
        assert (entry.kind, entry.finish) == (Kind.ASSISTANT, Finish.OPEN), "a reply begins as an open one"
        with self._database.transaction() as run:
            row = self._add(run, conversation, [entry])
            insert = "INSERT INTO turn (entry, header) VALUES (?, ?)"
            return run.execute(insert, (row, len(entry.ids))).lastrowid or 0

    def journal_reply(self, turn: int, ids: Sequence[int], text: str) -> None:
        """Put down an open reply as far as it has come: all its ids, the header's included, and its text."""
        with self._database.transaction() as run:
            self._replace(run, turn, lambda entry: replace(entry, ids=tuple(ids), text=text))

    def finish_reply(self, turn: int, entry: Entry, usage: Mapping[str, object]) -> None:
        """Put down an open reply in its final form. ``usage`` holds what JSON can hold."""
        assert entry.finish not in (None, Finish.OPEN), "a finished reply says how it ended"
        packed = orjson.dumps(dict(usage))
        with self._database.transaction() as run:
            self._replace(run, turn, lambda _: entry)
            run.execute("UPDATE turn SET usage = ? WHERE turn = ?", (packed, turn))

    def amend_usage(self, turn: int, usage: Mapping[str, object]) -> None:
        """Put down what became known of a finished turn's cost only later (bytes written behind the answer)."""
        packed = orjson.dumps(dict(usage))
        with self._database.transaction() as run:
            run.execute("UPDATE turn SET usage = ? WHERE turn = ?", (packed, turn))

    def _replace(self, run: Connection, turn: int, change: Callable[[Entry], Entry]) -> None:
        columns = f"entry.id, turn.header, {ENTRY_COLUMNS}"
        query = f"SELECT {columns} FROM turn JOIN entry ON entry.id = turn.entry WHERE turn = ?"  # noqa: S608
        found = run.execute(query, (turn,)).fetchone()
        assert found is not None, f"there is no turn {turn}"
        before = self._entry(found[2:])
        assert before.finish is Finish.OPEN, f"turn {turn} is finished"
        after = change(before)
        same = (after.kind, after.start, after.ids[: found[1]]) == (before.kind, before.start, before.ids[: found[1]])
        assert same, "a reply keeps its place and its header"
        marks = ", ".join(f"{column} = ?" for column in ENTRY_COLUMNS.split(", "))
        run.execute(f"UPDATE entry SET {marks} WHERE id = ?", (*entry_values(after), found[0]))  # noqa: S608

    def drop_reply(self, turn: int) -> None:
        """Take back a reply for which nothing was generated; its header leaves the log with it."""
        with self._database.transaction() as run:
            self._drop(run, turn)

    def _drop(self, run: Connection, turn: int) -> None:
        row = run.execute("DELETE FROM turn WHERE turn = ? RETURNING entry", (turn,)).fetchone()
        assert row is not None, f"there is no turn {turn}"
        left = run.execute("DELETE FROM entry WHERE id = ? AND finish = ? RETURNING id", (row[0], Finish.OPEN.value))
        assert left.fetchone() is not None, f"turn {turn} is finished"

    def recover(self) -> int:
        """Close the replies that a crash left open; return how many there were.

        A reply with generated ids becomes ``cancelled``; one that had only its header is dropped.
        """
        query = "SELECT turn, length > header FROM turn JOIN entry ON entry.id = turn.entry WHERE finish = ?"
        with self._database.transaction() as run:
            left = run.execute(query, (Finish.OPEN.value,)).fetchall()
            for turn, generated in left:
                if generated:
                    self._replace(run, turn, lambda entry: replace(entry, finish=Finish.CANCELLED))
                else:
                    self._drop(run, turn)
        return len(left)

    def turns(self, conversation: Conversation, limit: int | None, *, all_epochs: bool = False) -> list[TurnRecord]:
        """The newest ``limit`` turns (None: all) of the conversation's epoch, or of all of them, oldest first."""
        columns = ", ".join(f"entry.{column}" for column in ENTRY_COLUMNS.split(", "))
        question = (
            "SELECT text FROM entry AS q WHERE q.conversation = entry.conversation AND q.epoch = entry.epoch"
            " AND q.id < entry.id AND q.kind = ? ORDER BY q.id DESC LIMIT 1"
        )
        query = (
            f"SELECT turn, epoch, usage, ({question}), {columns} FROM turn JOIN entry"  # noqa: S608
            " ON entry.id = turn.entry WHERE entry.conversation = ? AND (? OR entry.epoch = ?)"
            " ORDER BY turn DESC LIMIT ?"
        )
        epoch, most = conversation.epoch, -1 if limit is None else limit
        values = (Kind.QUESTION.value, conversation.id, all_epochs, epoch, most)
        found = self._database.all(query, values)
        return [self._turn(values) for values in reversed(found)]

    def _turn(self, values: Sequence[object]) -> TurnRecord:
        turn, epoch, usage, question, *rest = values
        entry = self._entry(rest)
        assert entry.finish is not None
        return TurnRecord(
            as_int(turn),
            as_int(epoch),
            "" if question is None else unpack(as_bytes(question)),
            entry.text,
            entry.finish,
            (entry.start, entry.end),
            {} if usage is None else orjson.loads(as_bytes(usage)),
        )
