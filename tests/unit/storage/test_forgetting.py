"""Forgetting: all of one conversation goes, byte for byte, and nothing of any other."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from qmlx_lsp.errors import StoreError
from qmlx_lsp.storage import forgetting, survey, upkeep
from qmlx_lsp.storage.conversations import Conversation, ConversationLog
from qmlx_lsp.storage.erasing import Held
from qmlx_lsp.storage.files import OsFiles
from qmlx_lsp.storage.history import History
from qmlx_lsp.storage.row import Row
from qmlx_lsp.transcript.entry import Entry, Finish, Kind
from qmlx_lsp.transcript.tokens import TokenLog, ids_to_bytes
from tests.support.toy_state import Toy, branch, log_of, open_store, restore, save

HYBRID = Toy("hybrid", hybrid=True)
CANARY = "canary-7f3a"
SECRET_IDS = tuple(range(770_001, 770_041))
HEADER = (7, 8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "conversations.sqlite3"


@pytest.fixture
def log(path: Path) -> Iterator[ConversationLog]:
    log = ConversationLog(path, clock=lambda: 1.0)
    yield log
    log.close()


def _talk(log: ConversationLog, root: str, text: str, ids: tuple[int, ...]) -> Conversation:
    """A conversation of two epochs, every one with a question, a reply that grew, and something told."""
    conversation = log.open(root, "identity")
    for epoch in range(2):
        log.append(conversation, [Entry(Kind.QUESTION, f"{text}?", ids, 0, path=f"{text}.py")], {f"{text}.py": text})
        reply = Entry(Kind.ASSISTANT, "", HEADER, len(ids), Finish.OPEN)
        turn = log.begin_reply(conversation, reply)
        for length in range(1, len(ids)):
            log.journal_reply(turn, [*HEADER, *ids[:length]], text * length)
        done = replace(reply, ids=(*HEADER, *ids), text=text * 200, finish=Finish.COMPLETE)
        log.finish_reply(turn, done, {"reason": text})
        if epoch == 0:
            conversation = log.new_epoch(conversation, "identity", why="full")
    return conversation


def _holding(folder: Path, *needles: bytes) -> list[str]:
    """Files below ``folder`` that hold one of ``needles``."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert files
    return sorted(file.name for file in files if any(needle in file.read_bytes() for needle in needles))


def _secrets() -> tuple[bytes, ...]:
    ids = ids_to_bytes(SECRET_IDS)
    return (CANARY.encode(), *(ids[at : at + 16] for at in range(0, len(ids), 16)))


def test_not_a_byte_is_left_in_the_database(log: ConversationLog, path: Path) -> None:
    kept = _talk(log, "/kept", "kept", (1, 2, 3))
    gone = _talk(log, f"/{CANARY}", CANARY, SECRET_IDS)
    before = log.entries(kept), log.turns(kept, None, all_epochs=True), log.told(kept)
    assert _holding(path.parent, *_secrets())
    assert log.held(gone.root) == Held(epochs=2, entries=4, turns=2, tokens=2 * (40 + 42))
    assert log.erase(gone)
    assert _holding(path.parent, *_secrets()) == []  # and the log is still open
    assert (log.find(gone.root), log.held(gone.root), log.roots()) == (None, None, ["/kept"])
    assert (log.entries(kept), log.turns(kept, None, all_epochs=True), log.told(kept)) == before
    again = log.open(gone.root, "identity")
    assert (again.epoch, again.id > gone.id, log.entries(again)) == (0, True, [])


