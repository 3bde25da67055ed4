"""What an answer says: whole blocks, cut ones, blocks in blocks."""

import pytest

from qmlx_lsp.workspace.blocks import Answer, Change, Code, answered, changes, fences, outside

PLAIN = "Here:\n```python\nx = 1\n```\nDone.\n"
CUT = "```python\nx = 1\n"


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (PLAIN, Answer((Code("x = 1\n", "python"),))),
        (PLAIN.replace("\n", "\r\n"), Answer((Code("x = 1\n", "python"),))),
        ("~~~\na\n~~~", Answer((Code("a\n"),))),
        ("```\n```\n", Answer((Code(""),))),
        ("no code, `x` and ```x``` only", Answer(())),
        (CUT, Answer((), cut=True)),
        (PLAIN + CUT, Answer((Code("x = 1\n", "python"),), cut=True)),
        (PLAIN + PLAIN, Answer((Code("x = 1\n", "python"), Code("x = 1\n", "python")))),
        # Fences of other kinds, longer ones, indented ones, and ones with a word belong to the code.
        ("````md\n```py\nx\n```\n````\n", Answer((Code("```py\nx\n```\n", "md"),))),
        ("```md\n```py\nx\n```\nmore\n```\n", Answer((Code("```py\nx\n```\nmore\n", "md"),))),
        ("```\n~~~\n```\n", Answer((Code("~~~\n"),))),
        ('```py\ndef f():\n    """\n    ```\n    f()\n    ```\n    """\n```\n',
         Answer((Code('def f():\n    """\n    ```\n    f()\n    ```\n    """\n', "py"),))),
        # A fence in a list is indented, and so is what stands in it.
        ("1. so:\n   ```js\n   a\n     b\n   ```\n", Answer((Code("a\n  b\n", "js"),))),
        ("```python title=x\na\n```", Answer((Code("a\n", "python"),))),
    ],
)  # fmt: skip
def test_fences(reply, found):
    assert fences(reply) == found


def test_what_is_outside_of_blocks():
    assert outside(f"a\n{PLAIN}b") == "a\nHere:\nDone.\nb"
    assert outside(f"a\n{CUT}") == f"a\n{CUT}"
    assert outside("") == ""


def test_thinking_in_front_is_no_answer():
    assert answered("<think>\n```\nno\n```\n</think>\n\nyes </think>") == "yes </think>"
    assert answered("a\r\n<think>") == "a\n<think>"


ONE = "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n"


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ("```\nx\n```", None),
        ("<<<<<<< HEAD\na\n=======\nb\n>>>>>>> main\n", None),
        (ONE, (Change("a\n", "b\n"),)),
        (f"```python\n{ONE}```\n", (Change("a\n", "b\n"),)),
        (f"src/a.py\n{ONE}", (Change("a\n", "b\n", "src/a.py"),)),
        (f"**`src/a.py`**:\n```\n{ONE}```\n", (Change("a\n", "b\n", "src/a.py"),)),
        (f"File: a.py\n{ONE}text\n{ONE}", (Change("a\n", "b\n", "a.py"), Change("a\n", "b\n"))),
        ("<<<<<<< SEARCH\n=======\nb\n>>>>>>> REPLACE", (Change("", "b\n"),)),
        ("<<<<<<< SEARCH\na\n=======\n>>>>>>> REPLACE", (Change("a\n", ""),)),
        ("<<<<<<< SEARCH\na\n=======\nb\n", "search/replace block 1 is not whole"),
        (f"{ONE}<<<<<<< SEARCH\na\n", "search/replace block 2 is not whole"),
        ("<<<<<<< SEARCH\na\nb\n>>>>>>> REPLACE\n", "it is not clear where search/replace block 1 ends"),
        (ONE.replace("b\n", "b\n=======\nc\n"), "it is not clear where search/replace block 1 ends"),
        (f"{ONE}>>>>>>> REPLACE\n", "it is not clear where search/replace block 1 ends"),
    ],
)
def test_changes(reply, found):
    assert changes(reply) == found


@pytest.mark.parametrize("line", ["~" * 100_000 + "`", "~~~" + " " * 100_000 + "`", "~~~" + "a" * 100_000 + "`"])
def test_a_long_line_that_is_nearly_a_fence_is_read_once(line):
    """Parted in all ways there are, it would be looked at for hours."""
    assert outside(line) == line


def test_a_text_of_fences_that_nothing_closes_is_not_read_once_for_each():
    text = "```a\n" * 50_000
    assert outside(text) == text
    closed = "```a\nx\n```\n"
    assert outside("~~~a\n" * 99 + closed) == "~~~a\n" * 99
