"""Whoever asks while the next epoch is prepared is answered at once, in the old one."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from qmlx_lsp.storage.files import Piece
from qmlx_lsp.transcript.entry import Finish, Kind
from qmlx_lsp.transcript.epoch import SUMMARY_REQUEST
from tests.support.bench import bench, quick, text_of
from tests.support.faulty_files import FaultyFiles
from tests.support.nearly_full import (
    DUE,
    HEAD,
    LIMIT,
    NEXT_TOKENS,
    NOTE,
    PHASES,
    REQUEST_PASSES,
    SHORT,
    SUMMARY,
    SYSTEM_TOKENS,
    epochs,
    made,
    nearly_full,
)
from tests.support.waiting import until


@pytest.mark.parametrize(("kind", "after", "phase"), PHASES)
async def test_a_question_in_any_phase_is_answered_in_the_old_epoch(
    tmp_path: Path, kind: str, after: int, phase: str
) -> None:
    began = (kind, after) == ("decode", 0)  # the reply's head is being read, and its first token comes with it
    async with made(tmp_path, SUMMARY) as b:
        await nearly_full(b)
        session, old = await b.session(), b.ids()
        b.gate.hold(kind, after)
        await b.idle.passes()
        await b.gate.reached()
        assert (await b.app.registry.status(0))["conversations"][0]["preparing"] == phase
        until_here = len(b.gate.passes)
        b.backend._replies[:] = [*["cut off"] * began, "three", SUMMARY]
        task = await b.interrupt("Now?")
        b.gate.open()
        answer = await task
        assert answer.finish is Finish.COMPLETE
        assert (answer.usage.plan, answer.usage.live) == ("live", len(old))
        # The pass that ran was the last one; then come the question, the reply's head and its tokens.
        assert b.gate.passes[until_here + began][1] == len(old)
        assert session.conversation.epoch == 0
        assert session.preparing is None
        await b.check()
        await b.rest()
        assert session.conversation.epoch == 1
        assert "Now?" in [e.text for e in b.entries()]
        assert b.entries()[1].text.startswith(HEAD)
        await b.check()
        assert (await b.ask("And?")).usage.plan == "live"
        await b.check()


async def test_a_question_elsewhere_stops_it_too_and_what_was_read_is_kept(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with made(tmp_path, SUMMARY, "elsewhere", settings={"engine": {"prefill_chunk_tokens": 64}}) as b:
        await nearly_full(b)
        request = -(-(NEXT_TOKENS + len(SUMMARY_REQUEST)) // 64)
        b.gate.hold("prefill", request + 2)
        await b.idle.passes()
        await b.gate.reached()
        task = await b.interrupt("Elsewhere?", root=other)
        b.gate.open()
        assert (await task).text == "elsewhere"
        session = await b.session()
        ahead = session.ahead
        assert ahead is not None
        read = ahead.live_position
        assert read == SYSTEM_TOKENS + 3 * 64
        assert epochs(b) == 1
        before = b.backend.passes.rows
        await b.rest()
        assert session.conversation.epoch == 1
        assert b.backend.passes.rows - before == len(b.ids()) - read  # neither the summary nor the beginning again
        assert b.entries()[1].text == f"{HEAD}{SUMMARY}\n"
        await b.check()


async def test_a_finished_summary_is_kept_with_the_turns_that_came_after_it(tmp_path: Path) -> None:
    async with made(tmp_path, "SUM", "three", "four", "five", "SUM2") as b:
        await nearly_full(b)
        for question in ("Three?", "Four?", "Five?"):
            b.gate.hold("prefill", REQUEST_PASSES if question == "Three?" else 0)
            await b.idle.passes()
            await b.gate.reached()  # reading the opening
            assert (await b.session()).preparing == "reading"
            task = await b.interrupt(question)
            b.gate.open()
            await task
        await b.rest()
        assert b.entries()[1].text == f"{HEAD}SUM\n"
        carried = [e.text for e in b.entries() if e.kind is Kind.QUESTION]
        assert carried == ["Three?", "Four?", "Five?"]
        assert NOTE not in text_of(b.ids())


async def test_a_summary_that_leaves_turns_out_is_made_again(tmp_path: Path) -> None:
    settings = {"context": {"carry_turns": 1}}
    async with made(tmp_path, "SUM", "three", "four", "SUM2", settings=settings) as b:
        await nearly_full(b)
        b.gate.hold("prefill", REQUEST_PASSES)
        await b.idle.passes()
        await b.gate.reached()
        task = await b.interrupt("Three?")
        b.gate.open()
        await task
        await b.ask("Four?")
        await b.rest()
        assert b.entries()[1].text == f"{HEAD}SUM2\n"


async def test_what_was_read_of_another_opening_is_read_anew(tmp_path: Path) -> None:
    """All of it had been read, its last turn included, when another turn took that one's place."""
    settings = {"context": {"carry_turns": 1}}
    async with made(tmp_path, SUMMARY, "three", "four", settings=settings) as b:
        await nearly_full(b)
        session = await b.session()
        b.gate.hold("prefill", REQUEST_PASSES + 1)
        await b.idle.passes()
        await b.gate.reached()
        task = await b.interrupt("Three?")
        b.gate.open()
        await task
        assert session.ahead is not None
        assert SHORT in [e.text for e in session.ahead.transcript.entries]
        assert session.ahead.live_position == len(session.ahead.transcript.log)
        await b.rest()
        assert session.conversation.epoch == 1
        assert [e.text for e in b.entries() if e.kind is Kind.QUESTION] == ["Three?"]
        await b.check()
        assert (await b.ask("Four?")).usage.plan == "live"
        await b.check()


