"""The next epoch: when it is prepared and what it begins with."""

from __future__ import annotations

from pathlib import Path

import pytest

from qmlx_lsp.engine.scripted import ScriptedBackend
from qmlx_lsp.engine.scripted_tokenizer import END_OF_TURN
from qmlx_lsp.transcript.entry import Finish, Kind
from qmlx_lsp.transcript.epoch import SUMMARY_REQUEST
from tests.support.bench import bench, long, quick, text_of
from tests.support.nearly_full import (
    DUE,
    HEAD,
    HEADER,
    HEADER_TOKENS,
    LIMIT,
    LONG,
    NEXT_TOKENS,
    SHORT,
    SYSTEM,
    SYSTEM_TOKENS,
    epoch,
    epochs,
    made,
    nearly_full,
)
from tests.support.waiting import until


@pytest.mark.parametrize("short_by", [1, 0])
async def test_prepared_at_three_quarters_and_not_a_token_before(tmp_path: Path, short_by: int) -> None:
    question = "q" * (DUE - short_by - SYSTEM_TOKENS - HEADER_TOKENS - len("one") - 1)
    async with made(tmp_path) as b:
        await b.ask(question)
        assert len(b.ids()) == DUE - short_by
        before = len(b.gate.passes)
        await b.rest()
        assert b.idle.seconds == [2.0]
        assert epochs(b) == (1 if short_by else 2)
        assert (len(b.gate.passes) > before) == (not short_by)
        await b.check()


async def test_next_epoch_begins_with_summary_files_and_last_turns(tmp_path: Path) -> None:
    async with made(tmp_path, "SUM\n\n") as b:
        (b.project / "a.py").write_text("a = 1\n")
        await b.ask(LONG)
        await b.ask(SHORT, path=str(b.project / "a.py"))
        (b.project / "a.py").write_text("a = 2\n")
        old = b.ids()
        await b.rest()
        session = await b.session()
        assert session.conversation.epoch == 1
        assert session.conversation.opening == len(b.ids())
        # The first turn is too long to be carried.
        assert text_of(b.ids()) == (
            f"{SYSTEM}{HEAD}SUM\nFile a.py:\n```python\na = 2\n```\n{SHORT}{HEADER}two<|im_end|>"
        )
        assert [e.kind for e in b.entries()] == [
            Kind.SYSTEM, Kind.CONTEXT, Kind.CONTEXT, Kind.QUESTION, Kind.ASSISTANT
        ]  # fmt: skip
        assert [i for e in epoch(b) for i in e.ids] == old
        assert session.told == b.app._log.told(session.conversation) == {"a.py": "a = 2\n"}
        assert (session.live_position, session.saved) == (len(b.ids()), len(b.ids()))
        assert b.notices == []
        await b.check()
        store = b.app.registry.services.store
        assert store is not None
        found = store.find(
            session.model.info.fingerprint, session.transcript.log, needs_snapshot=True, limit=len(b.ids())
        )
        assert found[0].position == len(b.ids())
        held = store._catalog.leases.held
        await until(lambda: held() == set(found[0].files))  # and nothing of the old epoch any more


async def test_who_asks_next_waits_for_nothing(tmp_path: Path) -> None:
    async with made(tmp_path, "SUM", "three") as b:
        await nearly_full(b)
        await b.rest()
        opening = len(b.ids())
        usage = (await b.ask("New?")).usage
        assert (usage.plan, usage.live, usage.reason) == ("live", opening, None)
        assert usage.prefilled == NEXT_TOKENS + len("New?") + HEADER_TOKENS
        await b.check()


@pytest.mark.parametrize("hybrid", [True, False])
async def test_after_a_restart_the_opening_comes_from_the_disk(tmp_path: Path, hybrid: bool) -> None:
    async with made(tmp_path, "SUM", hybrid=hybrid) as b:
        await nearly_full(b)
        await b.rest()
        opening = b.ids()
        await b.restart(replies=["three"])
        usage = (await b.ask("New?")).usage
        assert (usage.plan, usage.restored) == ("restore", len(opening))
        assert b.ids()[: len(opening)] == opening
        await b.check()


async def test_an_answer_after_the_step_is_that_of_a_cold_run(tmp_path: Path) -> None:
    """The scripted model's reply names a digest of everything it has read."""
    async with made(tmp_path, "SUM") as b:
        await nearly_full(b)
        await b.rest()
        answer = await b.ask("New?")
        cold = ScriptedBackend()
        state = cold.new_state()
        cold.prefill(state, b.ids()[: b.entries()[-1].start + HEADER_TOKENS])
        assert answer.text == bytes(i for i in cold._reply(state) if i < 256).decode()


