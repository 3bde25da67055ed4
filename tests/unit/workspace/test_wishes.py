"""Comments that say what is to be done, in every language's signs."""

import pytest

from qmlx_lsp.workspace.wishes import WISH_CHARS_MAX, Wish, unsaid, wish_on, wishes, without


@pytest.mark.parametrize(
    "line",
    [
        "# qmlx: do it", "    # qmlx: do it\n", "// qmlx: do it\r\n", "/// QMLX: do it", "-- qmlx: do it",
        "; qmlx: do it", ";; qmlx:do it", "<!-- qmlx: do it -->", "/* qmlx: do it */", "% qmlx: do it",
        '" qmlx: do it', "{- qmlx: do it -}", "(* qmlx: do it *)", "#qmlx: do it  ", "REM qmlx: do it",
    ],
)  # fmt: skip
def test_a_comment_of_its_own(line):
    assert wish_on(line, 7) == Wish(7, "do it")


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("x = 1  # qmlx: do it", "x = 1"), ("f(); // qmlx: do it", "f();"), ("  a /* qmlx: do it */", "  a"),
        ("<p> <!-- qmlx: do it -->", "<p>"),
    ],
)  # fmt: skip
def test_a_comment_behind_code(line, left):
    assert wish_on(line) == Wish(1, "do it", left)


@pytest.mark.parametrize(
    "line",
    ["", "# qmlx", "# qmlx:", "# qmlx:   ", "qmlx: do it", "# see qmlx: no", "x = '#qmlx: do it'", "#", "import qmlx",
     f"# qmlx: {'x' * 2 * WISH_CHARS_MAX}"],
)  # fmt: skip
def test_what_is_no_wish(line):
    assert wish_on(line) is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("# qmlx: a" + " " * (2 * WISH_CHARS_MAX - 10) + "x", ("a", "")),
        ("b # qmlx: a" + " " * (2 * WISH_CHARS_MAX - 12) + "x", ("a", "b")),
    ],
)
def test_a_line_of_blanks_is_read_once(line, said):
    """Tried at every blank, this would be waited for for half a minute, with every editor."""
    wish = wish_on(line)
    assert (wish.text.strip(), wish.left) == said


LINES = ["a\n", "# qmlx: one\n", "b # qmlx: two\r\n", "c"]


def test_those_of_some_lines_and_the_lines_without_them():
    found = wishes(LINES, (2, 99))
    assert found == [Wish(2, "one"), Wish(3, "two", "b")]
    assert without(LINES[1:], 2, found) == ["b\r\n", "c"]
    assert wishes(LINES, (-3, 1)) == []
    assert without(LINES, 1, []) == LINES


def test_a_reply_that_says_it_again():
    said = [Wish(2, "one"), Wish(3, "two")]
    assert unsaid("x\n    # qmlx: one\ny // qmlx: two\n# qmlx: other\n", said) == "x\ny\n# qmlx: other\n"
