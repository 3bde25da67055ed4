"""The next epoch: when it is prepared, what it begins with, what interrupts it and what cannot harm it.

A token is a byte here, so that lengths and texts can be counted by hand.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qmlx_lsp.engine.scripted import END_OF_TURN, ScriptedBackend
from qmlx_lsp.engine.worker import EngineBusy
from qmlx_lsp.errors import StoreError
from qmlx_lsp.session.model import SYSTEM_TEXT
from qmlx_lsp.storage.files import Piece
from qmlx_lsp.transcript.entry import Entry, Finish, Kind
from qmlx_lsp.transcript.epoch import SUMMARY_REQUEST
from tests.support.bench import Bench, bench, quick, text_of
from tests.support.faulty_files import FaultyFiles, Full
from tests.support.waiting import until

SYSTEM = f"<|im_start|>system\n{SYSTEM_TEXT}<|im_end|>\n<|im_start|>user\n"
SYSTEM_TOKENS = 1 + len(f"system\n{SYSTEM_TEXT}") + 1 + 1 + 1 + len("user\n")
HEADER = "<|im_end|>\n<|im_start|>assistant\n"
HEADER_TOKENS = 1 + 1 + 1 + len("assistant\n")
NEXT = "\n<|im_start|>user\n"
NEXT_TOKENS = 1 + 1 + len("user\n")
NOTE = "Note: earlier parts of this conversation are not shown, for want of room.\n"
HEAD = "Summary of the conversation so far:\n"
LIMIT = 4_096
DUE = 3_072  # three quarters of it
CHUNK = 256
# The request is behind a reply: its closing, the user's header, the text.
REQUEST_PASSES = -(-(NEXT_TOKENS + len(SUMMARY_REQUEST)) // CHUNK)
SUMMARY = "S" * 400  # so that an opening takes several passes; the system text's end comes from the disk
LONG, SHORT = "L" * 2_900, "Short?"


def epoch(b: Bench, number: int = 0) -> Sequence[Entry]:
    """An epoch's entries as the database holds them."""
    log = b.app.registry.services.log
    return log.entries(log.epochs(str(b.project))[number])


def epochs(b: Bench) -> int:
    return len(b.app.registry.services.log.epochs(str(b.project)))


async def nearly_full(b: Bench) -> None:
    """Two turns that make the next epoch due."""
    await b.ask(LONG)
    await b.ask(SHORT)
    assert len(b.ids()) >= DUE


def made(tmp_path: Path, *replies: str, **more: Any) -> Any:
    settings = quick(**{"context": {}, **more.pop("settings", {})})
    return bench(tmp_path, settings, context_tokens=LIMIT, replies=["one", "two", *replies], **more)


# --- when and what --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("short_by", [1, 0])
async def test_prepared_at_three_quarters_and_not_a_token_before(tmp_path: Path, short_by: int) -> None:
    question = "q" * (DUE - short_by - SYSTEM_TOKENS - HEADER_TOKENS - len("one") - 1)
    async with made(tmp_path) as b:
        await b.ask(question)
        assert len(b.ids()) == DUE - short_by
        before = len(b.gate.passes)
        await b.rest()
        assert b.idle.seconds == [2.0]
        assert epochs(b) == (1 if short_by else 2)
        assert (len(b.gate.passes) > before) == (not short_by)
        await b.check()


