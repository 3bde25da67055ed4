"""What survives a restart, a small memory, a bad disk; counted where the forward pass happens."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from qmlx_lsp.engine.backend import Restored
from qmlx_lsp.engine.scripted import ScriptedBackend
from qmlx_lsp.state import StateCopy, StoredState
from qmlx_lsp.transcript.entry import Finish
from tests.support.bench import Bench, bench, quick
from tests.support.faulty_files import FaultyFiles, Full
from tests.support.waiting import until

HEADER_TOKENS = 1 + 1 + 1 + len("assistant\n")
NEXT_TOKENS = len("\n") + 1 + len("user\n")


def payloads(b: Bench) -> list[Path]:
    """Segment and snapshot files of the store."""
    folder = b.paths.checkpoints
    return sorted(f for kind in ("segments", "snapshots") for f in (folder / kind).rglob("*") if f.is_file())


async def test_restart_restores_all_that_was_checkpointed(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.ask("A")
        await b.ask("B")
        before = b.ids()
        await b.restart()
        usage = (await b.ask("C")).usage
        assert (usage.plan, usage.restored, usage.live) == ("restore", len(before), 0)
        assert usage.prefilled == NEXT_TOKENS + len("C") + HEADER_TOKENS
        assert usage.restore_bytes >= 4 * len(before)
        assert usage.restore_ms > 0
        assert sum(length for kind, length in b.gate.passes[-1:] if kind == "x") == 0
        assert b.ids()[: len(before)] == before
        await b.check()
        assert (await b.ask("D")).usage.plan == "live"


@pytest.mark.parametrize(("kind", "after"), [("prefill", 2), ("decode", 1), ("decode", 5)])
async def test_restart_after_a_cancel_restores_to_the_token(tmp_path: Path, kind: str, after: int) -> None:
    settings = quick(engine={"prefill_chunk_tokens": 64})
    async with bench(tmp_path, settings) as b:
        cancelled = await b.cancelled("q" * 500, kind, after)
        reached = (await b.session()).live_position
        ids = b.ids()
        await b.restart()
        assert b.ids() == ids
        usage = (await b.ask("q" * 500)).usage
        assert usage.restored == reached
        assert b.ids()[: len(ids)] == ids
        if kind == "prefill":
            assert usage.prefilled == len(ids) - reached + HEADER_TOKENS
        else:
            assert cancelled.turn_id is not None
        await b.check()


async def test_restored_state_answers_as_a_cold_one(tmp_path: Path) -> None:
    """The scripted model's reply names a digest of everything it has read."""
    async with bench(tmp_path) as b:
        await b.ask("A")
        await b.restart()
        warm = await b.ask("B")
        assert warm.usage.plan == "restore"
        digest = ScriptedBackend()
        state = digest.new_state()
        digest.prefill(state, b.ids()[: b.entries()[-1].start + HEADER_TOKENS])
        expected = bytes(t for t in digest._reply(state) if t < 256).decode()
        assert warm.text == expected


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
async def test_damaged_checkpoints_are_a_miss_with_a_reason(tmp_path: Path, damage: str) -> None:
    async with bench(tmp_path) as b:
        await b.ask("A")
        await b.restart()
        for file in payloads(b):
            data = bytearray(file.read_bytes())
            data[-1] ^= 1
            file.write_bytes({"flip": bytes(data), "cut": bytes(data[: len(data) // 2]), "empty": b""}[damage])
        answer = await b.ask("B")
        assert (answer.usage.plan, answer.usage.restored, answer.finish) == ("cold", 0, Finish.COMPLETE)
        assert answer.usage.reason not in (None, "start", "no checkpoint")
        assert answer.usage.prefilled == answer.usage.context
        await b.check()
        await b.restart()
        assert (await b.ask("C")).usage.plan == "restore"


async def test_newest_checkpoint_damaged_an_older_one_serves(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        await b.ask("A")
        old, at = set(payloads(b)), len(b.ids())
        await b.ask("B")
        await b.restart()
        for file in set(payloads(b)) - old:
            file.write_bytes(file.read_bytes()[:-1] + b"?")
        usage = (await b.ask("C")).usage
        assert (usage.plan, usage.restored) == ("restore", at)
        assert usage.reason is not None
        await b.check()


async def test_rows_whose_snapshot_is_lost_are_not_written_again(tmp_path: Path) -> None:
    settings = quick(engine={"prefill_chunk_tokens": 64})
    async with bench(tmp_path, settings) as b:
        await b.ask("q" * 4000)
        rows = len(b.ids())
        await b.restart()
        for file in (b.paths.checkpoints / "snapshots").rglob("*"):
            if file.is_file():
                file.write_bytes(b"")
        cancelled = await b.cancelled("B", "prefill", 2)
        assert (cancelled.usage.plan, cancelled.usage.written_bytes) == ("cold", 0)
        await b.check()
        answer = await b.ask("B")
        assert answer.usage.live == 3 * 64
        headers = 2 * 16_384  # data begins there in the files of a segment and of a snapshot
        assert headers < answer.usage.written_bytes < headers + 4 * rows // 2
        await b.restart()
        assert (await b.ask("C")).usage.plan == "restore"
        assert b.notices == []


async def test_full_disk_costs_one_notice_and_no_turn(tmp_path: Path) -> None:
    disk = Full()
    async with bench(tmp_path, files=disk) as b:
        for question in "ABC":
            answer = await b.ask(question)
            assert (answer.finish, answer.usage.written_bytes) == (Finish.COMPLETE, 0)
        assert len(b.notices) == 1
        assert "checkpoint was not written" in b.notices[0]
        disk.full = False
        ids = b.ids()
        assert (await b.ask("D")).usage.written_bytes >= 4 * len(ids)  # everything that is missing
        disk.full = True
        await b.ask("E")
        assert len(b.notices) == 2
        await b.check()


async def test_store_that_cannot_be_opened_is_said_to_whoever_comes_and_turns_work(tmp_path: Path) -> None:
    b = Bench.__new__(Bench)
    (tmp_path / "home" / "cache").mkdir(parents=True)
    (tmp_path / "home" / "cache" / "checkpoints").write_text("in the way")
    b.__init__(tmp_path)  # type: ignore[misc]
    try:
        assert len(b.notices) == 1  # it listened after the start
        assert b.notices[0].startswith("No checkpoints: ")
        assert (await b.ask("A")).finish is Finish.COMPLETE
        assert (await b.ask("B")).usage.plan == "live"
        assert (await b.app.registry.status(0))["store"] is None
    finally:
        await b.app.stop()


class BadCopy(ScriptedBackend):
    def copy_state(self, state, start) -> StateCopy:  # type: ignore[no-untyped-def]
        raise RuntimeError("out of memory")


async def test_copy_that_fails_costs_the_checkpoint_and_not_the_turn(tmp_path: Path) -> None:
    async with bench(tmp_path, make=BadCopy) as b:
        assert (await b.ask("A")).finish is Finish.COMPLETE
        assert (await b.ask("B")).usage.plan == "live"
        assert b.notices == [
            "The conversation goes on, but its checkpoint was not written: RuntimeError: out of memory"
        ]


class Slow(FaultyFiles):
    """A disk that writes nothing while it does not spin."""

    def __init__(self) -> None:
        super().__init__()
        self.spins = threading.Event()
        self.spins.set()

    def pwritev(self, fd, pieces, offset):  # type: ignore[no-untyped-def]
        assert self.spins.wait(20), "the test left the disk waiting"
        return super().pwritev(fd, pieces, offset)


async def test_slow_disk_goes_on_behind_the_answers_and_saves_what_was_copied(tmp_path: Path) -> None:
    settings = quick(store={"answer_wait_s": 0.01})
    disk = Slow()
    async with bench(tmp_path, settings, context_tokens=1024, replies=["r" * 100] * 9, files=disk) as b:
        session = await b.session()
        await b.ask("A")
        disk.spins.clear()
        assert (await b.ask("B" * 150)).usage.written_bytes == 0
        last, _ = b.begin("C" * 300)  # does not fit behind the others: a new epoch, which has to ask the store
        await until(lambda: session.conversation.epoch)
        disk.spins.set()
        await last
        assert [said for said in b.notices if "come to its limit of 1,024 tokens" not in said] == []
        await b.restart()
        usage = (await b.ask("D")).usage
        assert usage.plan == "restore"
        await b.check()


async def test_small_memory_drops_the_oldest_and_restores_it(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with bench(tmp_path, quick(memory={"live_gib": 0.0})) as b:
        await b.ask("A")
        ids = b.ids()
        assert (await b.session()).live is not None  # the newest stays
        await b.ask("B", root=other)
        assert (await b.session()).live is None
        usage = (await b.ask("C")).usage
        assert (usage.plan, usage.restored, usage.reason) == ("restore", len(ids), "memory")
        await b.check()


async def test_drop_and_restore_beside_a_state_that_is_further_on(tmp_path: Path) -> None:
    async with bench(tmp_path, hybrid=False) as b:
        await b.ask("A")
        await b.restart(hybrid=False)
        await b.ask("B")
        usage = (await b.ask("C")).usage
        assert usage.plan == "live"
        await b.check()


async def test_an_engine_that_fails_while_restoring_reads_instead(tmp_path: Path) -> None:
    """No memory for the arrays, say: the checkpoint is whole and stays, the question is answered."""

    class NoRoom(ScriptedBackend):
        def restore(self, stored: StoredState) -> Restored:
            raise MemoryError("no room")

    async with bench(tmp_path) as b:
        await b.ask("A")
        before = b.ids()
    async with bench(tmp_path, make=NoRoom) as b:
        usage = (await b.ask("B")).usage
        assert (usage.plan, usage.reason, usage.restored) == ("cold", "failed", 0)
        await b.check()
    async with bench(tmp_path) as b:
        assert (await b.ask("C")).usage.restored > len(before)
