"""The log as it is shown: all epochs numbered through, what was carried over marked, and what comes since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from qmlx_lsp.errors import StoreError
from qmlx_lsp.storage.conversations import ConversationLog
from qmlx_lsp.storage.history import Epoch, History, Told
from qmlx_lsp.storage.records import NothingYet
from qmlx_lsp.transcript.entry import Entry, Finish, Kind

SYSTEM = Entry(Kind.SYSTEM, "You help.", (1, 2, 3), 0)
QUESTION = Entry(Kind.QUESTION, "Why?", (4, 5), 3)
REPLY = Entry(Kind.ASSISTANT, "", (7, 8), 5, Finish.OPEN)
DONE = replace(REPLY, ids=(7, 8, 9), text="So", finish=Finish.COMPLETE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "conversations.sqlite3"


@pytest.fixture
def log(path: Path) -> Iterator[ConversationLog]:
    times = iter(range(1_000, 2_000))
    log = ConversationLog(path, clock=lambda: float(next(times)))
    yield log
    log.close()


def _history(path: Path, root: str = "/project") -> tuple[History, int]:
    history = History(path)
    found = history.find(root)
    assert found is not None
    return history, found


def test_entries_of_all_epochs_are_numbered_through(log: ConversationLog, path: Path) -> None:
    other = log.open("/other", "identity")
    log.append(other, [SYSTEM], {})
    first = log.open("/project", "identity")
    log.append(first, [SYSTEM, QUESTION], {})
    turn = log.begin_reply(first, REPLY)
    log.finish_reply(turn, DONE, {})
    second = log.new_epoch(first, "identity", why="full", opening=[SYSTEM, QUESTION])
    log.append(second, [replace(QUESTION, text="More", start=5)], {})
    history, conversation = _history(path)
    told = history.entries(conversation)
    shown = [(t.number, t.epoch, t.carried, t.turn, t.entry.text, t.entry.start) for t in told]
    assert shown == [
        (1, 0, False, None, "You help.", 0), (2, 0, False, None, "Why?", 3), (3, 0, False, turn, "So", 5),
        (4, 1, True, None, "You help.", 0), (5, 1, True, None, "Why?", 3), (6, 1, False, None, "More", 5),
    ]  # fmt: skip
    assert [t.row for t in told] == sorted({t.row for t in told})
    first_epoch, second_epoch = history.epochs(conversation)
    assert (first_epoch.number, first_epoch.why, first_epoch.opening) == (0, "", 0)
    assert second_epoch == Epoch(1, second_epoch.created, "full", 5)
    assert first_epoch.created < told[0].created < second_epoch.created <= told[3].created
    assert history.entries(conversation, told[3]) == told[4:]
    assert history.entries(conversation, told[-1]) == []
    assert history.roots() == ["/other", "/project"]
    assert history.find("/nowhere") is None
    history.close()


def test_the_version_changes_with_every_write_of_another(log: ConversationLog, path: Path) -> None:
    conversation = log.open("/project", "identity")
    history, number = _history(path)
    seen = [history.version()]
    assert history.version() == seen[0]
    log.append(conversation, [SYSTEM, QUESTION], {})
    seen.append(history.version())
    turn = log.begin_reply(conversation, REPLY)
    log.journal_reply(turn, [7, 8, 9], "S")
    seen.append(history.version())
    assert len(set(seen)) == 3
    growing = history.entries(number)[-1]
    assert (growing.open, growing.entry.text, growing.turn) == (True, "S", turn)
    history.close()


def test_a_forgotten_root_is_another_conversation_afterwards(log: ConversationLog, path: Path) -> None:
    before = log.open("/project", "identity")
    log.append(before, [SYSTEM], {})
    history, number = _history(path)
    (old,) = history.entries(number)
    assert log.erase(before)
    assert history.find("/project") is None
    log.append(log.open("/project", "identity"), [SYSTEM], {})
    again = history.find("/project")
    assert again is not None
    assert again > number
    (new,) = history.entries(again)
    assert (new.number, new.entry) == (1, SYSTEM)
    assert new.row > old.row
    history.close()


def test_damage_is_told(log: ConversationLog, path: Path) -> None:
    log.append(log.open("/project", "identity"), [SYSTEM], {})
    with log._database.transaction() as run:
        run.execute("UPDATE entry SET text = ?", (b"You hurt.",))
    history, number = _history(path)
    with pytest.raises(StoreError, match="checksum"):
        history.entries(number)
    history.close()


@pytest.mark.parametrize("there", [False, True], ids=["no file", "a file that is just being made"])
def test_no_log_yet_is_no_damage(path: Path, there: bool) -> None:
    if there:
        path.touch()
    with pytest.raises(NothingYet, match="no conversation log"):
        History(path)
    assert list(path.parent.iterdir()) == ([path] if there else [])


def test_numbers_do_not_move(log: ConversationLog, path: Path) -> None:
    """However a reply ends, what stood before it keeps its number and its row."""
    conversation = log.open("/project", "identity")
    log.append(conversation, [SYSTEM, QUESTION], {})
    history, number = _history(path)
    before = history.entries(number)

    def finished() -> list[Told]:
        return [told for told in history.entries(number) if not told.open]

    turn = log.begin_reply(conversation, REPLY)
    assert finished() == before
    log.drop_reply(turn)
    assert finished() == before
    turn = log.begin_reply(conversation, REPLY)
    log.finish_reply(turn, DONE, {})
    assert finished()[:-1] == before
    assert (finished()[-1].number, finished()[-1].entry) == (3, DONE)
    history.close()


def test_an_epoch_began_when_its_first_entry_was_written(log: ConversationLog, path: Path) -> None:
    """And not when it was made: a conversation that was begun anew may wait for days until something is said."""
    first = log.open("/project", "identity")  # at 1,000
    log.append(first, [SYSTEM, QUESTION], {})  # at 1,001 and 1,002
    log.append(log.open("/other", "identity"), [SYSTEM], {})  # at 1,003 and 1,004
    second = log.new_epoch(first, "identity", why="new")  # at 1,005
    history, conversation = _history(path)
    assert history.began(conversation, 0) == (1_001.0, 0)
    assert history.began(conversation, 1) == (1_005.0, 2)
    log.append(second, [SYSTEM], {})
    assert history.began(conversation, 1) == (1_006.0, 2)
    history.close()