async def test_next_epoch_begins_with_summary_files_and_last_turns(tmp_path: Path) -> None:
    async with made(tmp_path, "SUM\n\n") as b:
        (b.project / "a.py").write_text("a = 1\n")
        await b.ask(LONG)
        await b.ask(SHORT, path=str(b.project / "a.py"))
        (b.project / "a.py").write_text("a = 2\n")
        old = b.ids()
        await b.rest()
        session = await b.session()
        assert session.conversation.epoch == 1
        assert session.conversation.opening == len(b.ids())
        # The first turn is too long to be carried.
        assert text_of(b.ids()) == (
            f"{SYSTEM}{HEAD}SUM\nFile a.py:\n```python\na = 2\n```\n{SHORT}{HEADER}two<|im_end|>"
        )
        assert [e.kind for e in b.entries()] == [
            Kind.SYSTEM, Kind.CONTEXT, Kind.CONTEXT, Kind.QUESTION, Kind.ASSISTANT
        ]  # fmt: skip
        assert [i for e in epoch(b) for i in e.ids] == old
        assert session.told == b.app._log.told(session.conversation) == {"a.py": "a = 2\n"}
        assert (session.live_position, session.saved) == (len(b.ids()), len(b.ids()))
        assert b.notices == []
        await b.check()
        store = b.app.registry.services.store
        assert store is not None
        found = store.find(
            session.model.info.fingerprint, session.transcript.log, needs_snapshot=True, limit=len(b.ids())
        )
        assert found[0].position == len(b.ids())
        held = store._catalog.leases.held
        await until(lambda: held() == set(found[0].files))  # and nothing of the old epoch any more


async def test_who_asks_next_waits_for_nothing(tmp_path: Path) -> None:
    async with made(tmp_path, "SUM", "three") as b:
        await nearly_full(b)
        await b.rest()
        opening = len(b.ids())
        usage = (await b.ask("New?")).usage
        assert (usage.plan, usage.live, usage.reason) == ("live", opening, None)
        assert usage.prefilled == NEXT_TOKENS + len("New?") + HEADER_TOKENS
        await b.check()


@pytest.mark.parametrize("hybrid", [True, False])
async def test_after_a_restart_the_opening_comes_from_the_disk(tmp_path: Path, hybrid: bool) -> None:
    async with made(tmp_path, "SUM", hybrid=hybrid) as b:
        await nearly_full(b)
        await b.rest()
        opening = b.ids()
        await b.restart(replies=["three"])
        usage = (await b.ask("New?")).usage
        assert (usage.plan, usage.restored) == ("restore", len(opening))
        assert b.ids()[: len(opening)] == opening
        await b.check()


async def test_an_answer_after_the_step_is_that_of_a_cold_run(tmp_path: Path) -> None:
    """The scripted model's reply names a digest of everything it has read."""
    async with made(tmp_path, "SUM") as b:
        await nearly_full(b)
        await b.rest()
        answer = await b.ask("New?")
        cold = ScriptedBackend()
        state = cold.new_state()
        cold.prefill(state, b.ids()[: b.entries()[-1].start + HEADER_TOKENS])
        assert answer.text == bytes(i for i in cold._reply(state) if i < 256).decode()


async def test_carried_replies_have_the_ids_that_were_generated(tmp_path: Path) -> None:
    """One was cancelled inside a character, one ended by length; a withdrawn question is not carried."""
    async with made(tmp_path, "ab€cd", "abcdef", "SUM") as b:
        await nearly_full(b)
        await b.cancelled("Q1", "decode", 4)
        await b.ask("Q2", max_tokens=3)
        await b.cancelled("Withdrawn", "prefill")
        before = [e for e in b.entries() if e.kind is Kind.ASSISTANT][-3:]
        assert before[1].ids[HEADER_TOKENS:] == (ord("a"), ord("b"), *"€".encode()[:2])
        await b.rest()
        assert epochs(b) == 2
        after = [e for e in b.entries() if e.kind is Kind.ASSISTANT]
        assert [(e.ids, e.finish, e.text) for e in after] == [(e.ids, e.finish, e.text) for e in before]
        assert [e.finish for e in after] == [Finish.COMPLETE, Finish.CANCELLED, Finish.LENGTH]
        said = b"".join(bytes([i]) if i < 256 else b"#" for i in b.ids()[SYSTEM_TOKENS:])
        cut = "ab€".encode()[:-1]
        assert said == (
            f"{HEAD}SUM\n{SHORT}#\n#assistant\ntwo#\n#user\nQ1#\n#assistant\n".encode() + cut +
            b"#\n#user\nQ2#\n#assistant\nabc"
        )  # fmt: skip
        assert "Withdrawn" not in [e.text for e in b.entries()]
        await b.check()


