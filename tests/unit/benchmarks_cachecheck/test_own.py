"""Our own daemon, a real one on the scripted model: what is asked of others is asked of it, and it has no bug."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.cachecheck.__main__ import check, parse
from benchmarks.cachecheck.conversation import Change
from benchmarks.cachecheck.own import Own
from benchmarks.cachecheck.verdict import Finding, Verdict

# Slow enough to be cut in the middle of its 128 tokens.
RULE = {"when": "Explain line by line", "say": "It does one thing after the other. " * 8, "pace_ms": 20}


@pytest.mark.slow
def test_a_whole_run(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"rules": [RULE]}))
    target = Own("scripted", environment={"QMLX_SCRIPT": str(script), "QMLX_BATCH_MS": "1"}, timeout_s=60)
    report = check(target, parse(["qmlx", "--tokens", "400", "--chats", "3"]))
    found: dict[str, Finding] = {finding.scenario: finding for finding in report.findings}
    verdicts = {name: finding.ruling.verdict for name, finding in found.items()}
    sound = {
        "conversation goes on", "a line early in the context", "reply cut: what stood before it",
        "reply cut: the reply", "after 3 short chats", "after 3 other long ones", "after a restart", "after kill -9",
        "quota of 50% of what is stored, then kill -9",
    }  # fmt: skip
    assert {name for name, verdict in verdicts.items() if verdict is Verdict.SOUND} == sound
    # What only who keeps the history himself can do; a scripted prefill is over before it could be cut.
    assert {name for name, verdict in verdicts.items() if verdict is Verdict.UNKNOWN} == {
        "prefill cut at 50 %, repeated at once", "prefill cut at 50 %, repeated after a wait"
    }  # fmt: skip
    impossible = {name for name, verdict in verdicts.items() if verdict is Verdict.IMPOSSIBLE}
    assert {change.value for change in Change} - impossible == {
        Change.NONE.value, Change.EARLY_EDIT.value, Change.NO_TOOLS.value
    }  # fmt: skip
    killed = found["after kill -9"].turn
    assert killed is not None
    assert killed.cached == found["after kill -9"].had.whole  # type: ignore[union-attr]
    assert not target._base.exists()
