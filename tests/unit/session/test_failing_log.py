"""A log that refuses, an engine that refuses, an end in the middle: what was said stays, and nothing stays open."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from qmlx_lsp.errors import StoreError
from qmlx_lsp.transcript.entry import Finish
from tests.support.bench import Bench, bench, quick, text_of
from tests.support.waiting import until


def _refusing(write: Callable[..., object], full: list[bool]) -> Callable[..., object]:
    """``write``, refused while ``full`` is not empty."""

    def guarded(*args: object) -> object:
        if full:
            raise StoreError("the disk is full")
        return write(*args)

    return guarded


async def test_log_that_cannot_be_written_fails_the_question_and_is_made_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused at each of the three writes of a turn in turn; afterwards log, transcript and state agree."""
    for write in ("append", "begin_reply", "finish_reply"):
        (tmp_path / write).mkdir()
        async with bench(tmp_path / write, replies=["one", "two", "three"]) as b:
            await b.ask("A")
            await b.restart(replies=["two", "three"])
            full = [True]
            monkeypatch.setattr(b.app._log, write, _refusing(getattr(b.app._log, write), full))
            with pytest.raises(StoreError, match="the disk is full"):
                await b.ask("B")
            if write != "finish_reply":
                await b.check()
            with pytest.raises(StoreError):
                await b.ask("B")
            full.clear()
            answer = await b.ask("C")
            assert answer.finish is Finish.COMPLETE
            await b.check()
            assert Finish.OPEN not in {e.finish for e in b.entries()}
            if write == "finish_reply":
                assert [e.text for e in b.entries()][-4:] == ["B", "two", "C", "three"]


async def test_usage_that_cannot_be_amended_does_not_fail_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as b:

        def refuse(*_args: object) -> None:
            raise StoreError("the disk is full")

        monkeypatch.setattr(b.app._log, "amend_usage", refuse)
        assert (await b.ask("A")).usage.written_bytes > 0


async def test_engine_that_refuses_leaves_no_reply_open(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.ask("A")
        worker = b.app.registry.services.worker
        real, calls = worker.call, []

        async def busy(work, *rest):  # type: ignore[no-untyped-def]
            calls.append(work)
            raise StoreError("the engine is busy")

        worker.call = busy  # type: ignore[method-assign]
        with pytest.raises(StoreError, match="busy"):
            await b.ask("B")
        worker.call = real  # type: ignore[method-assign]
        assert b.entries()[-1].text == "B"  # no header of a reply stands there
        assert (await b.session()).live is None  # nobody knows what it has read
        assert calls
        assert (await b.ask("C")).finish is Finish.COMPLETE
        await b.check()
        assert Finish.OPEN not in {e.finish for e in b.entries()}


async def test_reply_cut_off_by_a_crash_is_recovered_as_cancelled(tmp_path: Path) -> None:
    """What lies on the disk in the middle of a reply is opened by another process."""
    settings = quick(stream={"journal_ms": 10})
    async with bench(tmp_path, settings, replies=["abcdefgh"]) as b:
        b.gate.hold("decode", 6)
        task, _ = b.begin("Q")
        await b.gate.reached()
        await until(lambda: b.entries()[-1].text == "abcde")
        shutil.copytree(tmp_path / "home", tmp_path / "later" / "home")
        late = Bench(tmp_path / "later", settings)
        try:
            assert late.entries(b.project)[-1].finish is Finish.CANCELLED
            assert text_of(late.ids(b.project)).endswith("assistant\nabcde")
            ids = late.ids(b.project)
            assert (await late.ask("R", root=b.project)).finish is Finish.COMPLETE
            assert late.ids(b.project)[: len(ids)] == ids
        finally:
            await late.app.stop()
        b.gate.open()
        assert (await task).text == "abcdefgh"


async def test_stop_records_what_runs(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["abcdefgh"]) as b:
        b.gate.hold("decode", 4)
        task, _ = b.begin("Q")
        await b.gate.reached()
        stopping = asyncio.create_task(b.app.registry.stop(10))
        await until(lambda: all(job.cancelled for job in b.app.registry.running))
        b.gate.open()
        await stopping
        assert (await task).finish is Finish.CANCELLED
        assert text_of(b.ids()).endswith("abcd")
