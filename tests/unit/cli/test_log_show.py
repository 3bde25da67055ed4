"""How entries are printed, as lines for people and as objects for programs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from qmlx_lsp.cli.log_show import Lines, Objects, Show, visible
from qmlx_lsp.transcript.entry import Finish, Kind
from tests.support.log_writer import SYSTEM, Writer, read

ESCAPE = "\x1b[31mred\x1b[0m"


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the clock on the wall says is known: two hours before UTC."""
    monkeypatch.setitem(os.environ, "TZ", "XYZ+02")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def _show(writer: Writer, show: Show) -> None:
    epochs, entries = read(writer)
    show.epochs(epochs, headings=len(epochs) > 1)
    for told in entries:
        show.entry(told)


def test_one_epoch_has_no_heading(writer: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    writer.say(Kind.QUESTION, "Why?\n")
    writer.reply("Because.", Finish.CANCELLED)
    writer.reply("", Finish.COMPLETE)
    _show(writer, Lines(tokens=True))
    assert capsys.readouterr().out == (
        "── 1 you · tokens 0–2\nWhy?\n10 11\n\n"
        "── 2 qmlx (cancelled) · tokens 2–12\nBecause.\n7 8 100 101 102 103 104 105 106 107\n\n"
        "── 3 qmlx (complete) · tokens 12–14\n(no text)\n7 8\n\n"
    )


def test_epochs_have_headings_and_what_was_carried_is_marked(
    writer: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    writer.say(Kind.CONTEXT, "x = 1", "a.py")
    writer.new_epoch("full", SYSTEM)
    writer.say(Kind.QUESTION, "Why?")
    writer.new_epoch("new")
    writer.new_epoch("model")
    writer.say(Kind.QUESTION, "How?")
    writer.new_epoch("summary")
    writer.say(Kind.QUESTION, "When?")
    _show(writer, Lines(tokens=False))
    assert capsys.readouterr().out == (
        "══ epoch 0 · began 2023-11-14 20:13\n\n"
        "── 1 context · tokens 0–2\nx = 1\n\n"
        "══ epoch 1 · began 2023-11-14 20:13 · the one before was full"
        " · its first 3 tokens repeat what was said before\n\n"
        "── 2 system (said before) · tokens 0–3\nYou help.\n\n"
        "── 3 you · tokens 3–5\nWhy?\n\n"
        "══ epoch 3 · began 2023-11-14 20:13 · for another model\n\n"
        "── 4 you · tokens 0–2\nHow?\n\n"
        "══ epoch 4 · began 2023-11-14 20:13 · summary\n\n"
        "── 5 you · tokens 0–2\nWhen?\n\n"
    )


def test_a_terminal_gets_bold_headings_and_no_commands(
    writer: Writer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.say(Kind.CONTEXT, f"{ESCAPE}\r\n\ttab\x9b\x7f\0")
    _show(writer, Lines(tokens=False, terminal=True))
    heading = "── 1 context · tokens 0–2"
    text = "␛[31mred␛[0m\n\ttab\\x9b␡␀\n\n"
    assert capsys.readouterr().out == f"\x1b[1m{heading}\x1b[0m\n{text}"
    monkeypatch.setenv("NO_COLOR", "1")
    _show(writer, Lines(tokens=False, terminal=True))
    assert capsys.readouterr().out == f"{heading}\n{text}"
    _show(writer, Lines(tokens=False, terminal=False))
    assert capsys.readouterr().out == f"{heading}\n{ESCAPE}\r\n\ttab\x9b\x7f\0\n\n"  # a file gets it as it is


def test_visible_leaves_nothing_that_a_terminal_obeys() -> None:
    every = "".join(map(chr, range(0x180))) + "\ud800\udfff"
    shown = visible(every)
    left = [char for char in shown if not char.isprintable() and char not in "\n\t"]
    assert left == ["\xa0", "\xad"]  # a hard space and a soft hyphen
    assert shown.encode()
    assert visible("grüße 你好 😋\n\t") == "grüße 你好 😋\n\t"


def _objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_objects_have_the_fixed_fields_and_those_that_apply(
    writer: Writer, capsys: pytest.CaptureFixture[str]
) -> None:
    writer.say(Kind.CONTEXT, "x\0", "src/\udce9.py")
    turn = writer.reply("So", Finish.LENGTH)
    writer.say(Kind.CONTEXT, "42", tool="count")
    writer.new_epoch("full", SYSTEM)
    _show(writer, Objects(tokens=True))
    assert _objects(capsys.readouterr().out) == [
        {"entry": 1, "kind": "context", "finish": None, "text": "x\0", "span": [0, 2], "epoch": 0, "carried": False,
         "path": "src/\udce9.py", "ids": [10, 11]},
        {"entry": 2, "kind": "assistant", "finish": "length", "text": "So", "span": [2, 6], "epoch": 0,
         "carried": False, "turn": turn, "ids": [7, 8, 100, 101]},
        {"entry": 3, "kind": "context", "finish": None, "text": "42", "span": [6, 8], "epoch": 0, "carried": False,
         "tool": "count", "ids": [10, 11]},
        {"entry": 4, "kind": "system", "finish": None, "text": "You help.", "span": [0, 3], "epoch": 1,
         "carried": True, "ids": [1, 2, 3]},
    ]  # fmt: skip
    _show(writer, Objects(tokens=False))
    assert all("ids" not in one for one in _objects(capsys.readouterr().out))
