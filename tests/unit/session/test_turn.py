"""What a turn says, costs and records, with the scripted backend: a token is a byte, so ids can be read."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from qmlx_lsp.errors import QuestionError
from qmlx_lsp.session.model import SYSTEM_TEXT
from qmlx_lsp.transcript.entry import Finish, Kind
from tests.support.bench import Bench, bench, quick, text_of
from tests.support.waiting import until

SYSTEM = f"<|im_start|>system\n{SYSTEM_TEXT}<|im_end|>\n<|im_start|>user\n"
HEADER = "<|im_end|>\n<|im_start|>assistant\n"
NEXT = "\n<|im_start|>user\n"
HEADER_TOKENS = 1 + 1 + 1 + len("assistant\n")


async def test_first_question_is_cold_and_said_as_the_template_says_it(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["Because."]) as b:
        answer = await b.ask("Why?")
        assert (answer.text, answer.finish, answer.error) == ("Because.", Finish.COMPLETE, None)
        assert text_of(b.ids()) == f"{SYSTEM}Why?{HEADER}Because.<|im_end|>"
        assert [e.kind for e in b.entries()] == [Kind.SYSTEM, Kind.QUESTION, Kind.ASSISTANT]
        usage = answer.usage
        assert (usage.plan, usage.live, usage.restored, usage.generated) == ("cold", 0, 0, len("Because.") + 1)
        assert usage.context == usage.prefilled == len(b.ids()) - usage.generated
        assert usage.reason == "no checkpoint"
        assert usage.written_bytes > 0
        assert usage.ttft_ms is not None
        assert usage.ttft_ms >= usage.prefill_ms
        await b.check()


async def test_follow_up_reads_the_new_tokens_only(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["One.", "Two."]) as b:
        await b.ask("A?")
        before = b.ids()
        usage = (await b.ask("B?")).usage
        assert b.ids()[: len(before)] == before
        assert text_of(b.ids()[len(before) :]) == f"{NEXT}B?{HEADER}Two.<|im_end|>"
        assert (usage.plan, usage.reason, usage.live) == ("live", None, len(before))
        # The template's line break after the end token and the user's header; the question; the reply's header.
        assert usage.prefilled == len("\n") + 1 + len("user\n") + len("B?") + HEADER_TOKENS
        assert usage.context == usage.live + usage.prefilled == len(b.ids()) - usage.generated
        await b.check()


async def test_length_ends_a_reply_which_is_closed_at_the_head_of_the_next(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["abcdef", "x"]) as b:
        answer = await b.ask("Q", max_tokens=3)
        assert (answer.text, answer.finish, answer.usage.generated) == ("abc", Finish.LENGTH, 3)
        await b.ask("R")
        assert text_of(b.ids()).endswith(f"abc<|im_end|>{NEXT}R{HEADER}x<|im_end|>")


@pytest.mark.parametrize("tokens", [1, 2, 9])
async def test_reply_cancelled_after_some_tokens_is_kept_as_it_was_produced(tmp_path: Path, tokens: int) -> None:
    async with bench(tmp_path, replies=["def f():\n    return 1", "ok"]) as b:
        answer = await b.cancelled("Q", "decode", tokens)
        shown = "def f():\n    return 1"[:tokens]
        assert (answer.finish, answer.text, answer.usage.generated) == (Finish.CANCELLED, shown, tokens)
        assert text_of(b.ids()).endswith(f"Q{HEADER}{shown}")
        await b.check()
        partial = b.ids()
        await b.ask("Again")
        assert b.ids()[: len(partial)] == partial
        assert text_of(b.ids()[len(partial) :]) == f"<|im_end|>{NEXT}Again{HEADER}ok<|im_end|>"
        await b.check()


async def test_cancel_at_the_end_token_does_not_double_it(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["ab", "c"]) as b:
        answer = await b.cancelled("Q", "decode", 3)
        assert answer.finish is Finish.COMPLETE  # the model had ended by itself at that very token
        await b.ask("R")
        assert text_of(b.ids()).endswith(f"ab<|im_end|>{NEXT}R{HEADER}c<|im_end|>")


async def test_cancel_inside_a_character_shows_a_replacement_and_keeps_the_ids(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["aé!"]) as b:
        answer = await b.cancelled("Q", "decode", 2)
        assert answer.text == "a\ufffd"
        assert b.ids()[-2:] == [ord("a"), "é".encode()[0]]


async def test_cancel_in_prefill_leaves_no_header_and_asking_again_reads_what_is_missing(tmp_path: Path) -> None:
    settings = quick(engine={"prefill_chunk_tokens": 64})
    async with bench(tmp_path, settings) as b:
        first = await b.cancelled("Long question " * 40, "prefill", 3)
        assert (first.turn_id, first.text, first.finish) == (None, "", Finish.CANCELLED)
        system = b.entries()[0].end
        read = system  # three whole chunks, and the one that was running: it ends with the system text
        assert 192 < system < 256
        assert first.usage.prefilled == read
        asked = b.ids()
        assert text_of(asked).endswith("Long question")
        await b.check()
        again = await b.ask("Long question " * 40)
        assert again.usage.live == read
        assert again.usage.prefilled == len(asked) - read + HEADER_TOKENS
        assert b.ids()[: len(asked)] == asked
        assert [e.kind for e in b.entries()] == [Kind.SYSTEM, Kind.QUESTION, Kind.ASSISTANT]


async def test_cancelled_again_and_again_a_long_prefill_comes_to_its_end(tmp_path: Path) -> None:
    settings = quick(engine={"prefill_chunk_tokens": 64})
    question = "x" * (640 - len(SYSTEM.encode()) + 8)
    async with bench(tmp_path, settings) as b:
        read = [(await b.cancelled(question, "prefill", 2)).usage.prefilled for _ in range(2)]
        read.append((await b.ask(question)).usage.prefilled)
        assert sum(read) == len(b.ids()) - b.entries()[-1].end + b.entries()[-1].start + HEADER_TOKENS
        system = b.entries()[0].end  # a chunk ends there
        assert read[:2] == [3 * 64, system - 3 * 64 + 2 * 64]


async def test_same_selection_asked_again_after_a_cancel_is_not_said_twice(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        file = b.project / "a.py"
        file.write_text("one\ntwo\nthree\n")
        await b.cancelled("What?", "prefill", path=str(file), lines=(2, 2))
        asked = b.ids()
        again = await b.ask("What?", path=str(file), lines=(2, 2))
        assert b.ids()[: len(asked)] == asked
        assert again.usage.context == len(asked) + HEADER_TOKENS


async def test_other_question_after_a_withdrawn_one_says_so(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["x"]) as b:
        await b.cancelled("First", "prefill")
        await b.ask("Second")
        assert text_of(b.ids()).endswith(
            f"First\n\n(The question above was withdrawn before it was answered.)\nSecond{HEADER}x<|im_end|>"
        )


async def test_cancel_while_waiting_behind_another_turn_costs_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.gate.hold("prefill")
        first, _ = b.begin("First")
        await b.gate.reached()
        second, job = b.begin("Second")
        await asyncio.sleep(0)
        job.cancel()
        answer = await second
        assert (answer.finish, answer.usage.context, answer.turn_id) == (Finish.CANCELLED, 0, None)
        b.gate.open()
        await first
        assert "Second" not in text_of(b.ids())
        await b.check()


async def test_cancel_while_the_model_loads(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        hold = asyncio.Event()
        loop = asyncio.get_running_loop()
        busy = b.app.registry.services.worker.submit(
            lambda _backend: asyncio.run_coroutine_threadsafe(hold.wait(), loop).result()
        )
        task, job = b.begin("Q")
        await asyncio.sleep(0)
        job.cancel()
        assert (await task).finish is Finish.CANCELLED
        hold.set()
        await asyncio.wrap_future(busy)
        assert (await b.ask("R")).finish is Finish.COMPLETE
        assert "Q" not in [e.text for e in b.entries()]


@pytest.mark.parametrize(("kind", "after", "kept"), [("prefill", 0, ""), ("decode", 0, ""), ("decode", 3, "ab")])
async def test_error_of_the_model_ends_the_turn_alone(tmp_path: Path, kind: str, after: int, kept: str) -> None:
    async with bench(tmp_path, replies=["abcdef", "fine"]) as b:
        b.gate.fail(kind, after)
        answer = await b.ask("Q")
        assert (answer.finish, answer.error, answer.text) == (Finish.ERROR, "RuntimeError: boom", kept)
        assert (answer.turn_id is None) == (kept == "")
        await b.check()
        after_it = await b.ask("R")
        assert after_it.finish is Finish.COMPLETE
        await b.check()
        assert text_of(b.ids()).count("<|im_start|>assistant") == (2 if kept else 1)


async def test_times_and_dates_never_reach_the_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = []
    for name, zone in (("a", "UTC"), ("b", "Asia/Tokyo")):
        monkeypatch.setenv("TZ", zone)
        (tmp_path / name).mkdir()
        async with bench(tmp_path / name, replies=["x"]) as b:
            (b.project / "f.py").write_text("f = 1\n")
            await b.ask("Q", path=str(b.project / "f.py"))
            ids.append(b.ids())
    assert ids[0] == ids[1]
    assert str(tmp_path) not in text_of(ids[0])


async def test_full_context_opens_a_new_epoch_with_the_file_told_anew(tmp_path: Path) -> None:
    async with bench(tmp_path, context_tokens=1024, replies=["r" * 40] * 20) as b:
        file = b.project / "a.py"
        file.write_text("value = 1\n")
        session = await b.session()
        for number in range(12):
            answer = await b.ask(f"Question {number} " + "." * 60, path=str(file))
            assert answer.finish is Finish.COMPLETE
            assert len(b.ids()) <= 1024
            await b.check()
        assert session.conversation.epoch > 0
        note = "Note: earlier parts of this conversation are not shown, for want of room.\n"
        assert text_of(b.ids()).startswith(f"{SYSTEM}{note}File a.py:\n```python\nvalue = 1\n```\n")
        assert answer.usage.plan in ("live", "cold")


async def test_question_that_can_never_fit_is_one_line_and_leaves_no_trace(tmp_path: Path) -> None:
    async with bench(tmp_path, context_tokens=1024) as b:
        await b.ask("Short")
        before = b.ids()
        with pytest.raises(QuestionError, match=r"tokens; scripted reads 1,024: ask about a smaller part\.$"):
            await b.ask("y" * 2000)
        assert b.ids() == before
        assert (await b.ask("Next")).usage.live == len(before)


async def test_thinking_is_turned_on_and_off_in_the_middle_of_a_conversation(tmp_path: Path) -> None:
    from tests.support.thinking import ThinkingBackend

    async with bench(tmp_path, make=ThinkingBackend) as b:
        await b.ask("A")
        old = b.ids()
        assert "<think>\n\n</think>" in text_of(old)
        b.settings = replace(b.settings, model=replace(b.settings.model, thinking=True))
        await b.restart()
        usage = (await b.ask("B")).usage
        assert b.ids()[: len(old)] == old
        assert "<think>\n\n</think>" not in text_of(b.ids()[len(old) :])
        assert (usage.restored, (await b.session()).conversation.epoch) == (len(old), 0)


async def test_thinking_that_the_opening_names_belongs_to_the_conversation(tmp_path: Path) -> None:
    """As SmolLM3, whose system message says which mode is on: under another one a new epoch begins."""
    from tests.support.thinking import OpeningBackend

    async with bench(tmp_path, make=OpeningBackend) as b:
        await b.ask("A")
        b.settings = replace(b.settings, model=replace(b.settings.model, thinking=True))
        await b.restart()
        await b.ask("B")
        assert text_of(b.ids()).startswith("<|im_start|>system\nThinking: on\n")
        assert "A" not in [e.text for e in b.entries()]
        assert (await b.session()).conversation.epoch == 1


async def test_conversations_are_apart_and_answers_do_not_wait_for_each_others_turns(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    async with bench(tmp_path, replies=["aa", "bb"]) as b:
        b.gate.hold("prefill")
        first, _ = b.begin("First")
        await b.gate.reached()
        second, _ = b.begin("Second", root=other)
        await waiting(b)
        b.gate.move("decode", 4)  # the first reply takes three passes: this is inside the second one
        answer = await first
        assert answer.text == "aa"
        await b.gate.reached()
        assert not second.done()
        b.gate.open()
        assert (await second).text == "bb"
        assert "Second" not in text_of(b.ids())
        assert "First" not in text_of(b.ids(other))


async def waiting(b: Bench) -> None:
    """Until a call waits behind the running one."""
    worker = b.app.registry.services.worker
    await until(lambda: worker.waiting)
