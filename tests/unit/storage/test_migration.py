"""Databases of earlier versions are brought forward whole or not at all; what is not ours is not touched.

What version 1 wrote stands here literally, checksums included, as it came out of version 1.
"""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from qmlx_lsp.errors import StoreError
from qmlx_lsp.storage import records
from qmlx_lsp.storage.conversations import Conversation, ConversationLog
from qmlx_lsp.transcript.entry import Entry, Finish, Kind

ROOT = Path(__file__).parents[3]

VERSION_1 = """
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
INSERT INTO conversation VALUES (1, x'2f70726f6a656374', 1);
INSERT INTO epoch VALUES (1, 0, 'identity 1', 1000.0), (1, 1, 'identity 1', 2000.0);
INSERT INTO entry VALUES
    (1, 1, 0, 0, 3, 'system', NULL, NULL, x'596f752068656c702e', x'010000000200000003000000',
     x'2a0a84dca846a9474a07bcc8c20cb389', 1000.0),
    (2, 1, 0, 3, 1, 'context', NULL, x'7372632fedb3a92e7079', x'78203d20310a', x'0a000000',
     x'7c037616af5754f8a0a9aef078df4049', 1000.0),
    (3, 1, 0, 4, 2, 'question', NULL, NULL, x'5768793f', x'0400000005000000',
     x'ead810984a48841fce8ae381df157375', 1000.0),
    (4, 1, 0, 6, 4, 'assistant', 'complete', NULL, x'4265636175736520002e', x'07000000080000001400000015000000',
     x'db6d88cbe73eb503ba79929439cca9ad', 1000.0),
    (5, 1, 1, 0, 3, 'system', NULL, NULL, x'596f752068656c702e', x'010000000200000003000000',
     x'2a0a84dca846a9474a07bcc8c20cb389', 2000.0),
    (6, 1, 1, 3, 2, 'question', NULL, NULL, x'416e643f', x'0400000006000000',
     x'411abdbcdbc931b60b7dc3528f6a59df', 2000.0),
    (7, 1, 1, 5, 3, 'assistant', 'open', NULL, x'6861', x'07000000080000001e000000',
     x'cca1fd0a68571c4439c6e895f4691431', 2000.0);
INSERT INTO turn VALUES (1, 4, 2, x'7b22706c616e223a22636f6c64227d'), (2, 7, 2, NULL);
INSERT INTO told VALUES (1, x'622e7079', x'790a');
PRAGMA user_version = 1;
"""
SYSTEM = Entry(Kind.SYSTEM, "You help.", (1, 2, 3), 0)
FIRST_EPOCH = [
    SYSTEM,
    Entry(Kind.CONTEXT, "x = 1\n", (10,), 3, path="src/\udce9.py"),
    Entry(Kind.QUESTION, "Why?", (4, 5), 4),
    Entry(Kind.ASSISTANT, "Because \0.", (7, 8, 20, 21), 6, Finish.COMPLETE),
]
SECOND_EPOCH = [
    SYSTEM,
    Entry(Kind.QUESTION, "And?", (4, 6), 3),
    Entry(Kind.ASSISTANT, "ha", (7, 8, 30), 5, Finish.CANCELLED),
]


def _make(path: Path, script: str, journal: str = "wal") -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.executescript(script)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database as version 1 left it: in the middle of a reply."""
    made = tmp_path / "conversations.sqlite3"
    _make(made, VERSION_1)
    return made


def _open(path: Path, *, read_only: bool = False) -> ConversationLog:
    return ConversationLog(path, clock=lambda: 3000.0, read_only=read_only)


def _version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def test_version_1_is_brought_forward_with_all_it_held(path: Path) -> None:
    log = _open(path)
    assert log.recover() == 1
    first, second = log.epochs("/project")
    assert (first, second) == (
        Conversation(1, "/project", 0, "identity 1", 0), Conversation(1, "/project", 1, "identity 1", 0),
    )  # fmt: skip
    assert log.entries(first) == FIRST_EPOCH
    assert log.entries(second) == SECOND_EPOCH
    assert log.told(second) == {"b.py": "y\n"}
    assert [(t.turn, t.question, t.text, t.usage) for t in log.turns(first, None)] == [
        (1, "Why?", "Because \0.", {"plan": "cold"})
    ]
    assert log.open("/project", "identity 1") == second
    log.close()
    assert _version(path) == 2


def test_an_older_daemon_that_has_it_open_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows no lock; brought forward beneath it, the file would refuse what it writes."""
    monkeypatch.setattr(records, "LOCK_WAIT_S", 0.05)
    with closing(sqlite3.connect(path)) as older:
        assert older.execute("SELECT count(*) FROM epoch").fetchone() == (2,)
        for read_only in (False, True):
            with pytest.raises(StoreError, match=r"is open in another process .*stop the older qmlx-lsp"):
                _open(path, read_only=read_only)
        assert _version(path) == 1
        older.execute("INSERT INTO epoch VALUES (1, 2, 'identity 1', 2500.0)")
        older.commit()
    log = _open(path)
    assert [epoch.epoch for epoch in log.epochs("/project")] == [0, 1, 2]
    log.close()
    assert _version(path) == 2