async def test_carried_replies_have_the_ids_that_were_generated(tmp_path: Path) -> None:
    """One was cancelled inside a character, one ended by length; a withdrawn question is not carried."""
    async with made(tmp_path, "ab€cd", "abcdef", "SUM") as b:
        await nearly_full(b)
        await b.cancelled("Q1", "decode", 4)
        await b.ask("Q2", max_tokens=3)
        await b.cancelled(long("Withdrawn"), "prefill")
        before = [e for e in b.entries() if e.kind is Kind.ASSISTANT][-3:]
        assert before[1].ids[HEADER_TOKENS:] == (ord("a"), ord("b"), *"€".encode()[:2])
        await b.rest()
        assert epochs(b) == 2
        after = [e for e in b.entries() if e.kind is Kind.ASSISTANT]
        assert [(e.ids, e.finish, e.text) for e in after] == [(e.ids, e.finish, e.text) for e in before]
        assert [e.finish for e in after] == [Finish.COMPLETE, Finish.CANCELLED, Finish.LENGTH]
        said = b"".join(bytes([i]) if i < 256 else b"#" for i in b.ids()[SYSTEM_TOKENS:])
        cut = "ab€".encode()[:-1]
        assert said == (
            f"{HEAD}SUM\n{SHORT}#\n#assistant\ntwo#\n#user\nQ1#\n#assistant\n".encode() + cut +
            b"#\n#user\nQ2#\n#assistant\nabc"
        )  # fmt: skip
        assert "Withdrawn" not in [e.text for e in b.entries()]
        await b.check()


@pytest.mark.parametrize(
    ("turns", "share", "carried"),
    [(3, 0.5, ["B", "C", "D"]), (1, 0.5, ["D"]), (0, 0.5, []), (9, 200 / LIMIT, ["D"]), (9, 199 / LIMIT, [])],
)
async def test_last_turns_stay_within_their_number_and_share(
    tmp_path: Path, turns: int, share: float, carried: list[str]
) -> None:
    settings = {"context": {"carry_turns": turns, "carry_share": share + 1e-9}}
    async with made(tmp_path, "B", "C", "D" * (200 - NEXT_TOKENS - 1 - HEADER_TOKENS - 1), settings=settings) as b:
        for question in (LONG, "A", "B", "C", "D"):
            await b.ask(question)
        assert b.entries()[-1].end - b.entries()[-2].start == 200
        await b.rest()
        assert [e.text for e in b.entries() if e.kind is Kind.QUESTION] == carried


async def test_files_open_first_then_those_spoken_of_last_within_their_share(tmp_path: Path) -> None:
    """There is room for one of 150 bytes beside the open one."""
    settings = {"context": {"epoch_files_share": 300 / LIMIT}}
    async with made(tmp_path, "two", "two", "SUM", settings=settings) as b:
        for name in ("a", "b", "c"):
            (b.project / f"{name}.py").write_text(name * 149 + "\n")
        for name in ("b", "a", "c"):
            await b.ask(SHORT, path=str(b.project / f"{name}.py"))
        await b.ask(LONG[:2_300])
        uri = (b.project / "b.py").as_uri()
        b.app.registry.mirror.open("editor", uri, "python", 1, "opened\n")
        await b.rest()
        assert epochs(b) == 2
        shown = [e.path for e in b.entries() if e.kind is Kind.CONTEXT]
        assert shown == [None, "c.py", "b.py"]  # the most important one stands last
        assert "opened" in text_of(b.ids())


async def test_summary_of_a_thinking_model_is_what_follows_its_thoughts(tmp_path: Path) -> None:
    from tests.support.thinking import ThinkingBackend

    settings = {"model": {"name": "scripted", "thinking": True}}
    thought = "<think>\nno\n</think>\n\nSUM"
    async with made(tmp_path, thought, make=ThinkingBackend, settings=settings) as b:
        await nearly_full(b)
        await b.rest()
        assert b.entries()[1].text == f"{HEAD}SUM\n"


async def test_share_of_one_turns_it_off(tmp_path: Path) -> None:
    async with made(tmp_path, settings={"context": {"epoch_share": 1.0}}) as b:
        await nearly_full(b)
        await b.rest()
        assert epochs(b) == 1


async def test_nothing_of_the_old_epoch_is_lost_and_epochs_go_on(tmp_path: Path) -> None:
    async with made(tmp_path, *["x" * 30] * 60) as b:
        seen: list[list[int]] = []
        for number in range(40):
            await b.ask(f"{number} " + "q" * 400)
            before, known = b.ids(), epochs(b)
            await b.rest()
            assert len(b.ids()) <= LIMIT
            if epochs(b) > known:
                seen.append(before)
            await b.check()
        assert len(seen) >= 3
        assert [[i for e in epoch(b, n) for i in e.ids] for n in range(len(seen))] == seen
        assert b.notices == []


async def test_a_summary_speaks_of_all_that_was_said(tmp_path: Path) -> None:
    """The live state is behind the log, for a question was cancelled while it was read."""
    async with bench(tmp_path, quick(), context_tokens=LIMIT, replies=["one"]) as b:
        await b.ask(LONG)
        await b.cancelled("x" * 300, "prefill")
        session = await b.session()
        position, told = session.live_position, len(b.ids())
        assert position < told
        withdrawn = len("\n\n(The question above was withdrawn before it was answered.)\n")
        read = told + withdrawn + len(SUMMARY_REQUEST) + HEADER_TOKENS
        await b.rest()
        assert b.entries()[1].text.startswith(f"{HEAD}I have read {read} tokens")


def test_end_of_turn_is_what_the_template_ends_with() -> None:
    """What the texts above rest on."""
    assert text_of([END_OF_TURN]) == "<|im_end|>"
