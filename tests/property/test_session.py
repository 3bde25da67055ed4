"""Any programme of questions, cancels, errors, edits, idle work, restarts and losses keeps log and state together.

A token is a byte and a reply names a digest of everything the model has read, so a state that is off by one token,
or a checkpoint under the wrong key, answers differently from a model that reads the log from the beginning.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from qmlx_lsp.engine.scripted import ScriptedBackend
from qmlx_lsp.engine.scripted_tokenizer import END_OF_TURN
from qmlx_lsp.transcript.entry import Finish, Kind
from tests.support.bench import Bench, bench, quick
from tests.support.waiting import until

HEADER_TOKENS = 1 + 1 + 1 + len("assistant\n")
CHUNK = 32
LIMIT = 2_048

STEPS = st.one_of(
    st.tuples(st.just("ask"), st.integers(1, 120), st.booleans()),
    st.tuples(st.just("ask"), st.integers(200, 500), st.booleans()),
    st.tuples(st.just("rest"), st.just(""), st.just(0), st.just(False)),
    st.tuples(st.just("cancel"), st.sampled_from(["prefill", "decode"]), st.integers(0, 12)),
    st.tuples(st.just("fail"), st.sampled_from(["prefill", "decode"]), st.integers(0, 12)),
    st.tuples(st.just("edit"), st.integers(0, 9), st.integers(0, 99)),
    st.tuples(st.just("ahead"), st.sampled_from(["", "prefill"]), st.integers(0, 12), st.booleans()),
    st.tuples(st.just("restart")),
    st.tuples(st.just("drop")),
    st.tuples(st.just("damage"), st.integers(0, 50)),
    st.tuples(st.just("rest"), st.sampled_from(["", "prefill", "decode"]), st.integers(0, 25), st.booleans()),
)


def reply_to(ids: list[int], *, hybrid: bool) -> str:
    """What a model that reads ``ids`` from the beginning answers."""
    model = ScriptedBackend(hybrid=hybrid)
    state = model.new_state()
    model.prefill(state, ids)
    return bytes(t for t in model._reply(state) if t != END_OF_TURN).decode()


async def rest(b: Bench, kind: str, after: int, asks: bool) -> None:
    """Time for work that nobody asked for; at a pass of it, somebody asks or the model fails."""
    if not b.app.registry.idle.epochs._running():
        return
    if not kind:
        await b.rest()
    elif not asks:
        b.gate.fail(kind, after)
        await b.rest()
        b.gate.open()
    else:
        b.gate.hold(kind, after)
        await b.idle.passes()
        reaching, resting = asyncio.create_task(b.gate.reached()), asyncio.create_task(b.rested())
        await asyncio.wait({reaching, resting}, return_when=asyncio.FIRST_COMPLETED)
        task = await b.interrupt("Now?")
        b.gate.open()
        assert (await task).finish in (Finish.COMPLETE, Finish.LENGTH)
        b.gate._reached.set()  # it may never have come there
        await asyncio.gather(reaching, resting)


async def read_ahead(b: Bench, kind: str, after: int, asks: bool) -> None:
    """Time to read ahead; at a pass of it, somebody asks or the model fails."""
    idle = b.app.registry.idle
    idle.stirred(b.project)
    if not kind or not asks:
        if kind:
            b.gate.fail(kind, after)
        await b.pause()
        b.gate.open()
        return
    b.gate.hold(kind, after)
    pausing, reaching = asyncio.create_task(b.pause()), asyncio.create_task(b.gate.reached())
    await asyncio.wait({reaching, pausing}, return_when=asyncio.FIRST_COMPLETED)
    job = idle.reading._job
    task, _ = b.begin("Now?")
    await until(lambda: job.cancelled)
    b.gate.open()
    assert (await task).finish in (Finish.COMPLETE, Finish.LENGTH)
    b.gate._reached.set()  # it may never have come there
    await asyncio.gather(reaching, pausing)


async def step(b: Bench, number: int, what: tuple[Any, ...], *, hybrid: bool) -> None:
    file = b.project / "a.py"
    if what[0] == "edit":
        lines = file.read_text().splitlines()
        lines[what[1]] = f"line = {what[2]}"
        file.write_text("\n".join(lines) + "\n")
        return
    if what[0] == "restart":
        await b.restart()
        return
    if what[0] == "drop":
        (await b.session()).drop_live("memory")
        return
    if what[0] == "rest":
        await rest(b, *what[1:])
        return
    if what[0] == "ahead":
        await read_ahead(b, *what[1:])
        return
    if what[0] == "damage":
        folder = b.paths.checkpoints
        files = sorted(f for kind in ("segments", "snapshots") for f in (folder / kind).rglob("*") if f.is_file())
        if files:
            hurt = files[what[1] % len(files)]
            hurt.write_bytes(hurt.read_bytes()[:-1] + b"\xff")
        return
    about = {"path": str(file)} if what[0] == "ask" and what[2] else {}
    if what[0] == "ask":
        answer = await b.ask(f"{number} " + "q" * what[1], **about)
        assert answer.finish in (Finish.COMPLETE, Finish.LENGTH)
    elif what[0] == "fail":
        b.gate.fail(what[1], what[2])
        answer = await b.ask("?" * 100)
        b.gate.open()
    else:
        b.gate.hold(what[1], what[2])
        task, job = b.begin("?" * 100)
        reaching = asyncio.create_task(b.gate.reached())
        await asyncio.wait({task, reaching}, return_when=asyncio.FIRST_COMPLETED)
        job.cancel()
        b.gate.open()
        answer = await task
        b.gate._reached.set()  # it may never have come there
        await reaching
    usage, last = answer.usage, b.entries()[-1]
    assert usage.live + usage.restored + usage.prefilled == usage.context
    if answer.turn_id is None:
        assert last.kind is Kind.QUESTION
        assert usage.context <= last.end + HEADER_TOKENS
    else:
        assert (last.kind, last.finish, last.text) == (Kind.ASSISTANT, answer.finish, answer.text)
        assert usage.context == last.start + HEADER_TOKENS
        assert usage.generated == len(last.ids) - HEADER_TOKENS
        expected = reply_to(b.ids()[: last.start + HEADER_TOKENS], hybrid=hybrid)
        assert expected.startswith(answer.text)
        assert (answer.text == expected) or answer.finish is not Finish.COMPLETE


async def check_ahead(b: Bench) -> None:
    """What has been read of the epoch to come is a beginning of its opening."""
    ahead = (await b.session()).ahead
    if ahead is not None and ahead.live is not None:
        state = ahead.live
        read = await b.app.registry.services.worker.call(lambda _backend: b.backend.ids(state))
        assert read == ahead.transcript.log.ids()[: ahead.live_position]
        assert len(read) == ahead.live_position


async def programme(steps: list[tuple[Any, ...]], *, hybrid: bool) -> None:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as base:
        (Path(base) / "project").mkdir()
        (Path(base) / "project" / "a.py").write_text("line = 0\n" * 10)
        made = quick(engine={"prefill_chunk_tokens": CHUNK}, context={"summary_tokens": 64, "epoch_share": 0.4})
        async with bench(Path(base), made, hybrid=hybrid, context_tokens=LIMIT) as b:
            await b.ask("about the file", path=str(b.project / "a.py"))  # so that its edits are news
            ids: list[int] = []
            epoch = 0
            left: dict[int, list[int]] = {}  # what each epoch held when it was last seen
            for number, what in enumerate(steps):
                await step(b, number, what, hybrid=hybrid)
                await b.check()
                session = await b.session()
                if session.conversation.epoch == epoch:
                    assert b.ids()[: len(ids)] == ids
                await check_ahead(b)
                ids, epoch = b.ids(), session.conversation.epoch
                left[epoch] = ids
                assert len(ids) <= LIMIT
            assert Finish.OPEN not in {entry.finish for entry in b.entries()}
            log = b.app.registry.services.log
            for past in log.epochs(str(b.project)):
                kept = [token for entry in log.entries(past) for token in entry.ids]
                known = left.get(past.epoch, kept)
                assert kept[: len(known)] == known
            assert [said for said in b.notices if "come to its limit of 2,048 tokens" not in said] == []


@settings(max_examples=25, deadline=None)
@given(st.lists(STEPS, min_size=3, max_size=12), st.booleans())
def test_log_and_state_stay_together(steps: list[tuple[Any, ...]], hybrid: bool) -> None:
    asyncio.run(programme(steps, hybrid=hybrid))
