"""A real ``kill -9`` at a random moment of a real process: nothing wrong is served, nothing acknowledged is lost."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
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
QUOTA = 5_000_000
TURNS = 40
ROOT = Path(__file__).parents[2]
HEADER = (7, 8)
Told = Callable[[int], None]


def _say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def save_for_ever(folder: Path, conversation: int, pause_s: float, told: Told = lambda _position: None) -> None:
    """Child: small turns of a conversation (then of the next one); each checkpoint is acknowledged to ``told``.
    Snapshots are thinned out, segments merged, and the quota makes it evict what is oldest."""
    store = open_store(folder, quota=QUOTA, clock=time.time)  # so that what is oldest is known
    for number in itertools.count(conversation):
        _save_turns(store, TOYS[number % 2], log_of(5, seed=number), pause_s, told)


def _save_turns(store: CheckpointStore, toy: Toy, log: TokenLog, pause_s: float, told: Told) -> None:
    pause = threading.Event()
    merge: tuple[int, int] | None = None
    for _ in range(TURNS):
        start = store.covered(toy.fingerprint, log, len(log))
        saved = store.save(key(toy, log, 5), toy.copy(log, start, len(log)), owner="me")
        assert saved.found is not None
        told(saved.found.position)
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


def _start(call: str, stdin: int | None = None) -> subprocess.Popen[str]:
    code = f"import pathlib, tests.crash.test_kill as t; t.{call}"
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def _killed(folder: Path, lines: int) -> list[str]:
    """Run ``talk_for_ever``, kill it after ``lines`` lines; every whole line that it managed to print."""
    with _start(f"talk_for_ever(pathlib.Path({str(folder)!r}))") as child:
        assert child.stdout is not None
        printed = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        printed += child.stdout.readlines()
    assert child.returncode == -9
    return [line.strip() for line in printed if line.endswith("\n")]


def nursery(folder: Path) -> None:
    """Child: for every number read, a child of its own that saves for ever; says its pid and when it is dead.

    Forked from here, it lives after milliseconds; a new interpreter would need half a second.
    """
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            save_for_ever(folder, int(line), 0.0, lambda position: _say(f"saved {position}"))
        _say(f"pid {pid}")
        os.waitpid(pid, 0)
        _say("dead 0")


class Nursery:
    """The other end of ``nursery``."""

    def __init__(self, folder: Path) -> None:
        self._process = _start(f"nursery(pathlib.Path({str(folder)!r}))", stdin=subprocess.PIPE)

    def killed(self, conversation: int, saves: int, more_s: float) -> int:
        """Kill a saver some moments after so many saves; what it acknowledged last."""
        sink = self._process.stdin
        assert sink is not None
        sink.write(f"{conversation}\n")
        sink.flush()
        pid = acknowledged = 0
        while saves or not pid:
            word, number = self._line()
            if word == "pid":
                pid = number
            else:
                acknowledged, saves = number, max(0, saves - 1)
        deadline = time.perf_counter() + more_s
        while time.perf_counter() < deadline:  # moments shorter than a sleep
            pass
        os.kill(pid, signal.SIGKILL)
        while (line := self._line())[0] != "dead":
            acknowledged = line[1]
        return acknowledged

    def _line(self) -> tuple[str, int]:
        assert self._process.stdout is not None
        word, number = self._process.stdout.readline().split()
        return word, int(number)

    def close(self) -> None:
        self._process.communicate()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_store_survives_kill(tmp_path: Path) -> None:
    """One child after another is killed at a random moment, while another one works on the same folder."""
    random.seed(1)
    folder = tmp_path / "s"
    load = _start(f"save_for_ever(pathlib.Path({str(folder)!r}), 10_000, 0.02)")
    children = Nursery(folder)
    try:
        for number in range(STORE_ROUNDS):
            acknowledged = children.killed(number, random.randint(1, 25), random.random() / 50)
            _check_store(folder, number, acknowledged)
        assert load.poll() is None
    finally:
        children.close()
        load.kill()
        load.communicate()
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
    store = open_store(folder, quota=QUOTA, clock=time.time)
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
