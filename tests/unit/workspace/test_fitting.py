"""Search/replace blocks in a text, and code in the lines it was asked for: fitting in one way, or not at all."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmlx_lsp.workspace.blocks import Change
from qmlx_lsp.workspace.fitting import Fitted, indented_as, replaced

TEXT = "def f():\n    a = 1  \n    b = 2\n\ndef g():\n    a = 1\n    return a\n"


@pytest.mark.parametrize(
    ("changes", "new"),
    [
        ([("    b = 2\n", "    b = 3\n")], TEXT.replace("b = 2", "b = 3")),
        ([("    b = 2\n", "")], TEXT.replace("    b = 2\n", "")),
        # Blanks at line ends are not what lines are known by, and stay.
        ([("    a = 1\n    b = 2\n", "    a = 1\n    b = 3\n")], TEXT.replace("b = 2", "b = 3")),
        ([("def g():   \n", "def h():\n")], TEXT.replace("g()", "h()")),
        # Indentation that all lines lack, or have too much.
        ([("a = 1\nreturn a\n", "a = 1\nif a:\n    b()\n\nreturn a\n")],
         TEXT.replace("    return a", "    if a:\n        b()\n\n    return a")),
        ([("    def g():\n        a = 1\n", "    def h():\n        a = 1\n")], TEXT.replace("g()", "h()")),
        # Several at once, in any order, each counted in the text as it was.
        ([("    return a\n", "    return f\n"), ("def f():\n", "def g():\n")],
         TEXT.replace("return a", "return f").replace("def f", "def g")),
    ],
)  # fmt: skip
def test_what_fits_in_one_place(changes, new):
    assert replaced(TEXT, [Change(*one) for one in changes]) == Fitted(new)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ([("    c = 2\n", "")], "the search/replace block fits in no place of the text"),
        ([("a = 1\n", "a = 2\n")], "the search/replace block fits in 2 places of the text"),
        ([("", "x\n")], "the search/replace block fits in no place of the text"),
        ([("\n", "x\n")], "the search/replace block fits in no place of the text"),
        ([("    b = 2\n", "x\n"), ("    c = 2\n", "x\n")], "search/replace block 2 fits in no place of the text"),
        ([("    b = 2\n", "x\n"), ("    b = 2\n", "y\n")], "two search/replace blocks change the same lines"),
        ([("\tb = 2\n", "\tb = 3\n")], "the search/replace block fits in no place of the text"),
        ([("  a = 1\n    return a\n", "x\n")], "the search/replace block fits in no place of the text"),
        ([("        def g():\n            a = 1\n", "def h():\n")],
         "it is not clear how the search/replace block is indented"),
    ],
)  # fmt: skip
def test_what_does_not_is_none_and_says_why(changes, reason):
    assert replaced(TEXT, [Change(*one) for one in changes]) == Fitted(reason=reason)


def test_an_exact_fit_wins_over_a_loose_one():
    text = "  x\nx\nx \n"
    assert replaced(text, [Change("x\n", "y\n")]) == Fitted("  x\ny\nx \n")


def test_line_ends_of_kept_lines_stay_and_the_last_line_may_have_none():
    assert replaced("a\r\nb\rc", [Change("b\nc\n", "b\nd\n")]) == Fitted("a\r\nb\rd\n")
    assert replaced("a\r\nb", [Change("b\n", "b\nc\n")]) == Fitted("a\r\nb\nc\n")
    assert replaced("a\r\nb", [Change("a\nb\n", "b\n")]) == Fitted("b")
    assert replaced("", [Change("", "a\n")]) == Fitted("a\n")
    assert replaced("\n", [Change("", "a\n")]) == Fitted("a\n")


names = st.lists(st.integers(0, 60), min_size=1, max_size=14, unique=True)


@given(names, st.data())
@settings(deadline=None, max_examples=100)
def test_however_loosely_it_was_written_it_lands_where_it_was_taken_from(numbers, data):
    depth = [data.draw(st.integers(0, 3)) for _ in numbers]
    text = [
        f"{'  ' * deep}line {n}{data.draw(st.sampled_from(['', ' ', '  ']))}"
        for n, deep in zip(numbers, depth, strict=True)
    ]
    first = data.draw(st.integers(0, len(text) - 1))
    last = data.draw(st.integers(first + 1, len(text)))
    taken = [line.rstrip() for line in text[first:last]]
    strip = data.draw(st.integers(0, min(len(line) - len(line.lstrip()) for line in taken)))
    more = " " * data.draw(st.integers(0, 3)) if not strip else ""
    written = [more + line[strip:] for line in taken]
    new = [*written, f"{more}{' ' * (len(taken[0]) - len(taken[0].lstrip()) - strip)}new"]
    got = replaced("\n".join(text) + "\n", [Change("\n".join(written) + "\n", "\n".join(new) + "\n")])
    indent = " " * (len(taken[0]) - len(taken[0].lstrip()))
    assert got.text.splitlines() == [*text[:last], f"{indent}new", *text[last:]], got.reason


METHOD = "    def f(self):\n        return 1\n"


@pytest.mark.parametrize(
    ("target", "code", "fitted"),
    [
        (METHOD, METHOD.replace("1", "2"), METHOD.replace("1", "2")),
        # All of it lost, or added.
        (METHOD, "def f(self):\n\n    return 2\n", "    def f(self):\n\n        return 2\n"),
        ("x\n", "    y\n    if z:\n        w\n", "y\nif z:\n    w\n"),
        ("\tx\n", "y\n", "\ty\n"),
        ("    a\n    b\n", "if x:\n    a\n    b\n", "    if x:\n        a\n        b\n"),
        # The first line's alone.
        (METHOD, "def f(self):\n        return 2\n", "    def f(self):\n        return 2\n"),
        # Nothing that could mean one thing only.
        ("    return x\n", "    return x\n\n\ndef g():\n    pass\n", "    return x\n\n\ndef g():\n    pass\n"),
        ("        x = 1\n    y\n", "    z\n", "    z\n"),
        ("\tx\n", "    y\n", "    y\n"),
        ("    x\n", "", ""),
        ("\n", "  x\n", "  x\n"),
    ],
)
def test_indentation_is_put_back_where_it_was_lost_as_a_whole(target, code, fitted):
    assert indented_as(target, code) == fitted
