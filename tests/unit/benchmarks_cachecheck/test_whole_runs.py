"""Whole runs against a server with a bug built in: exactly that bug is found, and none in the sound one."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from benchmarks.cachecheck.__main__ import check, parse
from benchmarks.cachecheck.openai import OpenAI
from benchmarks.cachecheck.report import Report
from benchmarks.cachecheck.verdict import Bug, Finding, Verdict, overall
from tests.unit.benchmarks_cachecheck.fake_server import Fake, Faults, serving

TOKENS = 600
CHATS = 5
ARGUMENTS = ["URL", "--tokens", str(TOKENS), "--chats", str(CHATS)]
PREFILLS = {"prefill cut at 50 %, repeated at once", "prefill cut at 50 %, repeated after a wait"}
PROMPT, REPLY = "reply cut: what stood before it", "reply cut: the reply"
GOES_ON = "conversation goes on"


def run(fake: Fake, *more: str) -> Report:
    with serving(fake):
        restart = f"{sys.executable} -c 'import urllib.request as u; u.urlopen(\"{fake.url}/restart\")'"
        waited: list[float] = []
        target = OpenAI(fake.url, restart=restart, clock=fake.clock, sleep=waited.append, timeout_s=30)
        return check(target, parse([*ARGUMENTS, *more]), sleep=waited.append)


def of(report: Report, verdict: Verdict) -> set[str]:
    return {finding.scenario for finding in report.findings if finding.ruling.verdict is verdict}


def finding(report: Report, scenario: str) -> Finding:
    (found,) = [one for one in report.findings if one.scenario == scenario]
    return found


def verdicts(report: Report) -> dict[str, str]:
    return {bug.value: ruling.verdict.value for bug, ruling in overall(report.findings).items()}


@pytest.fixture(scope="module")
def sound() -> Report:
    return run(Fake())


def test_a_sound_server_has_none(sound: Report) -> None:
    report = sound
    assert of(report, Verdict.BUG) == set()
    assert verdicts(report) == {"stability": "sound", "interrupt": "sound", "poison": "sound"}
    assert of(report, Verdict.UNKNOWN) == {"thinking sent back", "thinking not sent back"}  # the model does not
    assert of(report, Verdict.IMPOSSIBLE) == {"after kill -9", "quota of 50% of what is stored, then kill -9"}
    assert not report.bugs


def test_what_the_client_changed_early_is_its_own_doing(sound: Report) -> None:
    date = finding(sound, "a date in the system text")
    assert date.ruling.verdict is Verdict.SOUND
    assert "the client changed what was said" in date.ruling.sentence
    assert date.turn is not None
    # The prompt is the same up to the weekday, behind "Today is " in the system text.
    assert date.turn.cached == len("\ue000system:You help people who write programs.\nToday is ")


@pytest.mark.parametrize(
    ("faults", "bugs"),
    [
        (Faults(moving=True), {GOES_ON}),
        (Faults(fields=True), {"message ids and names of fields that are no text"}),
        (Faults(cut_all=True), {PROMPT, REPLY}),
        (Faults(cut_reply=True), {REPLY}),
        (Faults(cut_prefill=True), PREFILLS),
        (Faults(entries=5), {f"after {CHATS} short chats"}),
        (Faults(entries=3), {f"after {CHATS} short chats", "after 3 other long ones"}),
        (Faults(forgets=True), {"after a restart"}),
    ],
    ids=["moving", "fields", "cut all", "cut reply", "cut prefill", "small", "tiny", "forgets"],
)
def test_the_bug_that_was_built_in_is_found_and_no_other(faults: Faults, bugs: set[str]) -> None:
    report = run(Fake(faults))
    assert of(report, Verdict.BUG) == bugs
    assert report.bugs


def test_a_server_that_reuses_nothing_has_one_bug_and_the_rest_is_unknown() -> None:
    report = run(Fake(Faults(moving=True)))
    assert verdicts(report) == {"stability": "bug", "interrupt": "unknown", "poison": "unknown"}
    assert "tells nothing" in finding(report, "after a restart").ruling.sentence


@pytest.mark.parametrize("dialect", ["llama.cpp", "ollama"])
def test_other_dialects_state_the_same(dialect: str, sound: Report) -> None:
    def counts(report: Report) -> list[tuple[Any, ...]]:
        return [(turn["step"], turn["prompt"], turn["cached"], turn["tokens_out"]) for turn in report.turns]

    assert counts(run(Fake(dialect=dialect))) == counts(sound)


@pytest.mark.parametrize("dialect", ["hidden", "silent"])
def test_a_server_that_states_nothing_is_judged_by_its_time(dialect: str) -> None:
    sound = run(Fake(dialect=dialect))
    assert of(sound, Verdict.BUG) == set()
    assert finding(sound, GOES_ON).ruling.verdict is Verdict.SOUND
    assert finding(sound, GOES_ON).ruling.source == "inferred"
    assert finding(sound, REPLY).ruling.verdict is Verdict.UNKNOWN
    small = run(Fake(Faults(entries=3), dialect=dialect), "--only", "poison")
    assert of(small, Verdict.BUG) == {f"after {CHATS} short chats", "after 3 other long ones"}
    assert {one.ruling.source for one in small.findings if one.ruling.verdict is Verdict.BUG} == {"inferred"}


def test_a_state_that_cannot_be_cut_is_no_bug_and_it_says_from_where_it_read() -> None:
    report = run(Fake(cuts=False), "--only", "stability")
    assert of(report, Verdict.BUG) == set()
    early = finding(report, "a line early in the context")
    assert early.ruling.verdict is Verdict.UNKNOWN
    assert "was read from token 0 on: right for a state that cannot be cut" in early.ruling.sentence
    blank = finding(report, "a blank at the end of an earlier message")
    assert blank.ruling.verdict is Verdict.SOUND  # it stands where a turn ended, and a state was kept


def test_thinking_is_tested_with_a_model_that_thinks() -> None:
    report = run(Fake(thinks=True), "--only", "stability")
    names = {"thinking sent back", "thinking not sent back"}
    assert {finding(report, name).ruling.verdict for name in names} == {Verdict.SOUND}


def test_tools_that_are_not_shown_are_not_tested() -> None:
    report = run(Fake(shows_tools=False), "--only", "stability")
    assert of(report, Verdict.UNKNOWN) == {
        "with tools, goes on", "ids of tool calls", "arguments of a tool call, serialised anew", "order of the tools",
        "thinking sent back", "thinking not sent back",
    }  # fmt: skip


def test_what_a_server_refuses_is_unknown_and_the_rest_goes_on() -> None:
    report = run(Fake(refuses="metadata"), "--only", "stability")
    fields = finding(report, "message ids and names of fields that are no text")
    assert fields.ruling.verdict is Verdict.UNKNOWN
    assert "unknown field metadata" in fields.ruling.sentence
    assert finding(report, "a date in the system text").ruling.verdict is Verdict.SOUND


def test_every_size_is_a_run_of_its_own() -> None:
    report = run(Fake(), "--tokens", "900", "--only", "poison")
    assert [found.size for found in report.findings if found.scenario == GOES_ON] == [600, 900]
    assert {found.bug for found in report.findings} == {Bug.STABILITY, Bug.POISON}