def test_there_is_a_test_from_every_earlier_version() -> None:
    assert records.SCHEMA_VERSION == 2, "a literal database of the version before belongs into this module"


def test_what_was_brought_forward_goes_on(path: Path) -> None:
    log = _open(path)
    log.recover()
    second = log.open("/project", "identity 1")
    answer = Entry(Kind.CONTEXT, "42", (50,), 8, tool="count")
    log.append(second, [answer], {"c.py": "z"})
    turn = log.begin_reply(second, Entry(Kind.ASSISTANT, "", (7, 8), 9, Finish.OPEN))
    assert turn == 3
    done = Entry(Kind.ASSISTANT, "so", (7, 8, 9), 9, Finish.COMPLETE)
    log.finish_reply(turn, done, {})
    third = log.new_epoch(second, "identity 1", why="full", opening=[SYSTEM], told={"d.py": "d"})
    log.close()
    again = _open(path)
    assert again.entries(second) == [*SECOND_EPOCH, answer, done]
    assert again.epochs("/project")[2] == third
    assert (third.epoch, third.opening, again.told(third)) == (2, 3, {"d.py": "d"})
    again.close()


def test_reading_brings_an_old_file_forward_when_nobody_writes(path: Path) -> None:
    log = _open(path, read_only=True)
    second = log.find("/project")
    assert second is not None
    assert [entry.text for entry in log.entries(second)] == ["You help.", "And?", "ha"]
    with pytest.raises(StoreError):
        log.recover()
    log.close()
    assert _version(path) == 2


def _still_version_1(path: Path) -> None:
    copy = path.with_name("copy")
    with closing(sqlite3.connect(path)) as connection, closing(sqlite3.connect(copy)) as other:
        connection.backup(other)
        assert "opening" not in "".join(sql or "" for (sql,) in connection.execute("SELECT sql FROM sqlite_master"))
    assert _version(copy) == 1
    log = _open(copy)
    log.recover()
    assert [log.entries(epoch) for epoch in log.epochs("/project")] == [FIRST_EPOCH, SECOND_EPOCH]
    log.close()


def test_an_error_in_the_middle_leaves_the_earlier_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = records.MIGRATIONS
    with monkeypatch.context() as patch:
        patch.setattr(records, "MIGRATIONS", (first, second + "; CREATE TABLE entry (twice)"))
        with pytest.raises(StoreError):
            _open(path)
    _still_version_1(path)


DIE = """
import os, signal, sys
from pathlib import Path
from qmlx_lsp.storage import records
class Deadly(str):
    def split(self, sep):
        yield from super().split(sep)[:2]
        os.kill(os.getpid(), signal.SIGKILL)
records.MIGRATIONS = records.MIGRATIONS[0], Deadly(records.MIGRATIONS[1])
records.Database(Path(sys.argv[1]), read_only=False)
"""


def test_a_kill_in_the_middle_leaves_the_earlier_version(path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", DIE, str(path)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    _still_version_1(path)


FOREIGN = "CREATE TABLE bookmark (url TEXT); INSERT INTO bookmark VALUES ('x');"


@pytest.mark.parametrize("read_only", [False, True], ids=["to write", "to read"])
@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize(
    ("script", "said"),
    [
        (VERSION_1 + "PRAGMA user_version = 99;", "newer version"),
        (FOREIGN, "no conversation log"),
        (FOREIGN + "PRAGMA user_version = 1;", "no conversation log"),
        (FOREIGN + "PRAGMA user_version = 99;", "no conversation log"),
        ("PRAGMA user_version = -1;", "no conversation log"),
    ],
)
def test_a_newer_or_foreign_database_is_left_alone(
    tmp_path: Path, script: str, said: str, journal: str, read_only: bool
) -> None:
    path = tmp_path / "conversations.sqlite3"
    _make(path, script, journal)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=said) as error:
        _open(path, read_only=read_only)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.touch()], ids=["no file", "an empty file"])
def test_a_new_database_has_the_newest_version(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "conversations.sqlite3"
    make(path)
    _open(path).close()
    assert _version(path) == records.SCHEMA_VERSION == len(records.MIGRATIONS)