def test_a_reader_in_the_middle_is_told_of_and_the_rest_goes_with_the_next(
    log: ConversationLog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = _talk(log, "/gone", CANARY, SECRET_IDS)
    log._database.all("PRAGMA busy_timeout = 1")  # milliseconds
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM entry").fetchone() == (4,)
        assert not log.erase(gone)
        assert log.find("/gone") is None
    other = log.open("/other", "identity")
    assert log.erase(other)
    assert _holding(path.parent, *_secrets()) == []


def test_a_follower_between_two_looks_is_no_hindrance(log: ConversationLog, path: Path) -> None:
    gone = _talk(log, "/gone", CANARY, SECRET_IDS)
    history = History(path)
    assert len(history.entries(gone.id)) == 4
    assert log.erase(gone)
    assert history.find("/gone") is None
    history.close()


def test_who_still_holds_a_forgotten_conversation_is_told_and_brings_nothing_back(log: ConversationLog) -> None:
    gone = _talk(log, "/gone", CANARY, SECRET_IDS)
    log.erase(gone)
    entry = Entry(Kind.QUESTION, CANARY, SECRET_IDS, 0)
    for write in (
        lambda: log.append(gone, [entry], {}),
        lambda: log.append(gone, [], {"a.py": CANARY}),
        lambda: log.begin_reply(gone, Entry(Kind.ASSISTANT, "", HEADER, 0, Finish.OPEN)),
        lambda: log.new_epoch(gone, "identity", why="full", opening=[entry]),
    ):
        with pytest.raises(StoreError, match="forgotten"):
            write()
    assert log.roots() == []
    assert log.held("/gone") is None


# --- checkpoints ----------------------------------------------------------------------------------------------------

MINE = log_of(60)
THEIRS = branch(MINE, 20, range(100, 150))  # another conversation with the same first 20 tokens


def _line(log: TokenLog, root: str) -> upkeep.Line:
    return upkeep.Line(root, 0, log)


@pytest.fixture
def rows(tmp_path: Path) -> list[Row]:
    """MINE at 20, 40 and 60, THEIRS at 20 and 70."""
    store = open_store(tmp_path / "store")
    for end in (20, 40, 60):
        save(store, HYBRID, MINE, end)
    save(store, HYBRID, THEIRS)
    store.close()
    return survey.survey(OsFiles(), tmp_path / "store").rows


def _spans(rows: list[Row]) -> list[tuple[str, int, int]]:
    return sorted((row.kind.value, row.a, row.b) for row in rows)


OWN = [("segment", 20, 40), ("segment", 40, 60), ("snapshot", 40, 40), ("snapshot", 60, 60)]


def test_what_others_need_stays(rows: list[Row]) -> None:
    going = forgetting.going(rows, [_line(MINE, "/mine")], [_line(THEIRS, "/theirs")], ())
    assert _spans(going) == OWN
    assert [row.a for row in going] == sorted((row.a for row in going), reverse=True)  # children first
    assert len(forgetting.going(rows, [_line(MINE, "/mine")], [], ())) == len(rows)


def test_files_that_no_chain_leads_to_hold_ids_all_the_same(rows: list[Row]) -> None:
    broken = [row for row in rows if (row.a, row.b) != (20, 40)]
    going = forgetting.going(broken, [_line(MINE, "/mine")], [_line(THEIRS, "/theirs")], ())
    assert _spans(going) == [span for span in OWN if span != ("segment", 20, 40)]


def test_text_ids_and_checkpoints_go_and_the_others_restore(log: ConversationLog, tmp_path: Path) -> None:
    for root, tokens in (("/mine", MINE), ("/theirs", THEIRS)):
        conversation = log.open(root, "identity")
        log.append(conversation, [Entry(Kind.CONTEXT, root, tuple(tokens.ids()), 0)], {})
    store = open_store(tmp_path / "store")
    for end in (20, 40, 60):
        save(store, HYBRID, MINE, end)
    save(store, HYBRID, THEIRS)
    found = survey.survey(OsFiles(), tmp_path / "store").rows
    planned = forgetting.of_root(log, "/mine", found, ())
    assert _spans(planned) == OWN
    gone = forgetting.forget_checkpoints(log, "/mine", store.catalog)
    assert (gone.files, gone.bytes) == (len(planned), sum(row.size for row in planned))
    told = forgetting.forget_text(log, "/mine", gone)
    assert told is not None
    assert told.as_dict() == {
        "root": "/mine", "epochs": 1, "entries": 1, "turns": 0, "tokens": 60, "files": gone.files,
        "bytes": gone.bytes, "wiped": True,
    }  # fmt: skip
    assert forgetting.forget_text(log, "/mine", gone) is None
    assert restore(store, HYBRID, THEIRS)[0] == 70
    assert restore(store, HYBRID, MINE)[0] == 20  # which is theirs as well
    store.close()
