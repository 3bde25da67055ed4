"""What a run leaves: the table, the data, the picture; and the command around them."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cachecheck import __main__ as command
from benchmarks.cachecheck import plot
from benchmarks.cachecheck.conversation import CheckError, Turn
from benchmarks.cachecheck.prefix import Had
from benchmarks.cachecheck.report import Report, table
from benchmarks.cachecheck.verdict import Bug, Finding, Ruling, Verdict
from tests.unit.benchmarks_cachecheck.fake_server import Fake, Faults, serving

TURN = Turn(1_964, 1_946, 0.25, 0.5, "text", "length", 8, sent="abc")
HAD = Had(1_950, 1_940, False, 8, "stated")
FINDINGS = (
    Finding(Bug.STABILITY, "goes on", Ruling(Verdict.SOUND, "nothing again", "stated", 0), TURN, HAD, 900, 2.5),
    Finding(Bug.INTERRUPT, "prefill", Ruling(Verdict.UNKNOWN, "too short"), None, None, 900, None),
    Finding(Bug.POISON, "chats", Ruling(Verdict.BUG, "all again", "stated", 1_950), TURN, None, 900, 2.5),
)
MACHINE = {"processor": "Some CPU", "cores": 2}
REPORT = Report(
    "2026-11-30", MACHINE, (0.5, 1.25), {"kind": "openai", "url": "http://a/v1"}, {"tokens": [900]}, FINDINGS,
    [{"step": "cold", **TURN.as_dict()}],
)  # fmt: skip


def test_table() -> None:
    lines = table(REPORT).splitlines()
    assert "   900  goes on    1,964   1,946        18  1,950     0.25 s     0.10  sound" in lines
    assert "   900  prefill        –       –         –      –          –        –  unknown" in lines
    assert (
        lines[lines.index("poison: other conversations, or a restart, crowd out a long one?") + 2] == "    all again"
    )
    assert "stability: SOUND: 1 sound" in lines
    assert "poison: BUG: chats (1 bug)" in lines
    assert "load average 0.5 at its beginning, 1.2 at its end" in lines[-1]


def test_data() -> None:
    data = json.loads(json.dumps(REPORT.as_dict()))
    assert data["verdicts"]["poison"] == {"verdict": "bug", "sentence": "chats (1 bug)"}
    assert data["turns"][0]["computed"] == 18
    first = data["findings"][0]
    assert first["evidence"] == {
        "prompt": 1_964, "cached": 1_946, "computed": 18, "source": "stated", "ttft_s": 0.25, "total_s": 0.5,
        "tokens_out": 8, "finish": "length", "sent_chars": 3, "had": 1_950, "had_same": 1_940, "had_how": "stated",
    }  # fmt: skip
    assert (first["cold_ttft_s"], first["again"], first["tokens"]) == (2.5, 0, 900)
    assert data["findings"][1]["evidence"] == {"source": "unknown"}


def test_points_are_what_is_stated() -> None:
    found = plot.points(REPORT.as_dict())
    # Of the prefill nothing is stated, and what was there before the chats is not known.
    assert [(one["scenario"], one["least"], one["computed"]) for one in found] == [("goes on", 14, 18)]


def test_zero_is_drawn_at_one() -> None:
    finding = {
        "bug": "poison", "scenario": "a", "verdict": "sound", "again": 0,
        "evidence": {"prompt": 5, "computed": 0, "had": 5},
    }  # fmt: skip
    assert [(one["least"], one["computed"]) for one in plot.points({"findings": [finding]})] == [(1, 1)]


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_pictures_repeat(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("matplotlib")
    pictures = [tmp_path / f"{number}.{kind}" for number in range(2)]
    for picture in pictures:
        plot.draw([REPORT.as_dict(), {**REPORT.as_dict(), "name": "other"}], picture)
    one, other = (picture.read_bytes() for picture in pictures)
    assert one == other
    assert one.startswith(b"\x89PNG" if kind == "png" else b"<?xml")


def test_a_picture_of_several_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "report.json"
    file.write_text(json.dumps(REPORT.as_dict()))
    assert plot.main([f"first={file}", str(file), str(tmp_path / "a.svg")]) == 0
    shown = (tmp_path / "a.svg").read_text()
    assert "<!-- first -->" in shown
    assert "<!-- http://a/v1 -->" in shown
    assert plot.main([str(file)]) == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize(("content", "words"), [("{", "is no report: "), ("[]", "no report of cachecheck")])
def test_what_is_no_report_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, words: str
) -> None:
    file = tmp_path / "report.json"
    file.write_text(content)
    assert plot.main([str(file), str(tmp_path / "a.svg")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


def test_plots_need_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(CheckError, match=r"pip install '\.\[bench\]'"):
        plot.draw([REPORT.as_dict()], tmp_path / "a.svg")


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("faults", "code"), [(Faults(), 0), (Faults(fields=True), 1)])
def test_the_exit_code_says_whether_there_is_a_bug(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], faults: Faults, code: int
) -> None:
    file = tmp_path / "report.json"
    with serving(Fake(faults)) as fake:
        given = [fake.url, "--tokens", "300", "--only", "stability", "--json", str(file)]
        assert command.main(given) == code
    out, err = capsys.readouterr()
    data: dict[str, Any] = json.loads(file.read_text())
    assert data["verdicts"]["stability"]["verdict"] in out.lower()
    assert data["options"]["tokens"] == [300]
    assert data["target"]["model"] == "fake-model"
    assert data["target"]["system_fingerprint"] == "fake-1"
    assert len(data["turns"]) == err.count(" computed, first token ")


def test_a_server_that_was_checked_before_needs_another_seed(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Fake()) as fake:
        given = [fake.url, "--tokens", "300", "--only", "stability"]
        assert command.main(given) == 0
        capsys.readouterr()
        assert command.main(given) == 2
        assert "Give another --seed." in capsys.readouterr().err.splitlines()[-1]
        assert command.main([*given, "--seed", "2"]) == 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["nothing"], "nothing is no URL"),
        (["http://127.0.0.1:9", "--model", "m", "--tokens", "5"], "--tokens 5 must be between 200 and 200000"),
        (["http://127.0.0.1:9", "--model", "m", "--chats", "0"], "--chats 0 must be"),
        (["http://127.0.0.1:9", "--model", "m", "--timeout", "0"], "--timeout 0 must be"),
        (["http://127.0.0.1:9", "--model", "m", "--extra", "{"], "--extra is no JSON"),
        (["http://127.0.0.1:9", "--model", "m", "--extra", "[]"], "--extra must be a JSON object"),
        (["http://127.0.0.1:9", "--model", "m", "--plot", "a.pdf"], "must end in .svg or .png"),
        (["qmlx", "--model", "/no/such/folder"], "/no/such/folder"),
    ],
)
def test_what_makes_no_sense_is_one_line(capsys: pytest.CaptureFixture[str], given: list[str], words: str) -> None:
    assert command.main(given) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("cachecheck: ")
    assert words in line


def test_what_was_found_before_an_error_is_not_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "report.json"
    with serving(Fake()) as fake:
        given = [fake.url, "--tokens", "300", "--chats", "1", "--restart", "exit 3", "--json", str(file)]
        assert command.main([*given, "--only", "poison"]) == 2
    out, err = capsys.readouterr()
    assert err.splitlines()[-1] == "cachecheck: The --restart command ended with 3: exit 3"
    assert "after 1 short chats" in out
    data = json.loads(file.read_text())
    assert data["error"] == "The --restart command ended with 3: exit 3"
    assert data["verdicts"]["poison"]["verdict"] == "sound"


def test_what_was_found_before_a_signal_is_not_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "report.json"
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, command._end)
    try:
        monkeypatch.setitem(command.PARTS, "poison", lambda _run, _control: signal.raise_signal(signal.SIGTERM))
        with serving(Fake()) as fake:
            assert command.main([fake.url, "--tokens", "300", "--only", "poison", "--json", str(file)]) == 2
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr().err.splitlines()[-1] == "cachecheck: The check was stopped by SIGTERM."
    (found,) = json.loads(file.read_text())["findings"]
    assert (found["scenario"], found["verdict"]) == ("conversation goes on", "sound")


def test_nobody_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Fake()) as fake:
        url = fake.url
    assert command.main([url, "--model", "m"]) == 2  # it is closed now
    out, err = capsys.readouterr()
    assert "Nothing answers at" in err.splitlines()[-1]
    assert out == ""
