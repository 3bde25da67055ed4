"""Checkpoints around turns: during a long prefill, for new conversations, after a failure, before memory is freed."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from qmlx_lsp.engine.backend import ModelInfo, Report
from qmlx_lsp.engine.scripted import ScriptedBackend
from qmlx_lsp.session.checkpoint import settled
from qmlx_lsp.storage.retention import MERGE_RUN
from qmlx_lsp.transcript.entry import Finish
from tests.support.bench import Bench, bench, quick
from tests.support.faulty_files import FaultyFiles, Full
from tests.support.waiting import until

CHUNK, POINT = 64, 256


async def _idle(b: Bench) -> None:
    await settled(await b.session())


@pytest.mark.parametrize("hybrid", [True, False])
async def test_killed_at_nine_tenths_of_a_long_prefill_little_is_read_again(tmp_path: Path, hybrid: bool) -> None:
    settings = quick(engine={"prefill_chunk_tokens": CHUNK}, store={"point_tokens": POINT})
    question = "q" * 8_000
    async with bench(tmp_path, settings, hybrid=hybrid) as b:
        b.gate.hold("prefill", 8_000 * 9 // 10 // CHUNK)
        task, job = b.begin(question)
        await b.gate.reached()
        await _idle(b)
        shutil.copytree(tmp_path / "home", tmp_path / "killed" / "home")  # as a kill would leave it
        job.cancel()
        b.gate.open()
        await task
    async with bench(tmp_path / "killed", settings, hybrid=hybrid) as after:
        after.project = b.project
        usage = (await after.ask(question)).usage
        assert usage.plan == "restore"
        assert usage.restored >= 0.8 * 8_000
        assert usage.restored % (2 * POINT) == 0  # on the grid: 8,000 tokens have points 512 apart
        assert usage.prefilled + usage.restored == usage.context
        await after.check()


@pytest.mark.parametrize(
    ("hybrid", "points"), [(True, [512, 1024]), (False, [128, 256, 384, 512, 640, 768, 896, 1024, 1152])]
)
async def test_rows_alone_have_more_points_than_snapshots(tmp_path: Path, hybrid: bool, points: list[int]) -> None:
    settings = quick(engine={"prefill_chunk_tokens": CHUNK}, store={"point_tokens": 2 * POINT})
    async with bench(tmp_path, settings, hybrid=hybrid) as b:
        await b.ask("q" * 1_100)
        session, store = await b.session(), b.app.registry.services.store
        assert store is not None
        found = store.find(  # where segments end, snapshot or not: those of a quick prefill overtake each other
            session.model.info.fingerprint, session.transcript.log, needs_snapshot=False, limit=session.live_position
        )
        assert [f.position for f in found] == [
            session.live_position,
            *sorted([*points, b.entries()[0].end], reverse=True),
        ]


async def test_a_new_epoch_begins_where_all_conversations_begin_alike(tmp_path: Path) -> None:
    async with bench(tmp_path, context_tokens=1024, replies=["r" * 100] * 9) as b:
        while True:
            usage = (await b.ask("q" * 150)).usage
            if (await b.session()).conversation.epoch:
                break
        assert (usage.plan, usage.restored, usage.reason) == ("restore", b.entries()[0].end, "new epoch")
        await b.check()


async def test_points_are_few_and_their_snapshots_are_thinned_out(tmp_path: Path) -> None:
    settings = quick(engine={"prefill_chunk_tokens": CHUNK}, store={"point_tokens": POINT})
    async with bench(tmp_path, settings) as b:
        answer = await b.ask("q" * 8_000)
        await _idle(b)
        snapshots = list((b.paths.checkpoints / "snapshots").iterdir())
        segments = list((b.paths.checkpoints / "segments").iterdir())
        assert 10 < len(segments) <= 16 + 2
        assert len(snapshots) <= 3 + 1 + 2 * 2
        assert sum(file.stat().st_size for file in segments) <= answer.usage.context * 8 + len(segments) * 17_000


async def test_short_turns_leave_no_points_on_their_way(tmp_path: Path) -> None:
    settings = quick(store={"point_tokens": POINT})
    async with bench(tmp_path, settings, replies=["r" * 100] * 20) as b:
        for _ in range(10):
            await b.ask("q" * 100)
        assert (await b.app.registry.status(0))["store"]["segments"] == 11  # one per turn, and the system text


async def test_a_new_conversation_begins_where_all_conversations_begin_alike(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with bench(tmp_path) as b:
        await b.ask("A")
        system = b.entries()[0].end
        usage = (await b.ask("B", root=other)).usage
        assert (usage.plan, usage.restored) == ("restore", system)
        assert usage.prefilled == usage.context - system
        await b.restart()
        assert (await b.ask("C", root=other)).usage.plan == "restore"
        store = (await b.app.registry.status(0))["store"]
        assert store["segments"] == 4  # the system text once, two turns of the one, one of the other
        await b.check()


class Broken(FaultyFiles):
    """Every call fails as ``code`` says, once ``broken``."""

    broken = False

    def _step(self, call: str) -> None:
        super()._step(call)
        if self.broken:
            raise OSError(self.code, os.strerror(self.code), call)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EIO, errno.ENOENT, errno.EACCES])
async def test_a_disk_that_turns_bad_costs_one_notice_and_nothing_old(tmp_path: Path, code: int) -> None:
    """Read-only, failing, unplugged: turns go on, and what was stored is there when the disk is."""
    disk = Broken(code=code)
    async with bench(tmp_path, files=disk) as b:
        await b.ask("A")
        kept = (await b.session()).live_position
        files = sorted((b.paths.checkpoints / "segments").iterdir())
        disk.broken = True
        for question in "BC":
            answer = await b.ask(question)
            assert (answer.finish, answer.usage.plan, answer.usage.written_bytes) == (Finish.COMPLETE, "live", 0)
        assert len(b.notices) == 1
        assert os.strerror(code) in b.notices[0]
        (await b.session()).drop_live("memory")
        assert (await b.ask("D")).finish is Finish.COMPLETE  # cold, for nothing can be read
        disk.broken = False
        assert set(files) <= set((b.paths.checkpoints / "segments").iterdir())
        assert (await b.ask("E")).usage.written_bytes > 0
        found = b.app.registry.services.store.find(  # type: ignore[union-attr]
            (await b.session()).model.info.fingerprint,
            (await b.session()).transcript.log,
            needs_snapshot=True,
            limit=kept,
        )
        assert found[0].position == kept  # the next save has found it again
        position = (await b.session()).live_position
        await b.restart()
        assert (await b.ask("F")).usage.restored == position


async def test_a_store_that_is_deleted_between_two_turns_is_begun_again(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.ask("A")
        shutil.rmtree(b.paths.checkpoints)
        await b.ask("B")
        await b.ask("C")
        position = (await b.session()).live_position
        assert b.notices == []
        await b.restart()
        assert (await b.ask("D")).usage.restored == position


async def test_what_failed_is_tried_again_by_itself(tmp_path: Path) -> None:
    disk = Full()
    async with bench(tmp_path, quick(store={"retry_s": 0.01}), files=disk) as b:
        await b.ask("A")
        session = await b.session()
        assert len(b.notices) == 1
        assert session.saved == 0
        disk.full = False
        await until(lambda: session.saved == session.live_position)
        assert (session.failures, len(b.notices)) == (0, 1)
        await b.restart()
        assert (await b.ask("B")).usage.restored == session.live_position


async def test_after_a_failure_nothing_is_copied_for_a_while(tmp_path: Path) -> None:
    disk, copies = Full(), []

    class Counting(ScriptedBackend):
        def copy_state(self, state, start, end=None):  # type: ignore[no-untyped-def]
            copies.append(start)
            return super().copy_state(state, start, end)

    async with bench(tmp_path, quick(store={"retry_s": 1_000.0}), files=disk, make=Counting) as b:
        await b.ask("A")
        made = len(copies)
        disk.full = False
        for question in "BCD":
            assert (await b.ask(question)).usage.written_bytes == 0
        assert len(copies) == made > 0


@pytest.mark.parametrize("hybrid", [True, False])
async def test_what_is_not_saved_goes_to_the_disk_before_it_leaves_memory(tmp_path: Path, hybrid: bool) -> None:
    other = tmp_path / "other"
    other.mkdir()
    disk = Full()
    async with bench(tmp_path, quick(memory={"live_gib": 0.0}), files=disk, hybrid=hybrid) as b:
        await b.ask("A")
        session = await b.session()
        position = session.live_position
        assert session.saved == 0
        disk.full = False
        await b.ask("B", root=other)
        await until(lambda: session.live is None)
        usage = (await b.ask("C")).usage
        assert (usage.plan, usage.restored, usage.reason) == ("restore", position, "memory")
        await b.check()


async def test_the_end_is_the_last_chance_for_what_is_not_saved(tmp_path: Path) -> None:
    disk = Full()
    async with bench(tmp_path, quick(store={"retry_s": 1_000.0}), files=disk) as b:
        await b.ask("A")
        position = (await b.session()).live_position
        disk.full = False
        await b.restart()
        assert (await b.ask("B")).usage.restored == position


async def test_a_state_that_cannot_be_saved_is_freed_all_the_same(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with bench(tmp_path, quick(memory={"live_gib": 0.0}), files=Full()) as b:
        await b.ask("A")
        session = await b.session()
        await b.ask("B", root=other)
        await until(lambda: session.live is None)
        assert (await b.ask("C")).finish is Finish.COMPLETE
        assert len(b.notices) == 1


async def test_what_was_restored_is_kept_for_who_stands_on_it(tmp_path: Path) -> None:
    disk = Full()
    disk.full = False
    async with bench(tmp_path, files=disk) as b:
        await b.ask("A")
        await b.restart()
        disk.full = True  # no save will pin anything
        assert (await b.ask("B")).usage.plan == "restore"
        store = b.app.registry.services.store
        assert store is not None
        session = await b.session()
        found = store.find(
            session.model.info.fingerprint, session.transcript.log, needs_snapshot=True, limit=session.live_position
        )
        assert set(found[0].files) <= store._catalog.leases.held()


async def test_many_small_turns_of_a_session_are_merged(tmp_path: Path) -> None:
    turns = 3 * MERGE_RUN
    async with bench(tmp_path, hybrid=False, replies=["ok"] * (turns + 2)) as b:
        for number in range(turns):
            await b.ask(str(number))
        await _idle(b)
        assert (await b.app.registry.status(0))["store"]["segments"] < turns // 2
        position = (await b.session()).live_position
        await b.restart()
        assert (await b.ask("again")).usage.restored == position
        assert b.notices == []
        await b.check()


class Unknown(ScriptedBackend):
    def load(self, source: str, report: Report, cancelled: Callable[[], bool]) -> ModelInfo:
        return replace(super().load(source, report, cancelled), not_persisted="its cache class X is not supported")


async def test_a_model_whose_states_cannot_be_kept_works_and_that_is_said_once(tmp_path: Path) -> None:
    async with bench(tmp_path, make=Unknown) as b:
        for question in "AB":
            assert (await b.ask(question)).usage.written_bytes == 0
        assert (await b.ask("C")).usage.plan == "live"
        assert len(b.notices) == 1
        assert "its cache class X is not supported" in b.notices[0]
