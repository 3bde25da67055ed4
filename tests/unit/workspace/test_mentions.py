"""What a question names with @, and what only looks like it."""

import pytest

from qmlx_lsp.workspace.mentions import Mention, mentions


@pytest.mark.parametrize(
    ("question", "want"),
    [
        ("What is @src/a.py?", [Mention("src/a.py")]),
        ("@a.py:10-40, please", [Mention("a.py", (10, 40))]),
        ("(@a.py:7)", [Mention("a.py", (7, 7))]),
        ("@a.py:40-10", [Mention("a.py", (10, 40))]),
        ("@a.py:0", [Mention("a.py", (1, 1))]),
        ("see @a.py. And @b.py...", [Mention("a.py"), Mention("b.py")]),
        ('@"a b.py":3-4 and @"c d.md"', [Mention("a b.py", (3, 4)), Mention("c d.md")]),
        ("@a.py @a.py", [Mention("a.py")]),
        ("@src/über/ö.py\u2026", [Mention("src/über/ö.py")]),
        ("@Makefile", [Mention("Makefile")]),
        ("@property def x", [Mention("property")]),
        ("mail me@example.com or a/@b", []),
        ("@@ -1,2 +1,2 @@", []),
        ("`@a.py`", [Mention("a.py")]),
        ("@ a.py", []),
        ("@", []),
        ('@""', []),
        ("@a.py:12:3", [Mention("a.py:12", (3, 3))]),
    ],
)
def test_mentions(question, want):
    assert mentions(question) == want


def test_code_in_a_fenced_block_names_nothing():
    asked = "Why @a.py?\n```python\n@b.py:3\n@cache\n```\nand @c.py"
    assert [mention.path for mention in mentions(asked)] == ["a.py", "c.py"]
    assert [mention.path for mention in mentions("```\n@open.py")] == ["open.py"]
