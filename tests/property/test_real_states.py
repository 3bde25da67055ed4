"""Random programmes on real caches against a model that reads the log from nothing.

Questions, cancels and errors at any pass, branches, forks into a new conversation, restarts, states dropped, files
evicted and damaged, two owners of one store: whatever happened, what is generated is what a cold run generates, and
the live state goes on as a cold one does. Tiny models with random weights; greedy; float32.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from qmlx_lsp.engine.backend import Backend, ModelInfo, Report, Sampling
from qmlx_lsp.engine.mlx.backend import MlxBackend
from qmlx_lsp.engine.scripted_tokenizer import END_OF_TURN, tokenizer_json
from qmlx_lsp.paths import Paths
from qmlx_lsp.transcript.entry import Kind
from qmlx_lsp.transcript.families import FAMILIES
from tests.support import tiny_models
from tests.support.bench import Bench, Gate, quick

GREEDY = Sampling()
HEADER_TOKENS = 1 + 1 + 1 + len("assistant\n")
CHUNK, POINT, REPLY, AHEAD = 32, 256, 12, 4


class Watched:
    """A model that tells a gate of every pass: ``read`` of several rows, ``step`` of one."""

    def __init__(self, model: Any, gate: Gate) -> None:
        self._model = model
        self._gate = gate

    def __call__(self, tokens: Any, **kwargs: Any) -> Any:
        self._gate.before_pass("read" if tokens.size > 1 else "step", tokens.size)
        return self._model(tokens, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class RealBackend(MlxBackend):
    """The real backend on the tiny model ``model``."""

    def __init__(self, model: str, gate: Gate) -> None:
        super().__init__(Path("unused"))
        self.model, self.gate = model, gate

    def load(self, source: str, report: Report, cancelled: Callable[[], bool]) -> ModelInfo:
        needs = self.model not in tiny_models.ROWS_ONLY
        self.use(Watched(tiny_models.make(self.model), self.gate), needs_snapshot=needs)
        return ModelInfo(
            name=self.model, path="", fingerprint=self.model.encode().ljust(16), context_tokens=4_096, weight_bytes=0,
            eos_ids=frozenset({END_OF_TURN, 256}), needs_snapshot=needs, tokenizer_json=tokenizer_json(),
            template=FAMILIES["ChatML"][1],
        )  # fmt: skip


class Owner(Bench):
    """A daemon of its own, with a conversation log of its own, on the store in ``cache``."""

    def __init__(self, base: Path, cache: Path, model: str) -> None:
        self._cache = cache
        base.mkdir()
        super().__init__(
            base,
            quick(
                engine={"prefill_chunk_tokens": CHUNK}, store={"point_tokens": POINT}, model={"max_tokens": REPLY}
            ),
            make=lambda **_options: RealBackend(model, self.gate),
        )  # fmt: skip

    def start(self) -> None:
        self.paths = Paths(self.paths.config, self.paths.data, self._cache, self.paths.runtime, self.paths.log)
        super().start()


def cold(model: str, ids: Sequence[int], count: int) -> list[int]:
    """What the model generates after it has read ``ids`` from nothing."""
    backend = tiny_models.backend(model)
    state = backend.new_state()
    for at in range(0, len(ids) - 1, 500):
        backend.prefill(state, ids[at : min(at + 500, len(ids) - 1)])
    return list(backend.decode(state, [ids[-1]], GREEDY, count))


STEPS = st.one_of(
    st.tuples(st.just("ask"), st.integers(1, 300)),
    st.tuples(st.just("ask"), st.integers(1, 40)),
    st.tuples(st.just("cancel"), st.sampled_from(["read", "step"]), st.integers(0, 9)),
    st.tuples(st.just("fail"), st.sampled_from(["read", "step"]), st.integers(0, 9)),
    st.tuples(st.just("branch"), st.integers(1, 30)),
    st.tuples(st.just("fork")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("drop")),
    st.tuples(st.just("lose"), st.integers(0, 50)),
    st.tuples(st.just("damage"), st.integers(0, 50), st.integers(0, 10**6)),
    st.tuples(st.just("other")),
)


class Programme:
    """Two owners, of which one is at work; each has a root that it talks about."""

    def __init__(self, base: Path, model: str) -> None:
        self.base, self.model = base, model
        self.owners = [Owner(base / name, base / "cache", model) for name in ("one", "two")]
        self.at_work = 0
        self.roots = [base / "shared", base / "shared"]
        self.roots[0].mkdir()

    @property
    def b(self) -> Bench:
        return self.owners[self.at_work]

    @property
    def root(self) -> Path:
        return self.roots[self.at_work]

    async def step(self, number: int, what: tuple[Any, ...]) -> None:
        await getattr(self, what[0])(number, *what[1:])
        await self.check()

    async def ask(self, _number: int, length: int) -> None:
        await self.b.ask("q" * length, root=self.root)

    async def cancel(self, _number: int, kind: str, after: int) -> None:
        b = self.b
        b.gate.hold(kind, after)
        task, job = b.begin("?" * 100, root=self.root)
        reaching = asyncio.create_task(b.gate.reached())
        await asyncio.wait({task, reaching}, return_when=asyncio.FIRST_COMPLETED)
        job.cancel()
        b.gate.open()
        await task
        b.gate._reached.set()  # it may never have come there
        await reaching

    async def fail(self, _number: int, kind: str, after: int) -> None:
        self.b.gate.fail(kind, after)
        await self.b.ask("?" * 100, root=self.root)
        self.b.gate.open()

    async def branch(self, number: int, count: int) -> None:
        """Work on top of the live state that leaves no trace."""
        session = await self.b.session(self.root)
        state = session.live
        if state is None:
            return

        def work(backend: Backend) -> None:
            mark = backend.mark(state)
            list(backend.decode(state, [number % 200 + 1, 7], GREEDY, count))
            backend.rewind(state, mark)

        await self.b.app.registry.services.worker.call(work)

    async def fork(self, number: int) -> None:
        """Another conversation, which begins as all of them do."""
        self.roots[self.at_work] = self.base / f"root {self.at_work} {number}"
        self.root.mkdir()

    async def restart(self, _number: int) -> None:
        await self.b.restart()

    async def drop(self, _number: int) -> None:
        (await self.b.session(self.root)).drop_live("memory")

    def _files(self) -> list[Path]:
        folder = self.base / "cache" / "checkpoints"
        return sorted(file for kind in ("segments", "snapshots") for file in (folder / kind).glob("[!.]*"))

    async def lose(self, _number: int, pick: int) -> None:
        files = self._files()
        if files:
            with contextlib.suppress(FileNotFoundError):  # the writer may be merging it just now
                files[pick % len(files)].unlink()

    async def damage(self, _number: int, pick: int, at: int) -> None:
        files = self._files()
        if files:
            with contextlib.suppress(FileNotFoundError):
                data = bytearray(files[pick % len(files)].read_bytes())
                data[at % len(data)] ^= 1
                files[pick % len(files)].write_bytes(data)

    async def other(self, _number: int) -> None:
        self.at_work = 1 - self.at_work

    async def check(self) -> None:
        b, root = self.b, self.root
        entries, ids = b.entries(root), b.ids(root)
        if entries and entries[-1].kind is Kind.ASSISTANT:
            last = entries[-1]
            said = list(last.ids[HEADER_TOKENS:])
            assert said == cold(self.model, ids[: last.start + HEADER_TOKENS], len(said))
        session = await b.session(root)
        assert session.transcript.log.ids() == ids
        state = session.live
        if state is None:
            return

        def ahead(backend: Backend) -> tuple[int, list[int]]:
            mark = backend.mark(state)
            found = list(backend.decode(state, [65, 66], GREEDY, AHEAD))
            backend.rewind(state, mark)
            return backend.position(state), found

        position, found = await b.app.registry.services.worker.call(ahead)
        assert position == session.live_position <= len(ids)
        assert found == cold(self.model, [*ids[:position], 65, 66], AHEAD)

    async def stop(self) -> None:
        for owner in self.owners:
            owner.gate.open()
            await owner.app.stop()


async def run(steps: list[tuple[Any, ...]], model: str) -> None:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="q", dir=memory) as base:
        programme = Programme(Path(base), model)
        try:
            for number, what in enumerate(steps):
                await programme.step(number, what)
        finally:
            await programme.stop()


EXAMPLES = {"hybrid": 15, "gpt_oss": 10, "llama": 10, "gemma": 6, "llama4": 5, "baichuan": 5}


@pytest.mark.slow
@pytest.mark.parametrize("model", EXAMPLES)
@pytest.mark.timeout(300)
def test_what_is_generated_is_what_a_cold_run_generates(model: str) -> None:
    @settings(max_examples=EXAMPLES[model], deadline=None)
    @given(st.lists(STEPS, min_size=3, max_size=14))
    def programme(steps: list[tuple[Any, ...]]) -> None:
        asyncio.run(run(steps, model))

    programme()


@pytest.mark.slow
def test_one_programme_with_a_bit_of_everything() -> None:
    steps: list[tuple[Any, ...]] = [
        ("ask", 200), ("branch", 5), ("cancel", "step", 3), ("ask", 10), ("other",), ("ask", 200), ("restart",),
        ("ask", 5), ("damage", 1, 99), ("drop",), ("fork",), ("cancel", "read", 2), ("fail", "step", 2), ("lose", 3),
        ("drop",), ("ask", 4),
    ]  # fmt: skip
    asyncio.run(run(steps, "hybrid"))