async def test_what_is_said_without_a_question_is_not_lost(tmp_path: Path) -> None:
    """A tool's result comes while the opening is read: nobody waits, but the opening lacks it."""
    async with made(tmp_path, SUMMARY) as b:
        await nearly_full(b)
        session = await b.session()
        b.gate.hold("prefill", REQUEST_PASSES)
        await b.idle.passes()
        await b.gate.reached()
        async with session.lock:
            said = session.transcript.draft([(Kind.CONTEXT, "Result\n", None)])
            await b.app.registry.services.on_log(b.app._log.append, session.conversation, said, {})
            session.transcript.extend(said)
        b.gate.open()
        await b.rested()
        assert session.conversation.epoch == 0
        assert b.entries()[-1].text == "Result\n"
        await b.check()


async def test_another_conversation_makes_room_for_the_second_state(tmp_path: Path) -> None:
    """Both live states have room, but not the opening beside them: 4 bytes a token, and a digest for each."""
    other = tmp_path / "other"
    other.mkdir()
    states = {"live_gib": 4 * (DUE + 900) / (1 << 30)}
    async with made(tmp_path, "elsewhere", SUMMARY, settings={"memory": states}) as b:
        await nearly_full(b)
        await b.ask("Elsewhere?", root=other)
        elsewhere = await b.session(other)
        assert elsewhere.live is not None
        await until(lambda: elsewhere.saved == elsewhere.live_position)
        b.gate.hold("prefill", REQUEST_PASSES)
        await b.idle.passes()
        await b.gate.reached()
        assert (await b.session()).preparing == "reading"
        assert elsewhere.live is None
        b.gate.open()
        await b.rested()
        assert epochs(b) == 2
        position = len(b.ids(other))
        assert (await b.ask("And?", root=other)).usage.restored == position


class Blocked(FaultyFiles):
    """A disk that stands still while ``spins`` is not set."""

    def __init__(self) -> None:
        super().__init__()
        self.spins = threading.Event()
        self.spins.set()

    def pwritev(self, fd: int, pieces: Sequence[Piece], offset: int) -> int:
        assert self.spins.wait(20), "the test left the disk waiting"
        return super().pwritev(fd, pieces, offset)


