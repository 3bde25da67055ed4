"""Minimal edits with their line ends; lines that are found again, and those that could be others."""

import pytest

from qmlx_lsp.workspace.edits import Replace, apply, line_at, line_end, minimal, rebase


@pytest.mark.parametrize(
    ("old", "new", "edits"),
    [
        ("a\nb\nc\n", "a\nB\nc\n", [Replace(2, 4, "B\n")]),
        ("a\r\nb\r\nc\r\n", "a\nB\nc\n", [Replace(3, 6, "B\r\n")]),
        ("a\rb\rc\r", "a\nB\nc\n", [Replace(2, 4, "B\r")]),
        ("a\r\nb\nc\r\n", "a\nB\nC\n", [Replace(3, 8, "B\nC\r\n")]),
        ("a\r\nb\n", "a\nx\nb\n", [Replace(3, 3, "x\r\n")]),
        ("a\n\r\n", "b\n\n", [Replace(0, 2, "b\n")]),
        ("a\r\n", "a\nb\nc\n", [Replace(3, 3, "b\r\nc\r\n")]),
        ("a", "b\n", [Replace(0, 1, "b")]),
        ("a\nb", "a\nb\nc\n", [Replace(3, 3, "\nc")]),
        ("a\r\nb", "a\nb\nc", [Replace(4, 4, "\r\nc")]),
        ("a\r\nb", "a\n", [Replace(1, 4, "")]),
        ("a\nb\n", "a\n", [Replace(2, 4, "")]),
        ("a\n", "", [Replace(0, 2, "")]),
        ("", "a\nb", [Replace(0, 0, "a\nb")]),
        ("", "a\n", [Replace(0, 0, "a\n")]),
        ("a\nb\n", "a\nb", [Replace(3, 4, "")]),
        ("a\r\nb", "a\nb\n", [Replace(4, 4, "\r\n")]),
        ("a\r\nb\r\n", "a\nb\n", []),
        ("a \n\tb\n", "a\n\tb\n", [Replace(0, 3, "a\n")]),
        ("a\x0cb\u2028c\nd\n", "a\x0cb\u2028c\nD\n", [Replace(6, 8, "D\n")]),
    ],
)
def test_only_what_differs_and_with_the_ends_around_it(old, new, edits):
    assert minimal(old, new) == edits
    assert apply(old, edits).replace("\r\n", "\n").replace("\r", "\n").rstrip("\n") == new.rstrip("\n")


def test_a_part_that_says_nothing_of_line_ends_takes_those_around_it():
    assert minimal("a", "b\nc\n", "\r\n") == [Replace(0, 1, "b\r\nc")]
    assert minimal("a", "b\nc\n") == [Replace(0, 1, "b\nc")]


def test_how_the_lines_of_a_text_end():
    assert line_end("a\r\nb\nc\r\n") == "\r\n"
    assert line_end("a\nb\r\n") == "\n"
    assert line_end("a") == line_end("") == "\n"
    assert line_end("a\rb\rc\n") == line_end("a\rb\n") == line_end("\r") == "\r"


def test_the_line_of_a_place():
    text = "a\r\nb\rc\n\n"
    assert [line_at(text, at) for at in (0, 1, 3, 5, 7, 8)] == [0, 0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("old", "new", "lines", "found"),
    [
        ("a\nb\nc\n", "a\nb\nc\n", (2, 3), (2, 3)),
        ("a\nb\nc\n", "x\ny\na\nb\nc\n", (2, 2), (4, 4)),
        ("a\nb\nc\n", "b\nc\n", (2, 2), (1, 1)),
        ("a\nb\nc\n", "a\nb\nz\nc\n", (2, 2), (2, 2)),
        ("a\nb\nc\n", "a\nB\nc\n", (2, 2), None),
        ("a\nb\nc\n", "a\nb\nz\nc\n", (2, 3), None),
        ("a\nb\nc\n", "", (2, 2), None),
        # The line is there once more; which one is meant is told by what stands on both sides, or not at all.
        ("f\n}\ng\n}\nh\n", "f\n}\ng\n}\nh\n}\n", (2, 2), (2, 2)),
        ("a\nx\nb\n", "a\nx\nx\nb\n", (2, 2), None),
        ("x\n", "x\nx\n", (1, 1), None),
        ("x\na\nx\n", "a\nx\nx\n", (1, 1), None),
        ("x\na\nx\n", "new\nx\na\nx\n", (3, 3), (4, 4)),
        # Line ends are not what lines are known by.
        ("a\r\nb\r\n", "z\na\nb\n", (2, 2), (3, 3)),
        ("apple\nbanana", "\napple\nbanana", (1, 1), (2, 2)),
        # No lines of the text at all.
        ("a\n", "a\n", (0, 1), None),
        ("a\n", "a\n", (2, 1), None),
        ("a", "a", (1, 2), None),
    ],
)
def test_lines_are_found_again_or_not_at_all(old, new, lines, found):
    assert rebase(old, new, *lines) == found
