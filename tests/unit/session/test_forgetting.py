"""Beginning anew and forgetting, around turns that run, sessions that open and models that do not load."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from qmlx_lsp.errors import ModelError, QuestionError, StoreError
from qmlx_lsp.storage.conversations import ConversationLog
from qmlx_lsp.transcript.entry import Entry, Finish, Kind
from tests.support.bench import Bench, bench, quick, text_of
from tests.support.waiting import until

CANARY = "canary-7f3a"


def _epochs(b: Bench) -> list[list[str]]:
    """Texts of every epoch of the project."""
    log = b.app.registry.services.log
    return [[entry.text for entry in log.entries(epoch)] for epoch in log.epochs(str(b.project))]


def _holding(b: Bench, text: str) -> list[str]:
    """Files of the home that hold ``text``, as text or as ids (the scripted model's ids are its bytes)."""
    ids = b"".join(byte.to_bytes(4, "little") for byte in text.encode())
    files = [file for file in b.paths.data.parent.rglob("*") if file.is_file()]
    assert files
    return [file.name for file in files if text.encode() in file.read_bytes() or ids in file.read_bytes()]


# --- beginning anew -------------------------------------------------------------------------------------------------


async def test_a_new_conversation_is_empty_and_tells_files_anew(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        (b.project / "a.py").write_text("x = 1\n")
        await b.ask("Old?", path=str(b.project / "a.py"))
        old = _epochs(b)[0]
        assert await b.app.registry.new_conversation(b.project) == {"root": str(b.project), "epoch": 1}
        session = await b.session()
        assert (session.live, len(session.transcript.log), session.told) == (None, 0, {})
        assert _epochs(b) == [old, []]
        answer = await b.ask("New?", path=str(b.project / "a.py"))
        assert (answer.usage.plan, answer.usage.reason) != ("live", None)
        assert answer.usage.restored <= b.entries()[0].end  # nothing but the system text
        new = _epochs(b)[1]
        assert _epochs(b) == [old, new]
        assert [text for text in new if "x = 1" in text]
        assert not [text for text in new if "Old?" in text]
        assert "Old?" not in text_of(b.ids())
        await b.check()
        log = b.app.registry.services.log
        assert [log.find(str(b.project))] == [log.epochs(str(b.project))[1]]
        await b.restart()
        assert (await b.ask("Still?")).usage.restored > 0
        assert _epochs(b)[0] == old


async def test_an_empty_epoch_is_not_followed_by_another(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        root = {"root": str(b.project)}
        assert await b.app.registry.new_conversation(b.project) == {**root, "epoch": 0}
        assert b.app.registry.services.log.find(str(b.project)) is None  # there was none, and still is none
        await b.session()
        assert await b.app.registry.new_conversation(b.project) == {**root, "epoch": 0}
        await b.ask("A")
        for _ in range(2):
            assert await b.app.registry.new_conversation(b.project) == {**root, "epoch": 1}
        assert len(_epochs(b)) == 2


async def test_a_new_conversation_waits_for_the_turn_that_runs(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["abcdefgh", "new"]) as b:
        b.gate.hold("decode", 4)
        task, _ = b.begin("Q")
        await b.gate.reached()
        anew = asyncio.create_task(b.app.registry.new_conversation(b.project))
        status = await b.app.registry.status(1)  # the loop goes on
        assert (status["queue"]["running"], anew.done()) == (1, False)
        b.gate.open()
        assert (await task).text == "abcdefgh"
        assert (await anew)["epoch"] == 1
        assert [epoch[-1] if epoch else "" for epoch in _epochs(b)] == ["abcdefgh", ""]
        assert (await b.ask("R")).text == "new"
        await b.check()


async def test_a_request_that_is_cancelled_does_not_part_log_and_session(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["abcdefgh", "new"]) as b:
        b.gate.hold("decode", 4)
        task, _ = b.begin("Q")
        await b.gate.reached()
        anew = asyncio.create_task(b.app.registry.new_conversation(b.project))
        await asyncio.sleep(0)
        anew.cancel()
        with pytest.raises(asyncio.CancelledError):
            await anew
        b.gate.open()
        await task
        await until(lambda: len(_epochs(b)) == 2)
        assert (await b.ask("R")).text == "new"
        assert [len(epoch) for epoch in _epochs(b)] == [3, 3]
        await b.check()


async def test_beginning_anew_needs_no_model(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        log = b.app.registry.services.log
        before = log.open(str(b.project), "another model's identity")
        log.append(before, [Entry(Kind.SYSTEM, "s", (1,), 0)], {"a.py": "x"})
        assert (await b.app.registry.new_conversation(b.project))["epoch"] == 1
        assert b.app.registry.loader.loaded is None
        found = log.find(str(b.project))
        assert found is not None
        assert (found.identity, log.told(found)) == (before.identity, {})


async def test_a_model_that_fails_to_load_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(tmp_path) as b:
        await b.ask("A")
        await b.restart()

        async def fail() -> None:
            raise ModelError("the model is broken")

        monkeypatch.setattr(b.app.registry.loader, "start", lambda: asyncio.ensure_future(fail()))
        with pytest.raises(ModelError):
            await b.ask("B")
        assert (await b.app.registry.new_conversation(b.project))["epoch"] == 1
        forgotten = await b.app.registry.forget(b.project)
        assert (forgotten["epochs"], forgotten["entries"]) == (2, 3)
        assert _epochs(b) == []


# --- forgetting -----------------------------------------------------------------------------------------------------


async def test_forgotten_means_no_byte_and_no_id_is_left(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with bench(tmp_path, replies=[f"It is {CANARY}.", "two", "kept", "again"]) as b:
        (b.project / "a.py").write_text(f"secret = '{CANARY}'\n")
        await b.ask("Old?", path=str(b.project / "a.py"))
        await b.app.registry.new_conversation(b.project)
        await b.ask(f"Is it {CANARY}?")
        await b.ask("Kept?", root=other)
        kept = b.ids(other)
        assert len(_holding(b, CANARY)) > 1  # the log and a checkpoint at least
        held = b.app.registry.services.log.held(str(b.project))
        assert held is not None
        told = await b.app.registry.forget(b.project)
        assert _holding(b, CANARY) == []
        assert told["files"] > 0
        assert told == {
            "root": str(b.project), "epochs": 2, "entries": held.entries, "turns": 2, "tokens": held.tokens,
            "files": told["files"], "bytes": told["bytes"], "wiped": True,
        }  # fmt: skip
        assert b.ids(other) == kept
        assert (await b.ask("And?", root=other)).usage.plan == "live"
        with pytest.raises(QuestionError, match="no conversation"):
            await b.app.registry.forget(b.project)
        answer = await b.ask("Begin?")
        assert answer.usage.live == 0
        assert "Old?" not in text_of(b.ids())
        await b.check()
    assert _holding(b, CANARY) == []


async def test_forgetting_cancels_what_runs_in_it_and_nothing_else(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with bench(tmp_path, replies=["abcdefgh", "theirs", "mine again"]) as b:
        b.gate.hold("decode", 4)
        task, job = b.begin("Q")
        await b.gate.reached()
        theirs, _ = b.begin("T", root=other)
        behind, _ = b.begin("behind the one that runs")
        await until(lambda: len(b.app.registry.running) == 3)
        forgetting = asyncio.create_task(b.app.registry.forget(b.project))
        await until(lambda: job.cancelled and behind.done())
        late, _ = b.begin("R")  # asked while it is being forgotten
        b.gate.open()
        assert (await task).finish is Finish.CANCELLED
        assert ((await behind).turn_id, (await behind).finish) == (None, Finish.CANCELLED)
        assert (await theirs).finish is Finish.COMPLETE
        told = await forgetting
        assert (told["turns"], told["wiped"]) == (1, True)
        assert (await late).finish is Finish.COMPLETE
        assert [entry.text for entry in b.entries()][1:2] == ["R"]
        assert "abcd" not in text_of(b.ids())
        assert len(_epochs(b)) == 1
        await b.check()


async def test_two_who_forget_get_one_answer(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.ask("A")
        first, second = await asyncio.gather(b.app.registry.forget(b.project), b.app.registry.forget(b.project))
        assert first == second
        assert first["turns"] == 1


async def test_what_cannot_be_deleted_is_said_and_can_be_forgotten_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as b:
        await b.ask("A")
        with monkeypatch.context() as patch:

            def refuse(_log: ConversationLog, *_args: object) -> None:
                raise OSError(30, "Read-only file system")

            patch.setattr("qmlx_lsp.storage.forgetting.forget_checkpoints", refuse)
            with pytest.raises(StoreError, match="Read-only file system"):
                await b.app.registry.forget(b.project)
        assert len(_epochs(b)) == 1  # the log goes last
        assert (await b.ask("B")).finish is Finish.COMPLETE
        assert (await b.app.registry.forget(b.project))["turns"] == 2
        assert _epochs(b) == []


# --- while the next epoch is prepared -------------------------------------------------------------------------------

LIMIT = 4_096


def _nearly_full(tmp_path: Path, **more: object):
    settings = quick(context={"carry_turns": 3, "carry_share": 0.5})
    replies = ["one", "two", f"Summary of {CANARY}" + "S" * 600, "three"]
    return bench(tmp_path, settings, context_tokens=LIMIT, replies=replies, **more)


async def _fill(b: Bench) -> None:
    await b.ask("L" * 2_900)
    await b.ask(f"About {CANARY}?")


# The passes of a preparation: the request, the summary's tokens, the chunks of the opening.
@pytest.mark.parametrize(("kind", "after"), [("prefill", 0), ("decode", 3), ("prefill", 3), ("prefill", 4)])
@pytest.mark.parametrize("what", ["forget", "new"])
async def test_in_the_middle_of_a_preparation(tmp_path: Path, kind: str, after: int, what: str) -> None:
    async with _nearly_full(tmp_path) as b:
        await _fill(b)
        b.gate.hold(kind, after)
        resting = asyncio.create_task(b.idle.passes())
        await b.gate.reached()
        registry = b.app.registry
        task = asyncio.create_task(
            registry.forget(b.project) if what == "forget" else registry.new_conversation(b.project)
        )
        if what == "forget":
            job = registry.idle.epochs._job
            await until(lambda: job.cancelled)
        b.gate.open()
        await asyncio.wait_for(task, 20)
        await resting
        if what == "forget":
            assert registry.services.log.find(str(b.project)) is None
            assert _holding(b, CANARY) == []
            assert not b.backend._states
            answer = await b.ask("And now?")
            assert (answer.usage.live, answer.usage.restored) == (0, 0)
        else:
            session = await b.session()
            assert session.ahead is None
            assert [entry.text for entry in b.entries()] == []
            assert CANARY in "".join(_epochs(b)[0])
            assert CANARY not in text_of(b.ids())
        await b.check()


async def test_a_prepared_epoch_is_forgotten_with_all_others(tmp_path: Path) -> None:
    async with _nearly_full(tmp_path) as b:
        await _fill(b)
        await b.rest()
        assert len(_epochs(b)) == 2
        assert CANARY in "".join(_epochs(b)[1])
        gone = await b.app.registry.forget(b.project)
        assert gone["epochs"] == 2
        assert _holding(b, CANARY) == []


async def test_what_was_prepared_and_given_up_is_forgotten_beside_another_project(tmp_path: Path) -> None:
    """The beginning is shared with the other project and stays; the summary's rows are in no epoch's log."""
    other = tmp_path / "other"
    other.mkdir()
    async with _nearly_full(tmp_path) as b:
        await b.ask("Elsewhere?", root=other)
        await b.ask("L" * 2_800)
        await b.ask(f"About {CANARY}?")
        b.backend._replies.insert(0, f"Summary of {CANARY}" + "S" * 600)
        b.gate.hold("prefill", 4)
        await b.idle.passes()
        await b.gate.reached()
        task = await b.interrupt("Elsewhere again?", root=other)
        b.gate.open()
        await task
        await b.app.registry.forget(b.project)
        assert _holding(b, CANARY) == []
        answer = await b.ask("And here?", root=other)
        assert answer.usage.plan == "live"
        await b.restart()
        assert (await b.ask("Still?", root=other)).usage.plan == "restore"


async def test_beginning_anew_stops_a_summary(tmp_path: Path) -> None:
    async with _nearly_full(tmp_path) as b:
        await _fill(b)
        b.gate.hold("decode", 3)
        await b.idle.passes()
        await b.gate.reached()
        job = b.app.registry.idle.epochs._job
        task = asyncio.create_task(b.app.registry.new_conversation(b.project))
        await until(lambda: job.cancelled)
        passes = len(b.gate.passes)
        b.gate.open()
        await asyncio.wait_for(task, 20)
        assert len(b.gate.passes) - passes <= 1
