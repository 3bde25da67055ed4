"""A real ``kill -9`` at a random moment of a real process: nothing wrong is served, nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import random
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from qmlx_lsp.state import StateCopy
from qmlx_lsp.storage.checkpoints import CheckpointStore
from qmlx_lsp.storage.conversations import ConversationLog
from qmlx_lsp.transcript.entry import Entry, Finish, Kind
from qmlx_lsp.transcript.tokens import TokenLog
from tests.support.toy_state import Toy, key, log_of, open_store, payload_bytes, restore

STORE_ROUNDS = 200
ROUNDS = 20
TOYS = (Toy("hybrid", hybrid=True), Toy("rows"))
QUOTA = 12_000_000
TURNS = 40
ROOT = Path(__file__).parents[2]
HEADER = (7, 8)


def _say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def save_for_ever(folder: Path, conversation: int, pause_s: float, told: Connection | None) -> None:
    """Child: small turns of a conversation (then of the next one); each checkpoint is acknowledged to ``told``.
    Snapshots are thinned out, segments merged, and the quota makes it evict what is oldest."""
    store = open_store(folder, quota=QUOTA)
    for number in itertools.count(conversation):
        _save_turns(store, TOYS[number % 2], log_of(5, seed=number), pause_s, told)


def _save_turns(store: CheckpointStore, toy: Toy, log: TokenLog, pause_s: float, told: Connection | None) -> None:
    pause = threading.Event()
    merge: tuple[int, int] | None = None
    for _ in range(TURNS):
        start = store.covered(toy.fingerprint, log, len(log))
        saved = store.save(key(toy, log, 5), toy.copy(log, start, len(log)), owner="me")
        assert saved.found is not None
        if told is not None:
            told.send_bytes(b"%d" % saved.found.position)
        if merge is not None:
            rows = tuple(toy.tensor(log, spec, *merge) for spec in toy.rows)
            store.merge(key(toy, log, 5), StateCopy(*merge, rows, None), owner="me")
        merge = saved.merge
        pause.wait(pause_s)
        log.extend(turn_of(len(log)))


def turn_of(length: int) -> range:
    """The ids that a conversation of ``length`` ids says next."""
    return range(length, length + 5 + length % 3)


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


def _killed(folder: Path, lines: int) -> list[str]:
    """Run ``talk_for_ever``, kill it after ``lines`` lines; every whole line that it managed to print."""
    code = f"import pathlib, tests.crash.test_kill as t; t.talk_for_ever(pathlib.Path({str(folder)!r}))"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
        assert child.stdout is not None
        printed = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        printed += child.stdout.readlines()
    assert child.returncode == -9
    return [line.strip() for line in printed if line.endswith("\n")]


def _saver(folder: Path, conversation: int, pause_s: float = 0.0, told: Connection | None = None) -> BaseProcess:
    """Start ``save_for_ever`` from a server that has imported everything: some milliseconds instead of a second."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.crash.test_kill"])
    child = context.Process(target=save_for_ever, args=(folder, conversation, pause_s, told), daemon=True)
    child.start()
    return child


def _killed_saver(folder: Path, conversation: int, saves: int, more_s: float) -> int:
    """Kill a saver some moments after so many saves; what it acknowledged last."""
    mine, its = multiprocessing.Pipe(duplex=False)
    child = _saver(folder, conversation, told=its)
    its.close()
    acknowledged = 0
    for _ in range(saves):
        acknowledged = int(mine.recv_bytes())
    deadline = time.perf_counter() + more_s
    while time.perf_counter() < deadline:  # moments shorter than a sleep
        pass
    child.kill()
    child.join()
    with contextlib.suppress(EOFError):
        while True:
            acknowledged = int(mine.recv_bytes())
    mine.close()
    return acknowledged


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_store_survives_kill(tmp_path: Path) -> None:
    """One child after another is killed at a random moment, while another one works on the same folder."""
    random.seed(1)
    folder = tmp_path / "s"
    load = _saver(folder, 10_000, pause_s=0.02)
    try:
        for number in range(STORE_ROUNDS):
            acknowledged = _killed_saver(folder, number, random.randint(1, 25), random.random() / 50)
            _check_store(folder, number, acknowledged)
        assert load.is_alive()
    finally:
        load.kill()
        load.join()
    store = open_store(folder, quota=QUOTA)
    assert store.stats()["bytes"] == payload_bytes(folder) <= QUOTA
    assert store.stats()["quarantined"] == 0
    assert not list(folder.rglob(".tmp*"))
    store.close()


def _check_store(folder: Path, conversation: int, acknowledged: int) -> None:
    """``conversation``, whose writer was killed, is there as far as it was acknowledged, or a turn further on."""
    toy, log = TOYS[conversation % 2], log_of(5, seed=conversation)
    while len(log) <= acknowledged:
        log.extend(turn_of(len(log)))
    store = open_store(folder, quota=QUOTA)
    position, tried = restore(store, toy, log)  # compares every byte
    assert position in (acknowledged, len(log))
    assert tried == 1
    assert store.stats()["quarantined"] == 0
    store.close()


@pytest.mark.slow
def test_what_the_log_acknowledged_is_there(tmp_path: Path) -> None:
    random.seed(2)
    for _ in range(ROUNDS):
        state, acknowledged = _killed(tmp_path, random.randint(1, 12))[-1].split()
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
