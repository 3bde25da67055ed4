"""A real ``kill -9`` at a random moment of a real process: nothing wrong is served, nothing acknowledged is lost."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from qmlx_lsp.storage.conversations import ConversationLog
from qmlx_lsp.transcript.entry import Entry, Finish, Kind
from tests.support.toy_state import Toy, log_of, open_store, payload_bytes, restore, save

ROUNDS = 20
HYBRID = Toy("hybrid", hybrid=True)
HEADER = (7, 8)


def _say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def save_for_ever(folder: Path) -> None:
    """Child: checkpoint after checkpoint, each acknowledged by a line, within a quota that makes it evict."""
    store = open_store(folder, quota=600_000)
    for number in range(10_000):
        seed, step = divmod(number, 5)
        save(store, HYBRID, log_of(10 * (step + 1), seed=seed))
        _say(number)


def talk_for_ever(folder: Path) -> None:
    """Child: turn after turn; each line is printed when what it names was acknowledged."""
    log = ConversationLog(folder / "log.db", clock=lambda: 1.0)
    conversation = log.open("/root", "identity")
    entries = log.entries(conversation)
    end = entries[-1].end if entries else 0
    for number in range(len(entries) // 2, 10_000):
        log.append(conversation, [Entry(Kind.QUESTION, str(number), (number,), end)], {"n": str(number)})
        entry = Entry(Kind.ASSISTANT, "", HEADER, end + 1, Finish.OPEN)
        turn = log.begin_reply(conversation, entry)
        log.journal_reply(turn, [*HEADER, number], "half")
        _say(f"half {number}")
        final = Entry(Kind.ASSISTANT, "whole", (*HEADER, number, number), end + 1, Finish.COMPLETE)
        log.finish_reply(turn, final, {"number": number})
        _say(f"whole {number}")
        end = final.end


def _killed(work: str, folder: Path, lines: int) -> list[str]:
    """Run a child, kill it after ``lines`` lines; return every whole line that it managed to print."""
    call = f"import tests.crash.test_kill as t, pathlib; t.{work}(pathlib.Path({str(folder)!r}))"
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", call], stdout=subprocess.PIPE, text=True, cwd=root) as child:
        assert child.stdout is not None
        printed = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        printed += child.stdout.readlines()
    assert child.returncode == -9
    return [line.strip() for line in printed if line.endswith("\n")]


@pytest.mark.slow
def test_the_store_survives_kill(tmp_path: Path) -> None:
    random.seed(1)
    for number in range(ROUNDS):
        folder = tmp_path / str(number % 4)  # some stores are killed again and again
        acknowledged = int(_killed("save_for_ever", folder, random.randint(1, 25))[-1])
        store = open_store(folder, quota=600_000)
        assert store.stats()["bytes"] == payload_bytes(folder) <= 600_000
        assert not list(folder.rglob(".tmp*"))
        for at in range(acknowledged + 2):
            seed, step = divmod(at, 5)
            _, tried = restore(store, HYBRID, log_of(10 * (step + 1), seed=seed))
            assert tried <= 1
        seed, step = divmod(acknowledged, 5)
        newest = restore(store, HYBRID, log_of(10 * (step + 1), seed=seed))
        assert newest == (10 * (step + 1), 1)
        assert store.stats()["quarantined"] == 0
        store.close()


@pytest.mark.slow
def test_what_the_log_acknowledged_is_there(tmp_path: Path) -> None:
    random.seed(2)
    for _ in range(ROUNDS):
        state, acknowledged = _killed("talk_for_ever", tmp_path, random.randint(1, 12))[-1].split()
        log = ConversationLog(tmp_path / "log.db", clock=lambda: 1.0)
        log.recover()
        conversation = log.find("/root")
        assert conversation is not None
        entries = log.entries(conversation)
        turns = log.turns(conversation, None)
        assert len(turns) > int(acknowledged)
        assert all(entry.finish is not Finish.OPEN for entry in entries)
        turn = turns[int(acknowledged)]
        assert turn.question == acknowledged
        if state == "whole":
            assert (turn.finish, turn.usage) == (Finish.COMPLETE, {"number": int(acknowledged)})
        else:
            assert turn.finish in (Finish.CANCELLED, Finish.COMPLETE)
        if entries[-1].kind is Kind.QUESTION:  # told, and no answer begun: the child goes on with the answer's number
            final = Entry(Kind.ASSISTANT, "", HEADER, entries[-1].end, Finish.OPEN)
            open_turn = log.begin_reply(conversation, final)
            log.finish_reply(open_turn, Entry(Kind.ASSISTANT, "", HEADER, final.start, Finish.ERROR), {})
        log.close()