@pytest.mark.parametrize(
    ("turns", "share", "carried"),
    [(3, 0.5, ["B", "C", "D"]), (1, 0.5, ["D"]), (0, 0.5, []), (9, 200 / LIMIT, ["D"]), (9, 199 / LIMIT, [])],
)
async def test_last_turns_stay_within_their_number_and_share(
    tmp_path: Path, turns: int, share: float, carried: list[str]
) -> None:
    settings = {"context": {"carry_turns": turns, "carry_share": share + 1e-9}}
    async with made(tmp_path, "B", "C", "D" * (200 - NEXT_TOKENS - 1 - HEADER_TOKENS - 1), settings=settings) as b:
        for question in (LONG, "A", "B", "C", "D"):
            await b.ask(question)
        assert b.entries()[-1].end - b.entries()[-2].start == 200
        await b.rest()
        assert [e.text for e in b.entries() if e.kind is Kind.QUESTION] == carried


async def test_files_open_first_then_those_spoken_of_last_within_their_share(tmp_path: Path) -> None:
    """There is room for one of 150 bytes beside the open one."""
    settings = {"context": {"epoch_files_share": 300 / LIMIT}}
    async with made(tmp_path, "two", "two", "SUM", settings=settings) as b:
        for name in ("a", "b", "c"):
            (b.project / f"{name}.py").write_text(name * 149 + "\n")
        for name in ("b", "a", "c"):
            await b.ask(SHORT, path=str(b.project / f"{name}.py"))
        await b.ask(LONG[:2_300])
        uri = (b.project / "b.py").as_uri()
        b.app.registry.mirror.open("editor", uri, "python", 1, "opened\n")
        await b.rest()
        assert epochs(b) == 2
        shown = [e.path for e in b.entries() if e.kind is Kind.CONTEXT]
        assert shown == [None, "c.py", "b.py"]  # the most important one stands last
        assert "opened" in text_of(b.ids())


async def test_summary_of_a_thinking_model_is_what_follows_its_thoughts(tmp_path: Path) -> None:
    from tests.support.thinking import ThinkingBackend

    settings = {"model": {"name": "scripted", "thinking": True}}
    thought = "<think>\nno\n</think>\n\nSUM"
    async with made(tmp_path, thought, make=ThinkingBackend, settings=settings) as b:
        await nearly_full(b)
        await b.rest()
        assert b.entries()[1].text == f"{HEAD}SUM\n"


async def test_share_of_one_turns_it_off(tmp_path: Path) -> None:
    async with made(tmp_path, settings={"context": {"epoch_share": 1.0}}) as b:
        await nearly_full(b)
        await b.rest()
        assert epochs(b) == 1


async def test_nothing_of_the_old_epoch_is_lost_and_epochs_go_on(tmp_path: Path) -> None:
    async with made(tmp_path, *["x" * 30] * 60) as b:
        seen: list[list[int]] = []
        for number in range(40):
            await b.ask(f"{number} " + "q" * 400)
            before, known = b.ids(), epochs(b)
            await b.rest()
            assert len(b.ids()) <= LIMIT
            if epochs(b) > known:
                seen.append(before)
            await b.check()
        assert len(seen) >= 3
        assert [[i for e in epoch(b, n) for i in e.ids] for n in range(len(seen))] == seen
        assert b.notices == []


async def test_a_summary_speaks_of_all_that_was_said(tmp_path: Path) -> None:
    """The live state is behind the log, for a question was cancelled while it was read."""
    async with bench(tmp_path, quick(), context_tokens=LIMIT, replies=["one"]) as b:
        await b.ask(LONG)
        await b.cancelled("x" * 300, "prefill")
        session = await b.session()
        position, told = session.live_position, len(b.ids())
        assert position < told
        withdrawn = len("\n\n(The question above was withdrawn before it was answered.)\n")
        read = told + withdrawn + len(SUMMARY_REQUEST) + HEADER_TOKENS
        await b.rest()
        assert b.entries()[1].text.startswith(f"{HEAD}I have read {read} tokens")


# --- interrupted ----------------------------------------------------------------------------------------------------


