"""A new epoch begins at the limit, whether it was prepared or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from qmlx_lsp.transcript.entry import Finish
from qmlx_lsp.transcript.epoch import SUMMARY_REQUEST
from tests.support.bench import text_of
from tests.support.nearly_full import (
    HEAD,
    HEADER,
    LONG,
    NEXT,
    NEXT_TOKENS,
    NOTE,
    REQUEST_PASSES,
    SHORT,
    SUMMARY,
    SYSTEM,
    SYSTEM_TOKENS,
    epochs,
    made,
    nearly_full,
)


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
