"""Every template, thinking and not, over a matrix of histories: what is appended is what the template would write.

The oracle is transformers' rendering of the same conversation with the same variables. A template promises equality
where its own rendering of a longer history begins with that of the shorter one; there, ours must be equal to it,
byte for byte. Where it rewrites its history, what we append must still be what it writes behind the newest reply,
and what was generated must stand as it was generated.
"""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from qmlx_lsp.transcript.channels import Messages
from qmlx_lsp.transcript.entry import Finish, Kind
from qmlx_lsp.transcript.gap import Gap, head
from qmlx_lsp.transcript.suffix import CUT_CALL, WITHDRAWN, Place, Tail
from qmlx_lsp.transcript.within import Within
from tests.corpus.names import NAMES
from tests.support.served import OWN, REAL, Served, Teller, fix_the_clock, serve

CALL_ID = "callaaaa1"
# Templates that the table of a survey of ours marks as rewriting nothing of a plain chat.
KEEPING = {
    "Apertus-8B-Instruct", "GigaChat3-10B-A1.8B", "GigaChat3.1-10B-A1.8B", "Kimi-K2-Instruct", "LFM2-8B-A1B",
    "LFM2.5-Instruct", "MiMo-VL", "Mistral-Small-3.2-24B-Instruct-2506",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
    "Qwen-Qwen2.5-7B-Instruct", "Qwen3-Coder", "fireworks-ai-llama-3-firefunction-v2",
    "ibm-granite-granite-3.3-2B-Instruct", "ibm-granite-granite-4.0", "ibm-granite-granite-4.1",
    "meetkai-functionary-medium-v3.1", "microsoft-Phi-3.5-mini-instruct",
    "mistralai-Ministral-3-14B-Reasoning-2512", "moonshotai-Kimi-K2", "unsloth-Apriel-1.5",
    "unsloth-mistral-Devstral-Small-2507",
}  # fmt: skip


@pytest.fixture(params=[*NAMES, *OWN])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[False, True], ids=["plain", "thinking"])
def served(name, request, templates, real, monkeypatch) -> Served:
    fix_the_clock(monkeypatch)
    tokenizer = real(REAL[name][0]) if name in REAL else None
    source = templates[name] if name in templates else tokenizer.config["chat_template"]
    return serve(name, source, thinking=request.param, real=tokenizer)


def end(served: Served) -> list[int]:
    """What a model writes to end a complete reply, if that is something that stays in the log."""
    after = served.fragments.after_reply
    return next((list(after[: at + 1]) for at, token in enumerate(after) if token in served.eos_ids), [])


def said(served: Served, text: str) -> list[int]:
    return served.codec.encode_data(text)


def asked(served: Served, question: str = "What is it?") -> Teller:
    teller = Teller(served)
    teller.tell(Kind.QUESTION, question)
    return teller


def check_appended(teller: Teller) -> None:
    """What stands behind the newest reply is what the template writes there."""
    rendered = teller.served.reference(teller.messages)
    assert rendered.endswith(teller.appended), (rendered[-300:], teller.appended)


# --- plain --------------------------------------------------------------------------------------------------------


def test_plain_turns_and_context_blocks(served):
    teller = asked(served)
    renderings = [served.reference(teller.messages)]
    assert teller.text(teller.ids) == renderings[0]
    for number, blocks in enumerate(([], ["File a.py:\nx = 1\n", "File b.py:\ny = 2\n"], ["Changes:\n-x\n+z\n"])):
        answered = f"It is {number}."
        teller.reply([*answer(teller), *said(served, answered)], Finish.COMPLETE, end(served), content=answered)
        for block in blocks:
            teller.tell(Kind.CONTEXT, block)
        teller.tell(Kind.QUESTION, f"And {number}?")
        check_appended(teller)
        renderings.append(served.reference(teller.messages))
    kept = all(
        longer.startswith(f"{shorter}It is {number}.")
        for number, (shorter, longer) in enumerate(pairwise(renderings))
    )
    assert kept or served.name not in KEEPING
    if kept:
        assert teller.text(teller.ids) == renderings[-1]
        assert teller.ids == served.plain.encode(renderings[-1], add_special_tokens=False).ids


def test_a_model_that_stops_by_a_token_of_its_own(served):
    """Such a token is not read; where it was, the template's own end follows it all the same."""
    spare = sorted(served.renderer.spare_ids)
    assert spare or served.name not in REAL or len(served.eos_ids) == 1
    for token in spare:
        teller = asked(served)
        teller.reply([*answer(teller), *said(served, "Done.")], Finish.COMPLETE, [token], content="Done.")
        teller.tell(Kind.QUESTION, "More?")
        rendered = served.reference(teller.messages)
        appended = teller.appended.removeprefix(served.codec.decode([token]))
        assert rendered.endswith(appended)


# --- tools --------------------------------------------------------------------------------------------------------

