"""How the guard runs: what breaks off, what is measured again, and what reaches the exit code and the file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from benchmarks.quick import __main__ as quick
from benchmarks.quick import counts, keystrokes
from benchmarks.quick.bound import Bounded, Sense, Verdict
from benchmarks.quick.counts import cut_at
from benchmarks.quick.desk import KINDS, Turn
from benchmarks.quick.ratios import settled
from qmlx_lsp.session.event import Answer, Usage
from qmlx_lsp.transcript.entry import Finish


def turn(rows: Sequence[int], *, new: int, generated: int, finish: Finish = Finish.LENGTH) -> Turn:
    usage = Usage(new, 0, 0, new, generated, 0.0, 0, 0.0, None, None, 0, "cold", None)
    return Turn(Answer(1, "text", finish, usage), new, new, tuple(rows), 0)


def test_each_new_id_and_each_id_of_the_reply_is_read_once() -> None:
    assert turn([256, 44, 13, 1, 1, 1], new=313, generated=3).beyond == 0
    assert turn([256, 45, 13, 1, 1, 1], new=313, generated=3).beyond == 1  # one of them was read twice
    assert turn([300, 256, 44, 13, 1], new=313, generated=1).beyond == 300  # a restore that found nothing


def test_a_prefill_is_cut_in_front_of_the_pass_that_reaches_its_share() -> None:
    stop = cut_at(0.9, 1_000)
    assert not stop([256, 256, 256])  # 768
    assert stop([256, 256, 256, 132])  # 900
    assert cut_at(0.9, 1_000, 200)([256, 256, 188])  # 200 were there


def test_what_was_not_cut_where_it_should_be_is_not_measured() -> None:
    whole = turn([20, 13, 1], new=33, generated=1)
    in_reply = turn([20, 13, 1], new=33, generated=1, finish=Finish.CANCELLED)
    in_prefill = turn([20], new=20, generated=0, finish=Finish.CANCELLED)
    assert counts.not_cut(in_reply, replied=True) == counts.not_cut(in_prefill, replied=False) == ""
    assert counts.not_cut(whole, replied=True) == "nothing was cut, it ended as length"
    assert counts.not_cut(in_reply, replied=False) == "cut at another place, after 1 tokens of a reply"
    assert counts.not_cut(in_prefill, replied=True) == "cut at another place, after 0 tokens of a reply"


def numbers(values: Sequence[float], sense: Sense) -> tuple[Iterator[float], Bounded]:
    left = iter(values)
    return left, settled(lambda: Bounded("ratio", next(left), sense, 10.0), tries=3)


def test_a_ratio_that_misses_is_measured_again_and_the_best_counts() -> None:
    for values, sense, best in (
        ([12.0, 99.0], Sense.LEAST, 12.0),
        ([9.0, 11.0, 99.0], Sense.LEAST, 11.0),
        ([8.0, 9.0, 7.0], Sense.LEAST, 9.0),
        ([12.0, 11.0, 13.0], Sense.MOST, 11.0),
    ):
        _, found = numbers(values, sense)
        assert found.value == best
    left, _ = numbers([12.0, 99.0], Sense.LEAST)
    assert next(left) == 99.0  # what was kept is not measured again


def test_a_part_that_breaks_off_keeps_what_it_had_and_says_why() -> None:
    def part() -> Iterator[Bounded]:
        yield Bounded("first", 0, Sense.EXACT, 0)
        raise OSError("no room\non the disk")

    first, rest = quick.measured("part", part)
    assert (first.name, first.verdict) == ("first", Verdict.KEPT)
    assert (rest.name, rest.verdict, rest.why) == ("part: all of it", Verdict.UNMEASURED, "OSError: no room")


def test_the_exit_code_and_the_file_say_what_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = [Bounded("one", 1, Sense.EXACT, 0), Bounded("two", 2.0, Sense.MOST, 3.0)]
    monkeypatch.setattr(quick, "PARTS", {"part": lambda: iter(figures)})
    assert quick.main(["--json", str(tmp_path / "found.json")]) == 1
    written = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert set(written) == {"when", "machine", "figures"}
    assert [(one["name"], one["value"], one["verdict"]) for one in written["figures"]] == [
        ("one", 1, "MISSED"),
        ("two", 2.0, "kept"),
    ]
    assert "1 kept, 1 missed" in capsys.readouterr().out
    del figures[0]
    assert quick.main([]) == 0
    assert quick.main(["--json", str(tmp_path / "nowhere" / "found.json")]) == 2
    assert "No such file or directory." in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_counts_of_short_conversations_are_kept(kind: str) -> None:
    """Shorter than the guard's own, and so without the shares that are bounded for a file of its length."""
    found = list(counts.figures(kind, lines=60))
    exact = [one for one in found if one.sense is Sense.EXACT]
    assert [one.name for one in exact if one.verdict is not Verdict.KEPT] == []
    assert len(exact) == 9
    assert all(one.verdict is not Verdict.UNMEASURED for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_keystroke_reads_what_was_typed(kind: str) -> None:
    (found,) = keystrokes.figures(kind)
    assert found.verdict is Verdict.KEPT
