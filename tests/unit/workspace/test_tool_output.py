"""What a tool has printed, as a model is told it: cleaned, bounded, in a block."""

from __future__ import annotations

import pytest

from qmlx_lsp.workspace.tool_output import (
    LINE_CHARS_MAX,
    SHOWN_BYTES_MAX,
    Capture,
    Shown,
    block,
    bounded,
    clean,
    one_line,
)


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[1;31mred\x1b[0m \x1b[2Kx\x1b[?25l", "red x"),
        ("\x1b]0;title\x07a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "alink"),
        ("\x1b]0;no end\nnext", "\nnext"),
        ("\x1bPq data\x1b\\b\x1b(Bc\x1bMd\x1b", "bcd"),
        ("  1%\r 50%\r100%\ndone\n", "100%\ndone\n"),
        ("long text\r\x1b[Kshort\n", "short\n"),
        ("gone\r\r\nkept\r\nlast\r", "gone\nkept\nlast"),
        ("|\b/\b-\bdone\b\b\b\b\b\bok", "ok"),
        ("N\bNA\bAME", "NAME"),
        ("a\x00b\x07c\x7fd\x9be", "abcde"),
        ("one\x0ctwo\x0bthree\x85four", "one\ntwo\nthree\nfour"),
        ("\ud800 ü \U0001f600 \u2028", "\ufffd ü \U0001f600 \u2028"),
    ],
)
def test_a_screen_shows(printed: str, shown: str) -> None:
    assert clean(printed) == shown


def test_a_long_text_is_cleaned_in_pieces_that_nobody_sees() -> None:
    line = "\x1b[31mred\x1b[0m 1%\r100%\r\n"
    assert clean(line * 20_000 + "\x1b]no end") == "100%\n" * 20_000
    assert clean("\x1b[1m" + "y" * 200_000) == "y" * 200_000


def test_a_text_counts_like_its_bytes() -> None:
    one, other = Capture(1024), Capture(1024)
    text = "".join(f"ü {number}\r\n" for number in range(50_000))
    one.feed(text.encode())
    other.feed_text(text)
    assert one.text() == other.text()
    assert "left out" in one.text()


def test_one_line_is_short_and_one() -> None:
    assert one_line(" a\n\tb\x1b[1m ", 10) == "a b"
    assert one_line("abcdef", 6) == "abcdef"
    assert one_line("abcdefg", 6) == "abcde…"


def test_the_middle_goes_by_whole_lines() -> None:
    lines = [f"line {number:04}\n" for number in range(1000)]
    text = bounded("".join(lines), 1064)
    head, tail = text.split("… 901 lines left out …\n")
    # 1,000 bytes of room: a third of it holds 33 lines of 10 bytes, the rest 66
    assert head == "".join(lines[:33])
    assert tail == "".join(lines[-66:])


def test_a_line_without_an_end_is_cut_between_characters() -> None:
    text = bounded("ü" * 1000, 364)
    # 300 bytes of room: 100 and 200, two bytes a character
    assert text == "ü" * 50 + "\n… 850 characters left out …\n" + "ü" * 100
    assert (
        bounded("\U0001f600" * 100, 367) == "\U0001f600" * 25 + "\n… 25 characters left out …\n" + "\U0001f600" * 50
    )


def test_what_fits_stays_as_it_is() -> None:
    assert bounded("ü" * 100, 200) == "ü" * 100
    assert "left out" in bounded("ü" * 100, 199)


def test_a_flood_keeps_its_head_and_tail_and_counts_what_went() -> None:
    capture = Capture(1024)
    every = b"".join(b"line %07d\n" % number for number in range(200_000))
    for at in range(0, len(every), 65_537):  # pieces that are no whole lines
        capture.feed(every[at : at + 65_537])
        assert len(capture) <= 3 * 4 * 1024 + 65_537
    head, mark, tail = capture.text().partition("… ")
    amount, _, tail = tail.partition(" lines left out …\n")
    assert mark
    assert head.startswith("line 0000000\nline 0000001\n")
    assert tail.endswith("line 0199998\nline 0199999\n")
    assert head.count("\n") + int(amount.replace(",", "")) + tail.count("\n") == 200_000
    assert len(capture.text().encode()) <= 1024
    assert capture.last_line() == "line 0199999"


def test_a_flood_without_lines_is_cut_between_characters() -> None:
    capture = Capture(1024)
    for _ in range(100):
        capture.feed("ü".encode() * 1000 + b"x")
    text = capture.text()
    assert "\ufffd" not in text
    assert " characters left out …\n" in text
    assert len(text.encode()) <= 1024


def test_a_bar_of_a_million_states_is_one_line() -> None:
    capture = Capture(1024)
    capture.feed(b"begin\n")
    for percent in range(100_000):
        capture.feed(b"\r%6d of 100000" % percent)
    capture.feed(b"\nend\n")
    assert capture.text().splitlines()[0] == "begin"
    assert capture.text().splitlines()[-1] == "end"
    assert len(capture.text()) < 120


def test_the_last_line_is_short_and_shows_something() -> None:
    capture = Capture(1024)
    assert capture.last_line() == ""
    capture.feed(b"first\n\x1b[1msecond \xff" + b"y" * 200 + b"\n \n\r\n")
    assert capture.last_line().startswith("second yyy")
    assert len(capture.last_line()) == LINE_CHARS_MAX


def test_shown_are_whole_lines_and_the_rest_at_the_end() -> None:
    shown = Shown()
    shown.feed(b"one\ntw")
    assert shown.take() == "one\n"
    assert shown.take() == ""
    shown.feed("ö".encode()[:1])
    shown.feed("ö".encode()[1:] + b"\n\x1b[1mthree")
    assert shown.take() == "twö\n"
    assert shown.take(last=True) == "three"


def test_a_long_line_is_shown_in_pieces() -> None:
    shown = Shown()
    data = "ü".encode() * 3000
    shown.feed(data[:5001])
    first = shown.take()
    assert first == "ü" * 2500
    shown.feed(data[5001:])
    assert first + shown.take(last=True) == "ü" * 3000


def test_what_is_shown_has_an_end() -> None:
    shown = Shown()
    parts = []
    for _ in range(40):
        shown.feed(b"0123456\n" * 8192)
        while part := shown.take():
            parts.append(part)
    parts.append(shown.take(last=True))
    text = "".join(parts)
    assert text.startswith("0123456\n")
    assert text.endswith("0123456\n\n… what comes now is not shown …\n")
    assert text.count("0123456\n") == SHOWN_BYTES_MAX // 8


def test_blocks() -> None:
    assert block("tests", "make test", "exit code 1", "\n```\nE  boom\n\n") == (
        "Result of make test (tool tests): exit code 1\n````\n```\nE  boom\n````\n"
    )
    assert block("tests", "", "exit code 0", " \n") == "Result of tool tests: exit code 0, no output.\n"
    assert block("tests", "", "", "") == "Result of tool tests, no output.\n"
    assert block("tests", "", "", "x") == "Result of tool tests:\n```\nx\n```\n"
    assert block("a\nb", "make\n\x1b[1mtest\n" + "y" * 300, "cancelled", "x").startswith("Result of make test yyy")
    assert block("a\nb", "make", "cancelled", "x").startswith("Result of make (tool a b): cancelled\n")
