"""Whatever is printed: what is told of it is bounded, clean, and keeps both ends."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from qmlx_lsp.workspace.tool_output import MARK_BYTES_MAX, Capture, Shown, block, bounded, clean

quick = settings(deadline=None, max_examples=150)
pieces = st.sampled_from([
    "a", "word ", "\n", "\r", "\r\n", "\b", "\t", "\x00", "\x1b", "\x1b[31m", "\x1b[", "[0m", "\x1b]0;t\x07", "\x1b]",
    "\\", "\x1bP", "\x9b", "ü", "漢", "\U0001f600", "\ud800", "\udfff", "\u2028", "\x85", "```", "````", "x" * 90,
    "~", "P",
])  # fmt: skip
printed = st.lists(pieces, max_size=60).map("".join)
limits = st.integers(MARK_BYTES_MAX + 1, 400)
WRONG = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


@quick
@given(printed)
def test_cleaned_is_clean_and_stays_so(text: str) -> None:
    cleaned = clean(text)
    assert WRONG.search(cleaned) is None
    assert clean(cleaned) == cleaned
    assert cleaned.count("\n") >= text.count("\n") - text.count("\x1b")  # an escape eats one line's rest at most


@quick
@given(printed.map(clean), limits)
def test_bounded_is_bounded_and_keeps_both_ends(text: str, limit: int) -> None:
    kept = bounded(text, limit)
    assert len(kept.encode()) <= limit
    assert bounded(kept, limit) == kept
    if len(text.encode()) <= limit:
        assert kept == text
    else:
        head, tail = re.fullmatch(r"(?s)(.*?)\n?… [\d,]+ (?:lines?|characters) left out …\n(.*)", kept).groups()  # type: ignore[union-attr]
        assert text.startswith(head)
        assert text.endswith(tail)
        room = limit - MARK_BYTES_MAX
        # whole lines take half of the room at least, and a character four bytes at most
        assert len(head.encode()) >= (room // 3 - 4) // 2
        assert len(tail.encode()) >= (room - room // 3 - 4) // 2


@quick
@given(st.lists(st.binary(max_size=300) | printed.map(lambda text: text.encode(errors="replace")), max_size=12))
def test_any_bytes_in_any_pieces(parts: list[bytes]) -> None:
    one, many = Capture(100), Capture(100)
    one.feed(b"".join(parts))
    for part in parts:
        many.feed(part)
    for capture in (one, many):
        assert len(capture.text().encode()) <= 100
        assert WRONG.search(capture.text() + capture.last_line()) is None
    if len(b"".join(parts)) <= 400:
        assert one.text() == many.text() == bounded(clean(b"".join(parts).decode(errors="replace")), 100)


@quick
@given(st.lists(st.text(alphabet="abü漢\U0001f600\n", max_size=40), max_size=10), st.integers(1, 7))
def test_what_is_shown_is_all_in_order(texts: list[str], step: int) -> None:
    data = "".join(texts).encode()
    shown, parts = Shown(), []
    for at in range(0, len(data), step):
        shown.feed(data[at : at + step])
        parts.append(shown.take())
        assert not parts[-1] or parts[-1].endswith("\n")
    assert "".join([*parts, shown.take(last=True)]) == "".join(texts)


@quick
@given(printed, printed, printed)
def test_nothing_breaks_out_of_a_block(name: str, command: str, output: str) -> None:
    told = block(name, command, "exit code 1", clean(output))
    assert told[0] == "R"
    assert told.endswith("\n")
    assert not told.endswith("\n\n")
    first, *rest = told.split("\n")
    assert WRONG.search(first) is None
    if rest != [""]:
        fence = rest[0]
        assert set(fence) == {"`"}
        assert rest[-2:] == [fence, ""]
        assert fence not in rest[1:-2]
