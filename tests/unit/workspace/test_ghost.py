"""What of a model's text is shown at a cursor: where it ends, what is taken off, what is nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmlx_lsp.workspace.ghost import Cursor, Ending, fitted, indent_of, wants_block


def line(before, behind="", following=(), **more):
    return Cursor(before, behind, list(following), block=False, max_lines=9, **more)


def block(before, following=(), **more):
    return Cursor(before, "", list(following), **({"block": True, "max_lines": 9} | more))


@pytest.mark.parametrize(
    ("written", "cursor", "shown"),
    [
        # one line
        ("um(x)\nreturn\n", line("s"), "um(x)"),
        ("um(x)   \n", line("s"), "um(x)"),
        ("\nnext line\n", line("done()"), ""),
        ("", line("s"), ""),
        ("   \n", line("s"), ""),
        ("```\nThat is all.", line("s"), ""),
        ("um(x)\n```\nThat is all.", line("s"), "um(x)"),
        (" 5\n", line("x = "), "5"),  # the space is there
        ("return x + 1\n", line("    return x"), " + 1"),  # the line's beginning, once more
        ("re\n", line("a"), "re"),  # too short to be a repetition
        # what stands behind the cursor on its line (complaint 12)
        ("x)\n", line("print(", ")"), "x"),
        ("x):\n", line("if f(", "):"), "x"),
        ("'a']\n", line("d[", "]"), "'a'"),
        ("a[0])\n", line("f(", ")"), "a[0]"),
        ("a) + g(b\n", line("f(", ")"), "a"),
        ("a, b\n", line("f(", ", c)"), "a, b"),
        ("a, c)\n", line("f(", ", c)"), "a"),
        ("value\n", line("x = ", " else 1"), "value"),  # no part of a word is taken off
        ('abc"\n', line('x = "', '"'), "abc"),
        # blocks
        ("a = 1\n    b = 2\nc = 3\n", block("    "), "a = 1\n    b = 2"),
        ("a = 1\n\n\n\n    b = 2\n", block("    "), "a = 1"),
        ("\n    return 1\n\ndef g():\n    pass", block("def f():"), "\n    return 1"),
        (" x\n    y\n}\nfoo()\n", block("  if (a) {"), " x\n    y"),
        ("\n    x();\n  } else {\n    y();\n  }\n}\n", block("  if (a) {"), "\n    x();\n  } else {\n    y();\n  }"),
        ("a\n    a\n    a\n    a\n", block("    "), "a"),
        ("a = 1\n    b = 2\n    c = 3", block("    ", max_lines=2), "a = 1\n    b = 2"),
        # what follows in the file (B2, complaint of doubled lines)
        ("a = 1\n    return a\n", block("    ", ["    return a"]), "a = 1"),
        ("a = 1\n}\n", block("", ["}"]), "a = 1"),
        ("return a\n", block("    ", ["    return a", ""]), ""),
        ("a = 1\n    b = 2\n    c = 3\n", block("    ", ["", "    b = 2", "    c = 3"]), "a = 1"),
        # indentation and line ends (complaints 13 and 14)
        ("a\n        b\n", block("\t", indent="\t"), "a\n\t\tb"),
        ("a\n\t\tb\n", block("    "), "a\n        b"),
        ("a\n    b\n", block("    ", eol="\r\n"), "a\r\n    b"),
        ("a\r\n    b\r\n", block("    "), "a\n    b"),
        ("é\ufffd", line("x = "), "é"),  # cut inside a character
    ],
)
def test_shown(written, cursor, shown):
    assert fitted(written, cursor) == shown


@pytest.mark.parametrize(
    ("before", "behind", "invoked", "wanted"),
    [
        ("    ", "", False, True), ("def f():", "", False, True), ("x = [", "", False, True),
        ("x = y", "", False, False),
        ("x = y", "", True, True), ("f(", ")", True, False), ("foo(a, ", "", False, True), ("", "", False, True),
    ],
)  # fmt: skip
def test_where_several_lines_are_wanted(before, behind, invoked, wanted):
    assert wants_block(before, behind, invoked=invoked) is wanted


@pytest.mark.parametrize(
    ("lines", "indent"),
    [([], "    "), (["\tx"], "\t"), (["  x", "    y"], "  "), (["    x", "        y"], "    "), (["a", "b"], "    ")],
)
def test_indentation_of_a_document(lines, indent):
    assert indent_of(lines) == indent


def decided(pieces, cursor, given=""):
    """How many pieces are read until it is known what to show."""
    ending = Ending(cursor, given)
    return next((at for at, piece in enumerate(pieces, 1) if ending.feed(piece)), None)


def test_no_more_is_read_than_decides_it():
    assert decided(["um", "(x)", "\n", "more"], line("s")) == 3
    assert decided(["\n", "more"], line("done()")) == 1
    assert decided(["a", "\n", "    b", "\n", "c", "\n", "d\n"], block("    ")) == 6
    assert decided(["```", "\n"], line("s")) == 1
    assert decided([" x\n"], line("s"), given=" x") == 1  # the end of the line behind what was there already
    assert decided(["\n    ", "x", " = 1", "\n"], line("y"), given="\n    ") == 4
    assert decided(["a", "b", "c"], line("s")) is None
    assert decided(["a\n", "    b\n", "    c\n", "    d"], block("    ", max_lines=2)) == 2


TEXT = st.text(alphabet="ab(){}[]:'\" \t\n", max_size=60)


@given(TEXT, TEXT.map(lambda t: t.replace("\n", "")), TEXT.map(lambda t: t.replace("\n", "")), st.booleans())
def test_whatever_is_written_what_is_shown_fits(written, before, behind, wanted):
    cursor = Cursor(before, behind, ["following()", "}"], block=wanted and not behind.strip(), max_lines=3)
    shown = fitted(written, cursor)
    assert shown == "" or shown.strip()
    assert shown.count("\n") < 3
    assert cursor.block or "\n" not in shown
    if not behind.strip():
        assert shown == shown.rstrip()
    assert fitted(shown, cursor) in (shown, "", fitted(fitted(shown, cursor), cursor))


@given(st.lists(st.sampled_from(["a", "\n", "    ", "b()", "```", "}", " "]), max_size=30), st.booleans())
def test_where_it_is_decided_nothing_changes_any_more(pieces, wanted):
    """What is shown of all that a model would write is shown of what it wrote up to the end."""
    cursor = block("    ", ["", "next()"], max_lines=3) if wanted else line("x")
    count = decided(pieces, cursor)
    if count is not None:
        assert fitted("".join(pieces[:count]), cursor) == fitted("".join(pieces), cursor)


def test_the_rest_of_a_line_may_be_a_megabyte():
    """Compared with every beginning of it, a completion would cost minutes, with every editor waiting."""
    behind = "', " + "x" * 1_000_000
    assert fitted("abc', \n", line("f('", behind)) == "abc"