TRICKY = 'line "q" \\ é\n<b> & {"a": 1}'


def calling(count: int) -> dict[str, object]:
    calls = [
        {"id": f"callaaaa{n}", "type": "function", "function": {"name": "look", "arguments": {"path": "a.py"}}}
        for n in range(1, count + 1)
    ]
    return {"content": "", "tool_calls": calls}


@pytest.mark.parametrize("results", [1, 2])
def test_tool_results(served, results):
    teller = asked(served)
    text = '<call>{"name": "look", "arguments": {"path": "a.py"}}</call>'
    told = served.fragments.results
    # Some templates cannot show a call, others only one at a time: there the result follows what the model wrote.
    ways = [calling(results), calling(1), {}]
    ways += [json.loads(json.dumps(way)) for way in ways[:2]]
    for way in ways[3:]:
        for call in way["tool_calls"]:
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    teller.reply([*answer(teller), *said(served, text)], Finish.COMPLETE, content=text)
    for number in range(1, results + 1):
        teller.result("look", TRICKY, f"callaaaa{number}")
    ids = teller.ids
    assert served.codec.decode(ids[: teller.since]).endswith(text)
    if told is None:
        assert served.codec.decode(ids[teller.since :]) == (
            served.codec.decode(served.fragments.after_reply)
            + f"Result of look:\n{TRICKY}\n" * results
            + served.codec.decode(served.fragments.prompt)
        )
        return
    assert any(endswith(teller, way) for way in ways), teller.appended
    teller.reply([*answer(teller), *said(served, "Thus.")], Finish.COMPLETE, end(served), content="Thus.")
    teller.tell(Kind.QUESTION, "And now?")
    check_appended_by(teller, ways)


def endswith(teller: Teller, call: dict[str, object]) -> bool:
    messages = list(teller.messages)
    at = max(n for n, message in enumerate(messages) if message["role"] == "assistant")
    at = next(n for n, message in enumerate(messages) if message["role"] == "assistant" and n <= at)
    messages[at] = {**messages[at], **call}
    try:
        rendered = teller.served.reference(messages)
    except Exception:  # noqa: BLE001 - whatever a template raises, it does not render this
        return False
    return rendered.endswith(teller.appended)


def check_appended_by(teller: Teller, ways: list[dict[str, object]]) -> None:
    assert any(endswith(teller, way) for way in ways), teller.appended


def test_question_behind_a_result_that_was_not_answered(served):
    """Cancelled before the reply to a result began."""
    teller = asked(served)
    teller.reply([*answer(teller), *said(served, "<call>")], Finish.COMPLETE)
    teller.result("look", "found", CALL_ID)
    before = teller.transcript.log.ids()
    teller.tell(Kind.QUESTION, "Never mind. Why?")
    assert teller.transcript.log.ids(0, len(before)) == before
    added = served.codec.decode(teller.transcript.log.ids(len(before)))
    assert added.endswith("Never mind. Why?")
    told = served.fragments.results
    assert added.count("Never") == 1
    if told is not None:
        assert len(added) > len("Never mind. Why?")


# --- cut off --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "finish"), [(1, Finish.CANCELLED), (25, Finish.CANCELLED), (25, Finish.LENGTH)])
def test_reply_cut_off_in_its_text(served, count, finish):
    teller = asked(served)
    ids = said(served, "This is a rather long answer about many things, with all that one would like to know.")
    teller.reply([*answer(teller), *ids[:count]], finish, content=served.codec.decode(ids[:count]))
    teller.tell(Kind.QUESTION, "Go on?")
    check_appended(teller)


def thinking_marks(served: Served) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return served.fragments.think_start, served.fragments.think_end


HEADS = {
    "openai-gpt-oss-120b": "<|channel|>final<|message|>",
    "muse-glimmer": " to=user<|message|>",
    "upstage-Solar-Open-100B": "<|content|>",
}


def answer(teller: Teller) -> list[int]:
    """What a model writes before its answer: the end of its thinking, or the head of a message."""
    served = teller.served
    if served.name == "Kimi-K3" and served.thinking:
        return served.codec.encode_fragment("Hm.<|close|>think<|sep|><|open|>response<|sep|>")
    if served.name in HEADS:
        return served.codec.encode_fragment(HEADS[served.name])
    if served.renderer._within(teller.transcript.reply_header()) is Within.THOUGHT:
        return [*served.codec.encode_data("Hm."), *served.fragments.close_thinking]
    return []


def test_reply_that_ends_in_white_space(served):
    teller = asked(served)
    ids = [*answer(teller), *said(served, "def f():\n    ")]
    entry = teller.reply(ids, Finish.CANCELLED)
    teller.tell(Kind.QUESTION, "Go on?")
    assert served.codec.decode(entry.ids).endswith("def f():\n    ")
    assert served.codec.decode(served.fragments.after_reply).lstrip("\n") in teller.appended


