"""A suggestion under its user's hands: what is left of it, and what became of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmlx_lsp.workspace.positions import all_lines
from qmlx_lsp.workspace.suggestion import Fate, Shown, fate, remainder

TEXT = "def f():\n    return s\n\nend\n"


def shown(text, suggestion, line=1, column=12):
    return Shown(all_lines(text), line, column, suggestion)


def typed(text, more, line=1, column=12, behind=""):
    """The text after ``more`` was typed there, and where the cursor is then; the editor adds ``behind``."""
    lines = all_lines(text)
    at = sum(map(len, lines[:line])) + column
    new = text[:at] + more + behind + text[at:]
    before = all_lines(text[:at] + more)
    return all_lines(new), len(before) - 1, len(before[-1])


@pytest.mark.parametrize(
    ("suggestion", "more", "behind", "left"),
    [
        ("um(x)", "", "", "um(x)"),
        ("um(x)", "um", "", "(x)"),
        ("um(x)", "um(x)", "", ""),
        ("um(x)", "up", "", None),
        ("um(x)", "um(x) ", "", None),
        ("um(x)", "um(", ")", "x"),
        ("um(x[0])", "um(x[", "])", "0"),
        ("um(x)", "um", ")", None),  # nobody has opened it
        ('um("a")', 'um("', '")', "a"),
        ("um(x)\n    more()", "um(x)\n", "", "    more()"),
        ("um(x)\n    more()", "um(x)\n    mo", "", "re()"),
        ("um(x)\n    more()", "um(x)\n  mo", "", None),
    ],
)
def test_what_is_left(suggestion, more, behind, left):
    assert remainder(shown(TEXT, suggestion), *typed(TEXT, more, behind=behind)) == left


def test_line_ends_of_the_document_count_as_one():
    text = TEXT.replace("\n", "\r\n")
    suggestion = "um(x)\r\n    more()"
    for more, left in (("um(x)\r\n", "    more()"), ("um(x)", "\r\n    more()")):
        assert remainder(shown(text, suggestion), *typed(text, more)) == left


def test_another_change_anywhere_is_the_end_of_it():
    held = shown(TEXT, "um(x)")
    lines, line, column = typed(TEXT, "um")
    for other in ([f"# {lines[0]}", *lines[1:]], [*lines[:-1], "x"], [*lines, "x"], ["new\n", *lines]):
        assert remainder(held, other, line, column) is None
        assert fate(held, other)[0] is Fate.REJECTED
    assert remainder(held, all_lines("x\n"), 0, 0) is None
    assert fate(held, all_lines("x\n")) == (Fate.REJECTED, 0)


@pytest.mark.parametrize(
    ("more", "behind", "what", "count"),
    [
        ("", "", Fate.OPEN, 0), ("um", "", Fate.PARTLY, 2), ("um(", ")", Fate.PARTLY, 3),
        ("um(x)\n    more()", "", Fate.ACCEPTED, 16), ("um(x)\n", "", Fate.PARTLY, 6), ("uz", "", Fate.REJECTED, 0),
    ],
)  # fmt: skip
def test_what_became_of_it(more, behind, what, count):
    lines, _, _ = typed(TEXT, more, behind=behind)
    assert fate(shown(TEXT, "um(x)\n    more()"), lines) == (what, count)


PIECES = st.text(alphabet="ab(\n ", max_size=12)


@given(PIECES, PIECES, PIECES, st.integers(0, 12))
def test_what_was_typed_and_what_is_left_are_the_suggestion(before, behind, suggestion, count):
    text = f"{before}\n{behind}"
    line, column = before.count("\n"), len(before.rpartition("\n")[2])
    more = suggestion[:count]
    left = remainder(shown(text, suggestion, line, column), *typed(text, more, line, column))
    assert left == suggestion[count:]
    what, there = fate(shown(text, suggestion, line, column), typed(text, more, line, column)[0])
    assert there == len(more) or what is Fate.ACCEPTED
