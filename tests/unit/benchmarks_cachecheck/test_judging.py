"""What a server had before, what its time says, and the verdicts: each with numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.cachecheck.conversation import CUT, PREFILL_CUT, Turn
from benchmarks.cachecheck.infer import Cold, Seen, judge
from benchmarks.cachecheck.prefix import Had, common_chars, had
from benchmarks.cachecheck.verdict import (
    Bug,
    Finding,
    Ruling,
    Verdict,
    continued,
    overall,
    prefill_cut,
    reply_cut,
    size_of,
)

COLD = [Cold(1_000, 2.0), Cold(500, 1.1)]


def turn(
    prompt: int | None, cached: int | None, *, out: int | None = 8, ttft: float | None = 0.1, **more: Any
) -> Turn:
    return Turn(prompt, cached, ttft, 1.0, "text", more.pop("finish", "length"), out, **more)


# --- what it had ----------------------------------------------------------------------------------------------------


def test_a_target_that_keeps_the_history_had_prompt_and_reply() -> None:
    found = had(turn(990, 970), turn(950, 0, out=20))
    assert found == Had(970, 970, False, 8, "stated: prompt and reply of the turn before")


def test_a_conversation_that_goes_on_had_the_prompt_and_perhaps_the_reply() -> None:
    before = turn(950, 0, out=20, sent="abc")
    found = had(turn(990, 970, sent="abcdef"), before)
    assert found is not None
    assert (found.whole, found.same, found.changed) == (970, 950, False)


def test_the_same_request_had_everything() -> None:
    found = had(turn(950, 949, sent="abc"), turn(950, 0, sent="abc"))
    assert found is not None
    assert (found.whole, found.same, found.changed) == (950, 950, False)


def test_a_change_is_scaled_by_the_servers_own_ratio() -> None:
    before = turn(1_000, 0, out=0, sent="a" * 3_000 + "b" * 1_000)
    found = had(turn(1_050, 0, sent="a" * 3_000 + "c" * 1_200), before)
    assert found is not None
    assert (found.whole, found.same, found.changed) == (1_000, 750, True)
    assert found.slack == 52  # 5 % of 1,050
    small = had(turn(105, 0, sent="ax"), turn(100, 0, sent="ab"))
    assert small is not None
    assert small.slack == 32


def test_it_never_had_more_than_the_prompt() -> None:
    found = had(turn(940, 0, sent="abX"), turn(950, 0, out=20, sent="abc"))
    assert found is not None
    assert found.same <= found.whole <= 940


@pytest.mark.parametrize(("now", "then"), [(None, 950), (950, None)])
def test_without_stated_prompts_nothing_is_said(now: int | None, then: int | None) -> None:
    assert had(turn(now, None, sent="ab"), turn(then, None, sent="a")) is None


@pytest.mark.parametrize(("one", "other", "chars"), [("", "", 0), ("ab", "ab", 2), ("ab", "abc", 2), ("xb", "ab", 0)])
def test_common_chars(one: str, other: str, chars: int) -> None:
    assert common_chars(one, other) == common_chars(other, one) == chars


# --- what time says -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ttft", "seen"),
    [(0.7, Seen.REUSED), (0.74, Seen.UNCLEAR), (1.5, Seen.UNCLEAR), (1.6, Seen.AGAIN), (9.0, Seen.AGAIN)],
)
def test_shares_of_a_cold_turns_time(ttft: float, seen: Seen) -> None:
    # 2.0 and 2.2 ms a token: 2.1 s for 1,000 tokens; shares of 0.33, 0.352, 0.71, 0.76 and 4.3.
    found = judge(ttft, 1_000, COLD)
    assert found.expected_s == pytest.approx(2.1)
    assert found.seen is seen


@pytest.mark.parametrize(
    ("ttft", "size", "cold", "why"),
    [
        (None, 1_000, COLD, "no time"),
        (0.1, None, COLD, "no time"),
        (0.1, 1_000, COLD[:1], "1 cold turns"),
        (0.1, 1_000, [Cold(1_000, 1.0), Cold(1_000, 2.6)], "factor of 2.6"),
        (0.1, 1_000, [Cold(1_000, 0.0), Cold(1_000, 0.0)], "factor of inf"),
        (0.01, 100, COLD, "0.21 s only"),
    ],
)
def test_what_cannot_be_told_has_a_reason(ttft: float | None, size: int | None, cold: list[Cold], why: str) -> None:
    found = judge(ttft, size, cold)
    assert found.seen is Seen.UNCLEAR
    assert why in found.reason


# --- verdicts -------------------------------------------------------------------------------------------------------

BEFORE = turn(950, 0, out=20, sent="abc")  # the next prompt begins with 950 tokens, and 970 with the reply


@pytest.mark.parametrize(
    ("cached", "verdict", "words"),
    [
        (970, Verdict.SOUND, "nothing was read again: 20 of 990"),
        (962, Verdict.SOUND, "nothing was read again"),  # 8 are no difference
        (961, Verdict.SOUND, "only the last reply was read again: 29 of 990"),
        (942, Verdict.SOUND, "only the last reply"),
        (941, Verdict.BUG, "9 tokens were read again although the text is the same: 49 of 990"),
        (0, Verdict.BUG, "950 tokens were read again although the text is the same: 990 of 990"),
    ],
)
def test_a_conversation_that_goes_on(cached: int, verdict: Verdict, words: str) -> None:
    ruling = continued(turn(990, cached, sent="abcdef"), BEFORE, COLD)
    assert ruling.verdict is verdict
    assert words in ruling.sentence
    assert ruling.source == "stated"


@pytest.mark.parametrize(
    ("cached", "verdict", "words"),
    [
        (1_000, Verdict.SOUND, "nothing was read again"),  # the template does not show what was changed
        (750, Verdict.SOUND, "the client changed what was said, so a read from there on is right: 300 of 1,050"),
        (698, Verdict.SOUND, "the client changed what was said"),  # 52 are no difference
        (697, Verdict.UNKNOWN, "same up to about token 750 and was read from token 697 on"),
        (0, Verdict.UNKNOWN, "a state that cannot be cut"),
    ],
)
def test_a_client_that_changes_what_was_said(cached: int, verdict: Verdict, words: str) -> None:
    before = turn(1_000, 0, out=0, sent="a" * 3_000 + "b" * 1_000)
    ruling = continued(turn(1_050, cached, sent="a" * 3_000 + "c" * 1_200), before, COLD)
    assert ruling.verdict is verdict
    assert words in ruling.sentence


@pytest.mark.parametrize(
    ("sent", "ttft", "verdict"),
    [
        ("abc" * 200 + "d" * 400, 0.2, Verdict.SOUND),  # goes on, quick
        ("abc" * 200 + "d" * 400, 1.9, Verdict.BUG),  # goes on, slow
        ("abc" * 200 + "d" * 400, 1.0, Verdict.UNKNOWN),
        ("x" + "abc" * 333, 1.9, Verdict.SOUND),  # changed at the beginning
        ("abc" * 180 + "x" * 460, 1.9, Verdict.UNKNOWN),  # changed behind the middle
        ("abc" * 180 + "x" * 460, 0.2, Verdict.SOUND),
    ],
)
def test_a_server_that_states_nothing(sent: str, ttft: float, verdict: Verdict) -> None:
    before = turn(None, None, sent="abc" * 200)
    ruling = continued(turn(None, None, ttft=ttft, sent=sent), before, COLD)  # 1,000 characters: 2.1 s cold
    assert ruling.verdict is verdict
    assert ruling.source == ("unknown" if verdict is Verdict.UNKNOWN else "inferred")


NO_LOSS = Ruling(Verdict.SOUND, "", "stated", 0)
CUT_TURN = turn(1_000, None, out=30, finish=CUT, sent="abcd")


@pytest.mark.parametrize(
    ("cached", "prompt", "reply"),
    [
        (1_030, Verdict.SOUND, Verdict.SOUND),
        (1_022, Verdict.SOUND, Verdict.SOUND),
        (1_021, Verdict.SOUND, Verdict.BUG),
        (992, Verdict.SOUND, Verdict.BUG),
        (991, Verdict.BUG, Verdict.BUG),
    ],
)
def test_a_cut_reply(cached: int, prompt: Verdict, reply: Verdict) -> None:
    rulings = reply_cut(turn(1_050, cached, sent="abcdef"), CUT_TURN, NO_LOSS, COLD)
    assert [ruling.verdict for ruling in rulings] == [prompt, reply]


def test_a_reply_that_is_read_again_cut_or_not_is_no_loss_by_the_cut() -> None:
    uncut = Ruling(Verdict.SOUND, "", "stated", 30)
    _, reply = reply_cut(turn(1_050, 1_000, sent="abcdef"), CUT_TURN, uncut, COLD)
    assert reply.verdict is Verdict.SOUND
    assert reply.sentence == "30 of the 30 tokens of the cut reply were read again, as after a reply that was not cut"


@pytest.mark.parametrize("out", [None, 16])
def test_too_little_of_a_reply_tells_nothing(out: int | None) -> None:
    cut = turn(1_000, None, out=out, finish=CUT)
    _, reply = reply_cut(turn(1_050, 1_000), cut, NO_LOSS, COLD)
    assert reply.verdict is Verdict.UNKNOWN


def test_a_cut_reply_without_stated_tokens_is_judged_by_time() -> None:
    cut = turn(None, None, finish=CUT, sent="abc" * 200)
    slow = turn(None, None, ttft=2.0, sent="abc" * 200 + "d" * 400)
    assert [ruling.verdict for ruling in reply_cut(slow, cut, NO_LOSS, COLD)] == [Verdict.BUG, Verdict.UNKNOWN]


HUNG_UP = turn(None, None, ttft=None, finish=PREFILL_CUT)
COLD_TURN = turn(1_000, 40, ttft=2.0)


@pytest.mark.parametrize(
    ("cached", "verdict", "words"),
    [
        (540, Verdict.SOUND, "500 of 1,000 tokens were kept"),  # 40 were there before
        (140, Verdict.SOUND, "100 of 1,000"),
        (139, Verdict.BUG, "nothing of the cut prefill was kept: 861 of 1,000"),
        (0, Verdict.BUG, "1,000 of 1,000 tokens computed; first token after 0.50 of a cold turn's time"),
    ],
)
def test_a_cut_prefill(cached: int, verdict: Verdict, words: str) -> None:
    ruling = prefill_cut(HUNG_UP, turn(1_000, cached, ttft=1.0), COLD_TURN, COLD)
    assert ruling.verdict is verdict
    assert words in ruling.sentence


def test_a_prefill_that_was_not_cut_or_is_too_short_tells_nothing() -> None:
    again = turn(1_000, 0)
    assert prefill_cut(turn(1_000, 0), again, COLD_TURN, COLD).verdict is Verdict.UNKNOWN
    assert prefill_cut(HUNG_UP, again, turn(1_000, 0, ttft=0.2), COLD).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("ttft", "verdict"), [(0.1, Verdict.SOUND), (2.0, Verdict.UNKNOWN), (1.0, Verdict.UNKNOWN)])
def test_a_cut_prefill_by_time_alone(ttft: float, verdict: Verdict) -> None:
    again = turn(None, None, ttft=ttft, sent="a" * 1_000)
    assert prefill_cut(HUNG_UP, again, COLD_TURN, COLD).verdict is verdict


def test_size_is_tokens_or_characters() -> None:
    assert size_of(turn(7, None, sent="abc")) == 7
    assert size_of(turn(None, None, sent="abc")) == 3
    assert size_of(turn(None, None)) is None


def test_overall() -> None:
    def finding(bug: Bug, verdict: Verdict, name: str = "a") -> Finding:
        return Finding(bug, name, Ruling(verdict, ""))

    found = overall([
        finding(Bug.STABILITY, Verdict.SOUND), finding(Bug.STABILITY, Verdict.UNKNOWN),
        finding(Bug.STABILITY, Verdict.IMPOSSIBLE),
        finding(Bug.INTERRUPT, Verdict.UNKNOWN), finding(Bug.INTERRUPT, Verdict.IMPOSSIBLE),
        finding(Bug.POISON, Verdict.BUG, "x"), finding(Bug.POISON, Verdict.SOUND),
        finding(Bug.POISON, Verdict.BUG, "y"),
    ])  # fmt: skip
    assert {bug.value: (ruling.verdict.value, ruling.sentence) for bug, ruling in found.items()} == {
        "stability": ("sound", "1 sound, 1 unknown, 1 impossible"),
        "interrupt": ("unknown", "1 unknown, 1 impossible"),
        "poison": ("bug", "x; y (1 sound, 2 bug)"),
    }
