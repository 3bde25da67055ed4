"""Which lines are meant by one line: functions with their decorators, blocks, paragraphs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmlx_lsp.workspace.around import AROUND_LINES_MAX, around, trimmed

PYTHON = """\
import os
import re

LIMIT = 3


# Counts things.
@cache
@other(
    1,
)
def count(
    a,
    b,
):
    if a:
        for x in b:
            yield x

    return None


class Room:
    size = 3

    def one(self):
        return 1

    async def two(self):
        # why
        return 2


print(count)
"""
C = """\
#include <stdio.h>

int add(int a, int b)
{
    if (a) {
        return b;
    } else {
        return a;
    }
}

static int z = 3;
"""
JS = """\
test("a", () => {
  const x = 1;

  expect(x).toBe(1);
});

export default class A {
  // says it
  say() {
    return [
      1,
      2,
    ];
  }
}
"""
LUA = """\
local function f()
  if x then
    y()
  end
end
"""
PROSE = """\
One line.
Another one.

A second paragraph
of two lines.
"""


def line_of(text, word):
    return next(at for at, line in enumerate(text.splitlines(), 1) if word in line)


@pytest.mark.parametrize(
    ("text", "word", "lines"),
    [
        (PYTHON, "import re", (1, 2)),
        (PYTHON, "LIMIT", (4, 4)),
        (PYTHON, "yield x", (12, 20)),
        (PYTHON, "    b,", (12, 20)),
        (PYTHON, "):", (12, 20)),
        (PYTHON, "return None", (12, 20)),
        (PYTHON, "return 1", (26, 27)),
        (PYTHON, "def one", (26, 27)),
        (PYTHON, "# why", (29, 31)),
        (PYTHON, "size = 3", (23, 31)),
        (PYTHON, "print(", (34, 34)),
        (C, "return a", (3, 10)),
        (C, "int add", (3, 10)),
        (C, "static", (12, 12)),
        (C, "#include", (1, 1)),
        (JS, "const x", (1, 5)),
        (JS, "});", (1, 5)),
        (JS, "      2,", (8, 14)),
        (LUA, "y()", (1, 5)),
        (PROSE, "of two", (4, 5)),
        (PROSE, "One line", (1, 2)),
    ],
)
def test_what_is_around_a_line(text, word, lines):
    assert around(text.splitlines(keepends=True), line_of(text, word)) == lines


def test_decorators_and_comments_right_above_belong_to_it():
    text = "x = 1\n\n# Says it.\n@cache\ndef f():\n    pass\n"
    assert [around(text.splitlines(), at) for at in (3, 4, 5, 6)] == [(3, 6)] * 4


def test_a_blank_line_means_the_one_below_it():
    assert around(["a", "", "b"], 2) == (3, 3)
    assert around(["a", ""], 2) == (1, 1)
    assert around([""], 1) == (1, 1)
    assert around([], 1) == (1, 1)
    assert around(["", "", ""], 2) == (2, 2)
    assert around(["a"], 99) == (1, 1)
    assert around(["a"], -1) == (1, 1)


def test_a_large_one_is_cut_around_the_line():
    lines = ["def f():", *["    x()"] * 1_000]
    first, last = around(lines, 600)
    assert last - first + 1 == AROUND_LINES_MAX
    assert first <= 600 <= last


rows = st.sampled_from(["", "a", "    a", "        a", "if x:", "    if x:", "}", "    }", "{", "@d", "    # c", ")"])


@given(st.lists(rows, min_size=1, max_size=20), st.data())
@settings(deadline=None, max_examples=200)
def test_the_line_is_always_in_it(lines, data):
    at = data.draw(st.integers(1, len(lines)))
    first, last = around(lines, at)
    assert 1 <= first <= last <= len(lines)
    near = [at] if lines[at - 1] else [at, at + 1, at - 1]
    assert any(first <= line <= last for line in near)
    assert trimmed(lines, first, last) == (first, last)