def test_question_withdrawn_before_a_reply(served):
    teller = asked(served)
    before = teller.transcript.log.ids()
    teller.tell(Kind.QUESTION, "Something else?")
    added = served.codec.decode(teller.transcript.log.ids(len(before)))
    assert added == f"\n\n{WITHDRAWN}Something else?"


def test_end_token_sampled_at_the_very_cancel(served):
    if not end(served):
        return  # its models end by a token that never enters the log, or by text
    teller = asked(served)
    teller.reply([*answer(teller), *said(served, "Yes.")], Finish.CANCELLED, end(served), content="Yes.")
    teller.tell(Kind.QUESTION, "Sure?")
    check_appended(teller)


def test_reply_cut_off_while_thinking(served):
    start, stop = thinking_marks(served)
    if not start or not stop:
        return  # its models do not think, or in messages and tags of their own (see the tests of channels)
    teller = asked(served)
    header = teller.transcript.reply_header()
    begun = [] if served.renderer._within(header) is Within.THOUGHT else list(start)
    teller.reply([*begun, *said(served, "Let me see")], Finish.CANCELLED)
    teller.tell(Kind.QUESTION, "Quicker?")
    close, after = (
        served.codec.decode(part) for part in (served.fragments.close_thinking, served.fragments.after_reply)
    )
    assert served.codec.decode(stop) in close
    assert teller.appended.startswith(f"{close}{after}Quicker?")


def test_reply_cut_off_in_a_call(served):
    teller = asked(served)
    begun = served.codec.encode_fragment("<tool_call>")
    teller.reply([*answer(teller), *begun, *said(served, '{"name": "lo')], Finish.CANCELLED)
    with pytest.raises(ValueError, match="nothing has called"):
        teller.transcript.result("look", "x")
    teller.tell(Kind.QUESTION, "Do not?")
    assert teller.appended.count("</tool_call>") == (1 if served.name != "Kimi-K3" else 0)  # which has tags for it
    assert CUT_CALL + "Do not?" in teller.appended


def test_reply_cut_off_inside_a_character(served):
    teller = asked(served)
    ids = said(served, "😀🧿")
    teller.reply([*answer(teller), *ids[:-1]], Finish.CANCELLED)
    teller.tell(Kind.QUESTION, "What?")
    assert "What?" in teller.appended
    whole = served.codec.decode(teller.ids)
    assert served.codec.decode(served.fragments.after_reply).lstrip("\n").split("�")[-1] in whole


# --- data -----------------------------------------------------------------------------------------------------------


def test_data_holds_no_control_tokens(served):
    """A file that quotes the template's own marks adds as many control tokens as one that does not."""
    counts = []
    marks = " ".join(sorted(served.codec.controls)[:400])
    for text in ("nothing", marks, marks[: len(marks) // 2]):
        teller = asked(served)
        teller.reply([*answer(teller), *said(served, "Yes.")], Finish.COMPLETE, end(served))
        teller.tell(Kind.CONTEXT, f"File a.txt:\n{text}\n")
        teller.tell(Kind.QUESTION, f"Why {text}?")
        counts.append(sum(token in served.codec.control_ids for token in teller.ids))
        assert text in teller.text(teller.ids)
    assert counts[1:] == counts[:1] * 2


# --- inline completions: what stands before the text of an answer ---------------------------------------------------

GAP = Gap("a.py\n", "Go on with a.py.", "end\n", "```python\n")


def test_the_answer_begins_at_once(served):
    """What stands before an answer's text is what the template writes there, or a thought that ends at once."""
    found = served.renderer.answer_head(Tail(Place.ASKED))
    assert found[: len(served.fragments.prompt)] == list(served.fragments.prompt)
    assert served.renderer._within(found) is not Within.THOUGHT
    channels, text = served.fragments.channels, served.codec.decode(found)
    if isinstance(channels, Messages):  # the last message, where there are several
        text = served.codec.decode([channels.start]) + text.rpartition(served.codec.decode([channels.start]))[2]
    if channels is not None and served.name != "muse-glimmer":  # which names whom it is for, and need not
        messages = [{"role": "user", "content": "Xyz"}, {"role": "assistant", "content": "Plugh"}]
        assert text + "Plugh" in served.reference(messages, generate=False)


def test_nothing_is_in_the_head_but_the_turn_and_the_reply(served):
    """The head behind an open turn says what a question would, and opens the reply."""
    found = head(served.renderer, None, Tail(Place.OPEN), GAP, "Be exact.")
    assert found.ids == [*served.codec.encode_data(GAP.request), *served.renderer.answer_head(Tail(Place.ASKED))]
    first = head(served.renderer, None, Tail(), GAP, "Be exact.")
    assert [text for _, text, _ in first.said] == ["Be exact.", GAP.request]
