"""Whatever fails while the next epoch is prepared harms nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from qmlx_lsp.engine.scripted import ScriptedBackend
from qmlx_lsp.engine.worker import EngineBusy
from qmlx_lsp.errors import StoreError
from qmlx_lsp.transcript.entry import Finish
from tests.support.bench import text_of
from tests.support.faulty_files import Full
from tests.support.nearly_full import (
    CHUNK,
    DUE,
    HEAD,
    HEADER,
    LONG,
    NOTE,
    PHASES,
    REQUEST_PASSES,
    SHORT,
    SUMMARY,
    SYSTEM,
    SYSTEM_TOKENS,
    epoch,
    epochs,
    made,
    nearly_full,
)
from tests.support.waiting import until


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