@pytest.mark.parametrize("here", [True, False])
async def test_a_question_while_the_opening_goes_to_the_disk(tmp_path: Path, here: bool) -> None:
    other = tmp_path / "other"
    other.mkdir()
    disk = Blocked()
    settings = {"store": {"answer_wait_s": 0.0, "free_floor_gib": 0.0, "restore_gain_tokens": 1}}
    async with made(tmp_path, "SUM", "three", files=disk, settings=settings) as b:
        await nearly_full(b)
        session = await b.session()
        await until(lambda: session.saved == session.live_position)
        disk.spins.clear()
        await b.idle.passes()
        await until(lambda: session.preparing == "saving")
        old = b.ids()
        answer = await b.ask("Now?", root=b.project if here else other)
        assert answer.text == "three"
        assert b.ids()[: len(old)] == old
        await b.check()
        assert session.conversation.epoch == 0
        disk.spins.set()
        rows = b.backend.passes.rows
        await b.rest()
        assert session.conversation.epoch == 1
        if not here:
            assert b.backend.passes.rows == rows  # all had been read
        assert session.saved == session.live_position == len(b.ids())
        await b.check()


async def test_a_question_does_not_wait_for_work_that_waits_for_the_engine(tmp_path: Path) -> None:
    async with made(tmp_path, "three") as b:
        await nearly_full(b)
        session, worker = await b.session(), b.app.registry.services.worker
        go = threading.Event()
        busy = worker.submit(lambda _backend: go.wait(20))
        await b.idle.passes()
        await until(lambda: session.preparing == "summary" and worker.running and worker.waiting)
        task = await b.interrupt("Now?")
        await until(lambda: session.preparing is None)
        assert not busy.done()
        go.set()
        assert (await task).text == "three"
        assert epochs(b) == 1


@pytest.mark.parametrize(("kind", "after", "phase"), PHASES)
async def test_killed_in_any_phase_the_old_epoch_goes_on(tmp_path: Path, kind: str, after: int, phase: str) -> None:
    async with made(tmp_path, SUMMARY) as b:
        await nearly_full(b)
        old, project = b.ids(), b.project
        b.gate.hold(kind, after)
        await b.idle.passes()
        await b.gate.reached()
        shutil.copytree(tmp_path / "home", tmp_path / "killed" / "home")  # as a kill would leave it
        b.gate.open()
        await b.rested()
    async with bench(tmp_path / "killed", quick(), context_tokens=LIMIT, replies=["three", SUMMARY]) as later:
        later.project = project
        assert later.ids() == old
        usage = (await later.ask("Now?")).usage
        assert (usage.plan, usage.restored) == ("restore", len(old))
        await later.rest()
        assert epochs(later) == 2
        await later.check()


async def test_the_end_does_not_wait_for_an_epoch(tmp_path: Path) -> None:
    async with made(tmp_path, "SUM") as b:
        await nearly_full(b)
        ids = b.ids()
        b.gate.hold("decode", 1)
        await b.idle.passes()
        await b.gate.reached()
        at_rest = b.app.registry.idle.epochs._job
        stopping = asyncio.create_task(b.app.registry.stop(10))
        await until(lambda: at_rest.cancelled)
        b.gate.open()
        await stopping
        assert b.ids() == ids
        await b.check()
        await b.restart(replies=["three"])
        assert (await b.ask("Q")).usage.restored == len(ids)


async def test_nothing_begins_while_somebody_waits_and_the_wait_begins_anew(tmp_path: Path) -> None:
    async with made(tmp_path, "three", "SUM") as b:
        await nearly_full(b)
        await until(lambda: len(b.idle.seconds) == 2)
        await b.ask("Three?")
        assert epochs(b) == 1
        await b.rest()
        assert b.idle.seconds == [2.0] * 3
        assert epochs(b) == 2
