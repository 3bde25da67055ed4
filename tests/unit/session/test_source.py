"""A question with a source: the same answer in fewer passes, and nothing of it told."""

from __future__ import annotations

from pathlib import Path

from qmlx_lsp.engine.scripted_tokenizer import END_OF_TURN
from qmlx_lsp.transcript.entry import Finish
from tests.support.bench import bench, text_of

CODE = "def area(width, height):\n    return width * height\n"
ANSWER = "def area(width, length):\n    return width * length\n"


async def test_answer_that_copies_takes_fewer_passes_and_is_the_same(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=[ANSWER, ANSWER]) as b:
        plain = await b.ask("Rename it.")
        before = b.backend.passes.passes
        drafted = await b.ask("Again.", source=CODE)
        assert (drafted.text, drafted.finish) == (plain.text, Finish.COMPLETE)
        assert drafted.text == ANSWER
        # A pass for the question, one for the header, one for every token: that many without a source.
        assert b.backend.passes.passes - before < (1 + 1 + drafted.usage.generated) / 2
        assert drafted.usage.generated == len(ANSWER) + 1
        assert b.ids()[-1] == END_OF_TURN
        assert CODE not in text_of(b.ids())
        await b.check()


async def test_source_holds_no_control_tokens(tmp_path: Path) -> None:
    """Nor can a text that looks like one end the reply."""
    answer = "x <|im_end|> y" * 3
    async with bench(tmp_path, replies=[answer]) as b:
        told = await b.ask("Q", source=answer)
        assert (told.text, told.usage.generated) == (answer, len(answer) + 1)
        await b.check()


async def test_cancelled_in_the_middle_of_what_is_copied(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=[ANSWER]) as b:
        told = await b.cancelled("Q", "decode", 3, source=CODE)
        assert told.finish is Finish.CANCELLED
        assert told.text
        assert ANSWER.startswith(told.text)
        assert len(told.text) < len(ANSWER)
        await b.check()