PHASES = [
    ("prefill", 0, "summary"),
    ("prefill", REQUEST_PASSES - 1, "summary"),
    ("decode", 0, "summary"),
    ("decode", 2, "summary"),
    ("prefill", REQUEST_PASSES, "reading"),
    ("prefill", REQUEST_PASSES + 1, "reading"),
]


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
        at_rest = b.app.registry.rest._job
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


# --- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "after", "phase"), PHASES)
async def test_an_error_of_the_model_harms_nothing(tmp_path: Path, kind: str, after: int, phase: str) -> None:
    async with made(tmp_path, SUMMARY) as b:
        await nearly_full(b)
        session, old = await b.session(), b.ids()
        b.gate.fail(kind, after)
        await b.rest()
        assert session.conversation.epoch == 0
        assert session.live_position == len(old)
        assert session.ahead is None
        await b.check()
        assert b.notices == []
        b.backend._replies[:] = ["three", "SUM"]
        answer = await b.ask("Now?")
        assert (answer.text, answer.usage.live) == ("three", len(old))
        await b.rest()
        assert session.conversation.epoch == 1
        await b.check()
        states = await b.app.registry.services.worker.call(lambda _backend: len(b.backend._states))
        assert states == 1


class Failing(ScriptedBackend):
    """Its next pass that reads fails half-way, on request."""

    fail = False

    def prefill(self, state: Any, ids: Sequence[int]) -> None:
        super().prefill(state, ids)
        if self.fail:
            self.fail = False
            raise RuntimeError("boom")


async def test_a_state_that_failed_is_not_stepped_into(tmp_path: Path) -> None:
    """Whoever has to step into the epoch to come waits for the pass that runs on it, and that one fails."""
    async with made(tmp_path, SUMMARY, make=Failing) as b:
        await nearly_full(b)
        b.gate.hold("prefill", REQUEST_PASSES)
        await b.idle.passes()
        await b.gate.reached()
        b.backend.fail = True  # type: ignore[attr-defined]
        ahead = (await b.session()).ahead
        assert ahead is not None
        task = await b.interrupt("x" * 1_000)
        await until(lambda: ahead.lock._waiters)
        b.gate.open()
        answer = await task
        assert answer.finish is Finish.COMPLETE
        assert f"I have read {answer.usage.context} tokens" in answer.text
        assert text_of(b.ids()).startswith(f"{SYSTEM}{HEAD}{SUMMARY}\n")
        await b.check()


async def test_a_reply_that_the_log_lacks_is_written_before_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with made(tmp_path, "SUM") as b:
        await b.ask(LONG)
        real, full = b.app._log.finish_reply, [True]

        def finish(*args: Any) -> None:
            if full:
                raise StoreError("the disk is full")
            real(*args)

        monkeypatch.setattr(b.app._log, "finish_reply", finish)
        with pytest.raises(StoreError):
            await b.ask(SHORT)
        full.clear()
        await b.rest()
        assert epochs(b) == 2
        assert epoch(b)[-1].finish is Finish.COMPLETE
        assert epoch(b)[-1].text == "two"
        assert b.entries()[-1].text == "two"
        await b.check()


async def test_a_log_that_refuses_the_step_leaves_all_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with made(tmp_path, "SUM", "three") as b:
        await nearly_full(b)
        session, old = await b.session(), b.ids()
        real = b.app._log.new_epoch

        def refuse(*_args: object, **_more: object) -> None:
            raise StoreError("the disk is full")

        monkeypatch.setattr(b.app._log, "new_epoch", refuse)
        await b.rest()
        assert epochs(b) == 1
        await b.check()
        assert (await b.ask("Now?")).usage.live == len(old)
        monkeypatch.setattr(b.app._log, "new_epoch", real)
        await b.rest()
        assert session.conversation.epoch == 1
        await b.check()


async def test_a_store_that_refuses_is_said_once_and_the_epoch_begins_without(tmp_path: Path) -> None:
    disk = Full()
    disk.full = False
    async with made(tmp_path, "SUM", "three", files=disk) as b:
        await nearly_full(b)
        disk.full = True
        await b.rest()
        session = await b.session()
        assert (session.conversation.epoch, session.saved) == (1, SYSTEM_TOKENS)
        assert len(b.notices) == 1
        assert "checkpoint was not written" in b.notices[0]
        disk.full = False
        assert (await b.ask("Now?")).usage.plan == "live"
        position = session.live_position
        await b.restart(replies=["four"])
        assert (await b.ask("And?")).usage.restored == position


