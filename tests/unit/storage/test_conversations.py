"""The conversation log: entries tile, epochs part, replies are journalled, damage is told and never mended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from qmlx_lsp.errors import StoreError
from qmlx_lsp.storage.conversations import Conversation, ConversationLog
from qmlx_lsp.transcript.entry import Entry, Finish, Kind

HEADER = (7, 8)


def _open(path: Path, *, read_only: bool = False) -> ConversationLog:
    return ConversationLog(path, clock=lambda: 1.0, read_only=read_only)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "conversations.db"


@pytest.fixture
def log(path: Path) -> Iterator[ConversationLog]:
    log = _open(path)
    yield log
    log.close()


@pytest.fixture
def conversation(log: ConversationLog) -> Conversation:
    return log.open("/project", "identity 1")


def _system(text: str = "You help.") -> Entry:
    return Entry(Kind.SYSTEM, text, (1, 2, 3), 0)


def _question(start: int, text: str = "Why?") -> Entry:
    return Entry(Kind.QUESTION, text, (4, 5), start)


def _reply(start: int) -> Entry:
    return Entry(Kind.ASSISTANT, "", HEADER, start, Finish.OPEN)


def _ask(log: ConversationLog, conversation: Conversation, text: str = "Why?") -> tuple[int, Entry]:
    """Append a question and begin its reply."""
    end = log.entries(conversation)[-1].end if log.entries(conversation) else 0
    log.append(conversation, [_question(end, text)], {})
    entry = _reply(end + 2)
    return log.begin_reply(conversation, entry), entry


def test_entries_come_back_as_they_were(log: ConversationLog, conversation: Conversation, path: Path) -> None:
    entries = [
        _system("grüße \0 \udcff 🎉"),
        Entry(Kind.CONTEXT, "", (), 3, path="src/\udce9.py"),
        Entry(Kind.CONTEXT, "x\r\n", (2**31 - 1, 0), 3, path="a.py"),
    ]
    log.append(conversation, entries[:1], {})
    log.append(conversation, entries[1:], {"a.py": "sum", "src/\udce9.py": "other"})
    assert log.entries(conversation) == entries
    other = _open(path, read_only=True)
    assert other.find("/project") == conversation
    assert other.entries(conversation) == entries
    assert other.told(conversation) == {"a.py": "sum", "src/\udce9.py": "other"}
    other.close()


def test_told_follows_what_is_appended(log: ConversationLog, conversation: Conversation) -> None:
    log.append(conversation, [_system()], {"a": "1", "b": "2"})
    log.append(conversation, [], {"a": "3", "b": None, "c": None})
    assert log.told(conversation) == {"a": "3"}


@pytest.mark.parametrize("start", [2, 4])
def test_a_gap_or_an_overlap_is_refused_whole(log: ConversationLog, conversation: Conversation, start: int) -> None:
    with pytest.raises(AssertionError):
        log.append(conversation, [_system(), _question(start)], {"a": "1"})
    assert log.entries(conversation) == []
    assert log.told(conversation) == {}


def test_conversations_are_by_root(log: ConversationLog, conversation: Conversation) -> None:
    other = log.open("/other \udcff", "identity 1")
    log.append(conversation, [_system()], {"a": "1"})
    assert log.entries(other) == []
    assert log.told(other) == {}
    assert log.roots() == ["/project", "/other \udcff"]
    assert log.find("/nowhere") is None
    assert log.open("/project", "identity 1") == conversation


def test_another_identity_is_another_epoch(log: ConversationLog, conversation: Conversation) -> None:
    log.append(conversation, [_system()], {"a": "1"})
    turn, _ = _ask(log, conversation)
    log.drop_reply(turn)
    later = log.open("/project", "identity 2")
    assert (later.id, later.epoch, later.identity) == (conversation.id, 1, "identity 2")
    assert log.entries(later) == []
    assert log.turns(later, None) == []
    assert log.told(later) == {}
    log.append(later, [_system("again")], {})
    assert log.entries(conversation)[0] == _system()
    assert log.new_epoch(later, "identity 2", why="full").epoch == 2
    found = log.find("/project")
    assert found is not None
    assert found.epoch == 2


def test_a_reply_from_header_to_end(log: ConversationLog, conversation: Conversation) -> None:
    log.append(conversation, [_system()], {})
    turn, entry = _ask(log, conversation)
    assert log.entries(conversation)[-1] == entry
    log.journal_reply(turn, [*HEADER, 20], "B")
    assert log.entries(conversation)[-1] == replace(entry, ids=(*HEADER, 20), text="B")
    final = replace(entry, ids=(*HEADER, 20, 21), text="Because", finish=Finish.COMPLETE)
    log.finish_reply(turn, final, {"context": 7, "decode_tps": 1.5, "plan": "cold"})
    assert log.entries(conversation)[-1] == final
    (record,) = log.turns(conversation, None)
    assert (record.turn, record.question, record.text) == (turn, "Why?", "Because")
    assert (record.finish, record.span) == (Finish.COMPLETE, (5, 9))
    assert record.usage == {"context": 7, "decode_tps": 1.5, "plan": "cold"}


def test_turns_are_the_newest_oldest_first(log: ConversationLog, conversation: Conversation) -> None:
    turns = []
    for number in range(4):
        turn, entry = _ask(log, conversation, f"question {number}")
        turns.append(turn)
        log.finish_reply(turn, replace(entry, text=f"answer {number}", finish=Finish.LENGTH), {})
    assert turns == sorted(set(turns))
    assert [r.question for r in log.turns(conversation, 2)] == ["question 2", "question 3"]
    assert [r.text for r in log.turns(conversation, None)] == [f"answer {n}" for n in range(4)]
    assert log.turns(conversation, 0) == []


def test_a_dropped_reply_leaves_no_header(log: ConversationLog, conversation: Conversation) -> None:
    first, _ = _ask(log, conversation)
    log.drop_reply(first)
    assert [entry.kind for entry in log.entries(conversation)] == [Kind.QUESTION]
    second, _ = _ask(log, conversation)
    assert second > first


def test_an_open_reply_is_the_last_entry(log: ConversationLog, conversation: Conversation) -> None:
    turn, entry = _ask(log, conversation)
    with pytest.raises(AssertionError):
        log.append(conversation, [_question(entry.end)], {})
    with pytest.raises(AssertionError):
        log.begin_reply(conversation, _reply(entry.end))
    with pytest.raises(AssertionError):
        log.journal_reply(turn, [99, *HEADER], "")
    log.finish_reply(turn, replace(entry, finish=Finish.ERROR), {})
    for late in (lambda: log.journal_reply(turn, HEADER, ""), lambda: log.drop_reply(turn)):
        with pytest.raises(AssertionError):
            late()


def test_recovery_closes_what_a_crash_left_open(log: ConversationLog, conversation: Conversation) -> None:
    other = log.open("/other", "identity 1")
    turn, entry = _ask(log, conversation)
    log.journal_reply(turn, [*HEADER, 30], "half")
    _ask(log, other)
    assert log.recover() == 2
    assert log.entries(conversation)[-1] == replace(entry, ids=(*HEADER, 30), text="half", finish=Finish.CANCELLED)
    assert log.turns(conversation, 1)[0].finish is Finish.CANCELLED
    assert [e.kind for e in log.entries(other)] == [Kind.QUESTION]
    assert log.recover() == 0


def test_private_modes(log: ConversationLog, conversation: Conversation, path: Path) -> None:
    log.append(conversation, [_system()], {})
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert {p.stat().st_mode & 0o777 for p in path.parent.iterdir()} == {0o600}


def test_read_only_writes_nothing_and_needs_a_log(log: ConversationLog, path: Path, tmp_path: Path) -> None:
    reader = _open(path, read_only=True)
    with pytest.raises(StoreError):
        reader.open("/project", "identity 1")
    reader.close()
    with pytest.raises(StoreError, match="no conversation log"):
        _open(tmp_path / "nowhere.db", read_only=True)
    assert not (tmp_path / "nowhere.db").exists()


def test_a_log_can_be_read_when_nobody_has_it_open(path: Path) -> None:
    log = _open(path)
    conversation = log.open("/project", "identity 1")
    log.close()
    reader = _open(path, read_only=True)
    assert reader.find("/project") == conversation
    reader.close()


@pytest.mark.parametrize("garbage", [b"no database " * 1_000, "half", "header", "newer"])
def test_damage_is_told_with_a_remedy_and_nothing_is_deleted(path: Path, garbage: bytes | str) -> None:
    log = _open(path)
    conversation = log.open("/project", "identity 1")
    for number in range(50):
        log.append(conversation, [Entry(Kind.CONTEXT, "x" * 400, (1,), number)], {})
    log.close()
    if garbage == "newer":
        import sqlite3

        connection = sqlite3.connect(path)
        connection.execute("PRAGMA user_version = 99")
        connection.close()
    else:
        data = path.read_bytes()
        changed = garbage if isinstance(garbage, bytes) else data[: len(data) // 2]
        path.write_bytes(b"\0" * 100 + data[100:] if garbage == "header" else changed)
    before = path.read_bytes()

    def use() -> None:
        log = _open(path)
        try:
            log.entries(conversation)
        finally:
            log.close()

    with pytest.raises(StoreError) as error:
        use()
    assert str(path) in str(error.value)
    assert "move" in str(error.value)
    assert path.read_bytes()[100:] == before[100:]  # but for SQLite's own counters


def test_a_flipped_bit_in_the_ids_is_not_believed(log: ConversationLog, conversation: Conversation) -> None:
    log.append(conversation, [_system()], {})
    with log._database.transaction() as run:
        run.execute("UPDATE entry SET ids = ?", (b"\1\0\0\0\2\0\0\0\4\0\0\0",))
    with pytest.raises(StoreError, match="checksum"):
        log.entries(conversation)


def test_a_folder_without_permission_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as error:
        _open(tmp_path / "file" / "conversations.db")
    assert os.linesep not in str(error.value)


def test_threads_may_share_a_log(log: ConversationLog, conversation: Conversation) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(number: int) -> int:
        mine = log.open(f"/root {number}", "identity")
        for at in range(5):
            log.append(mine, [Entry(Kind.CONTEXT, "", (1,), at)], {})
        return len(log.entries(mine))

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, range(4))) == [5] * 4


def test_a_commit_reaches_the_disk(log: ConversationLog) -> None:
    assert log._database.one("PRAGMA synchronous") == (2,)  # FULL
    assert log._database.one("PRAGMA journal_mode") == ("wal",)
