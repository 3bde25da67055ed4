"""Epochs on real caches: the summary is a branch that leaves no bit behind, and the step is to a state like any."""

from __future__ import annotations

from pathlib import Path

import pytest

from qmlx_lsp.engine.backend import Backend
from qmlx_lsp.errors import StoreError
from tests.property.test_real_states import HEADER_TOKENS, RealBackend, cold
from tests.support import tiny_models
from tests.support.bench import Bench, quick
from tests.support.memory_home import tmp_path

__all__ = ["tmp_path"]

LIMIT, QUESTION = 1_024, "q" * 600  # more than three quarters, with the system text
SUMMARY, REPLY = 24, 12


def small(base: Path, model: str) -> Bench:
    settings = quick(
        engine={"prefill_chunk_tokens": 64},
        model={"max_tokens": REPLY},
        context={"max_tokens": LIMIT, "summary_tokens": SUMMARY, "carry_share": 0.2},
    )
    bench: Bench
    bench = Bench(base, settings, make=lambda **_options: RealBackend(model, bench.gate))
    return bench


def everything(b: Bench, state: int) -> list[bytes]:
    """Every byte of a state."""

    def work(backend: Backend) -> list[bytes]:
        copied = backend.copy_state(state, 0)  # type: ignore[arg-type]
        return [bytes(tensor.data) for tensor in (*copied.rows, *(copied.snapshot or ()))]

    return b.app.registry.services.worker.submit(work).result()


def logits(b: Bench, state: int, ids: list[int]) -> bytes:
    return b.app.registry.services.worker.submit(lambda backend: bytes(backend.logits(state, ids))).result()  # type: ignore[attr-defined]


@tiny_models.FEW
async def test_a_summary_leaves_no_bit_of_it_in_the_live_state(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step is refused, so that the state goes on: as the same state of a daemon that made no summary."""
    found = []
    for place, rests in (("a", True), ("b", False)):
        (tmp_path / place).mkdir()
        b = small(tmp_path / place, name)
        try:
            await b.ask(QUESTION)
            session = await b.session()
            assert session.live is not None
            before = everything(b, session.live)

            def refuse(*_args: object, **_more: object) -> None:
                raise StoreError("not now")

            monkeypatch.setattr(b.app._log, "new_epoch", refuse)
            if rests:
                await b.rest()
                assert session.summary is not None
                assert session.summary.text
                assert session.summary.position == session.live_position == len(b.ids())
            assert everything(b, session.live) == before
            found.append((before, logits(b, session.live, [65]), logits(b, session.live, [66, 67])))
        finally:
            await b.app.stop()
    assert found[0] == found[1]


@tiny_models.FEW
async def test_after_the_step_answers_are_those_of_a_cold_run(tmp_path: Path, name: str) -> None:
    b = small(tmp_path, name)
    try:
        await b.ask(QUESTION)
        old = b.ids()
        await b.ask("And?")
        carried = b.entries()[-1].ids
        await b.rest()
        session = await b.session()
        assert session.conversation.epoch == 1
        assert b.entries()[-1].ids == carried
        assert len(b.ids()) < len(old)
        usage = (await b.ask("Now?")).usage
        assert (usage.plan, usage.live) == ("live", session.conversation.opening)
        last = b.entries()[-1]
        said = list(last.ids[HEADER_TOKENS:])
        assert said == cold(name, b.ids()[: last.start + HEADER_TOKENS], len(said))
        await b.restart()
        assert (await b.ask("Then?")).usage.plan == "restore"
        last = b.entries()[-1]
        said = list(last.ids[HEADER_TOKENS:])
        assert said == cold(name, b.ids()[: last.start + HEADER_TOKENS], len(said))
    finally:
        await b.app.stop()