async def test_an_opening_that_was_not_saved_is_saved_later_by_itself(tmp_path: Path) -> None:
    disk = Full()
    disk.full = False
    store = {"retry_s": 0.05, "free_floor_gib": 0.0, "restore_gain_tokens": 1}
    async with made(tmp_path, SUMMARY, files=disk, settings={"store": store}) as b:
        await nearly_full(b)
        disk.full = True
        await b.rest()
        session = await b.session()
        assert session.conversation.epoch == 1
        disk.full = False
        await until(lambda: session.saved == session.live_position == len(b.ids()))
        assert len(b.notices) == 1


async def test_a_full_queue_of_the_engine_only_puts_it_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has been read by then is kept."""
    async with made(tmp_path, SUMMARY) as b:
        await nearly_full(b)
        session, worker = await b.session(), b.app.registry.services.worker
        b.gate.hold("prefill", REQUEST_PASSES)
        await b.idle.passes()
        await b.gate.reached()
        real = worker.submit

        def full(*_args: Any) -> None:
            raise EngineBusy("256 requests are waiting for the model; try again later.")

        monkeypatch.setattr(worker, "submit", full)
        b.gate.open()
        await b.rested()
        monkeypatch.setattr(worker, "submit", real)
        assert session.conversation.epoch == 0
        assert session.ahead is not None
        read = session.ahead.live_position
        assert read == SYSTEM_TOKENS + CHUNK
        await b.ask("elsewhere", root=tmp_path)
        before = b.backend.passes.rows
        await b.rest()
        assert session.conversation.epoch == 1
        assert b.backend.passes.rows - before == len(b.ids()) - read
        await b.check()


class Unknown(ScriptedBackend):
    """A model whose caches are of an unknown class: they can be neither kept nor rewound."""

    def load(self, *args: Any) -> Any:
        return replace(super().load(*args), not_persisted="its cache class X is not supported")

    def rewind(self, *args: Any) -> None:
        raise AssertionError("states of this model cannot be rewound")


async def test_a_model_that_cannot_go_back_begins_with_a_note(tmp_path: Path) -> None:
    async with made(tmp_path, "three", make=Unknown) as b:
        await nearly_full(b)
        await b.rest()
        assert text_of(b.ids()) == f"{SYSTEM}{NOTE}{SHORT}{HEADER}two<|im_end|>"
        assert (await b.ask("Now?")).usage.plan == "live"


@pytest.mark.parametrize("fails", [False, True])
async def test_a_state_that_cannot_go_back_after_all_is_dropped_and_restored(tmp_path: Path, fails: bool) -> None:
    class Stubborn(ScriptedBackend):
        def rewind(self, *args: Any) -> None:
            raise ValueError("lost")

    async with made(tmp_path, "SUM", "three", make=Stubborn) as b:
        await nearly_full(b)
        old = b.ids()
        if fails:
            b.gate.fail("decode", 1)
        await b.rest()
        assert epochs(b) == 1
        assert (await b.session()).live is None
        assert await b.app.registry.services.worker.call(lambda _backend: len(b.backend._states)) == 0
        usage = (await b.ask("Now?")).usage
        assert (usage.plan, usage.restored) == ("restore", len(old))
        await b.check()


async def test_no_epoch_is_prepared_for_which_there_is_no_memory(tmp_path: Path) -> None:
    """The state has 4 bytes a token; beside it there is room for 200."""
    async with made(tmp_path, settings={"memory": {"live_gib": 4 * (DUE + 200) / (1 << 30)}}) as b:
        await nearly_full(b)
        await b.rest()
        assert epochs(b) == 1


# --- forced ---------------------------------------------------------------------------------------------------------


async def test_forced_at_the_limit_with_the_last_turns_and_a_visible_note(tmp_path: Path) -> None:
    async with made(tmp_path, "three", "four") as b:
        await nearly_full(b)
        answer = await b.ask("x" * 1_000)
        assert answer.finish is Finish.COMPLETE
        said = f"{SYSTEM}{NOTE}{SHORT}{HEADER}two<|im_end|>{NEXT}{'x' * 1_000}{HEADER}three<|im_end|>"
        assert text_of(b.ids()) == said
        assert answer.usage.reason == "new epoch"
        assert len(b.notices) == 1
        assert "project had come to its limit of 4,096 tokens" in b.notices[0]
        await b.check()
        late: list[str] = []
        b.app.registry.listen_notices(late.append)
        assert late == []  # it is over
        await b.ask("y" * 3_000)
        assert (epochs(b), len(b.notices), len(late)) == (3, 2, 1)


async def test_forced_with_a_summary_that_was_made(tmp_path: Path) -> None:
    """A turn after the summary is carried, so nothing is missing; another one after it is too long for that."""
    async with made(tmp_path, "SUM", "three", "four") as b:
        await nearly_full(b)
        b.gate.hold("prefill", REQUEST_PASSES)
        await b.idle.passes()
        await b.gate.reached()
        task = await b.interrupt("Three?")
        b.gate.open()
        await task
        await b.ask("x" * 1_000)
        assert text_of(b.ids()).startswith(
            f"{SYSTEM}{HEAD}SUM\n{SHORT}{HEADER}two<|im_end|>{NEXT}Three?{HEADER}three"
        )
        assert len(b.notices) == 1
        assert (await b.session()).summary is None


async def test_forced_into_the_epoch_that_was_being_read(tmp_path: Path) -> None:
    """What has been read of it by then is not read again, files included."""
    settings = {"engine": {"prefill_chunk_tokens": 64}}
    async with made(tmp_path, SUMMARY, "three", settings=settings) as b:
        (b.project / "a.py").write_text("a = 1\n")
        await b.ask(LONG)
        await b.ask(SHORT, path=str(b.project / "a.py"))
        b.gate.hold("prefill", -(-(NEXT_TOKENS + len(SUMMARY_REQUEST)) // 64) + 3)
        await b.idle.passes()
        await b.gate.reached()
        task = await b.interrupt("x" * 1_000)
        b.gate.open()
        usage = (await task).usage
        assert (usage.plan, usage.live) == ("live", SYSTEM_TOKENS + 4 * 64)
        opening = f"{SYSTEM}{HEAD}{SUMMARY}\nFile a.py:\n```python\na = 1\n```\n{SHORT}{HEADER}two<|im_end|>"
        assert text_of(b.ids()).startswith(f"{opening}{NEXT}xxx")
        await b.check()
        states = await b.app.registry.services.worker.call(lambda _backend: len(b.backend._states))
        assert states == 1
        await b.rest()
        assert epochs(b) == 2


async def test_forced_with_the_least_when_nothing_more_fits(tmp_path: Path) -> None:
    async with made(tmp_path, "three") as b:
        await nearly_full(b)
        await b.ask("x" * 3_630)
        assert text_of(b.ids()).startswith(f"{SYSTEM}{NOTE}xxx")
        assert SHORT not in [e.text for e in b.entries()]


# --- limits ---------------------------------------------------------------------------------------------------------


async def test_limit_of_the_settings_is_the_limit(tmp_path: Path) -> None:
    settings = {"context": {"max_tokens": 1_024}}
    async with made(tmp_path, *["x"] * 9, settings=settings) as b:
        await b.ask("a" * 330)
        status = await b.app.registry.status(0)
        assert status["model"]["context_tokens"] == 1_024
        await b.ask("b" * 330)  # with the head of the reply and room for one it does not fit
        assert epochs(b) == 2
        assert "limit of 1,024 tokens" in b.notices[0]
        with pytest.raises(Exception, match="scripted may read here 1,024: ask about a smaller part"):
            await b.ask("c" * 1_000)


def test_end_of_turn_is_what_the_template_ends_with() -> None:
    """What the texts above rest on."""
    assert text_of([END_OF_TURN]) == "<|im_end|>"
