"""The small unified diff: its exact form, line ends, and that it stays cheap."""

import random
import time

import pytest

from qmlx_lsp.workspace import diff
from qmlx_lsp.workspace.diff import unified


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        ("a\nb\nc\n", "a\nB\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"),
        ("", "a\n", "@@ -0,0 +1,1 @@\n+a\n"),
        ("a\n", "", "@@ -1,1 +0,0 @@\n-a\n"),
        ("a", "a\n", "@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a\n"),
        ("a\nb", "a\nc", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n"),
        ("a\nb", "x\nb", "@@ -1,2 +1,2 @@\n-a\n+x\n b\n\\ No newline at end of file\n"),
        ("a\r\nb\r\n", "a\r\nb\r\nc\r\n", "@@ -1,2 +1,3 @@\n a\n b\n+c\n"),
        ("a\x0cb\n", "a\x0cc\n", "@@ -1,1 +1,1 @@\n-a\x0cb\n+a\x0cc\n"),
        ("1\n2\n3\n4\n5\n6\n", "1\n2\n3\n4\n5\n6\n7\n", "@@ -5,2 +5,3 @@\n 5\n 6\n+7\n"),
    ],
)
def test_small_changes_have_the_exact_text(old, new, want):
    assert unified(old, new) == want


@pytest.mark.parametrize("old", ["a\nb\n", "a\r\nb\r\n", "a\rb\r", "a\r\nb\n"])
@pytest.mark.parametrize("new", ["a\nb\n", "a\rb\n"])
def test_line_ends_alone_are_no_change(old, new):
    assert unified(old, new) == ""


def test_changes_four_lines_apart_share_a_hunk_and_five_apart_do_not():
    lines = [f"{number}\n" for number in range(20)]
    near, far = lines.copy(), lines.copy()
    near[3] = near[8] = far[3] = far[9] = "x\n"
    assert unified("".join(lines), "".join(near)).count("@@ -") == 1
    assert unified("".join(lines), "".join(far)) == (
        "@@ -2,5 +2,5 @@\n 1\n 2\n-3\n+x\n 4\n 5\n@@ -8,5 +8,5 @@\n 7\n 8\n-9\n+x\n 10\n 11\n"
    )


def test_context_lines_may_be_none():
    assert unified("a\nb\nc\n", "a\nB\nc\n", context_lines=0) == "@@ -2,1 +2,1 @@\n-b\n+B\n"


def test_distant_edits_among_many_repeated_lines_are_two_small_hunks():
    old = "".join(f"def f{number}():\n    return\n\n" for number in range(3000))
    new = old.replace("def f100():\n", "def f100():\n    x\n").replace("def f2900():\n    return\n", "def f2900():\n")
    assert unified(old, new) == (
        "@@ -300,4 +300,5 @@\n \n def f100():\n+    x\n     return\n \n"
        "@@ -8700,5 +8701,4 @@\n \n def f2900():\n-    return\n \n def f2901():\n"
    )


def test_inserted_function_is_not_spread_over_its_neighbours():
    function = "def {0}():\n    pass\n\n"
    old = function.format("a") + function.format("c")
    new = function.format("a") + function.format("b") + function.format("c")
    assert unified(old, new) == "@@ -2,4 +2,7 @@\n     pass\n \n+def b():\n+    pass\n+\n def c():\n     pass\n"


def test_repeated_lines_without_an_anchor_beyond_the_bound_still_keep_head_and_tail():
    old = "a\nb\n" * 3000
    new = f"{old[:1000]}x\n{old[1000:9000]}y\n{old[9000:]}"
    got = unified(old, new)
    assert got.count("@@ -") == 1
    assert got.count("\n") < 2 * 4000 + 10


def test_work_beyond_the_bound_becomes_one_replacement(monkeypatch):
    monkeypatch.setattr(diff, "MAX_WORK", 10)
    old, new = "s\n" + "a\nb\n" * 5 + "e\n", "s\n" + "b\na\n" * 5 + "e\n"
    body = "".join(f"-{line}\n" for line in "ab" * 5) + "".join(f"+{line}\n" for line in "ba" * 5)
    assert unified(old, new) == f"@@ -1,12 +1,12 @@\n s\n{body} e\n"


@pytest.mark.parametrize("kinds", [2, 50, 1500])
def test_random_texts_of_few_different_lines_stay_cheap(kinds):
    dice = random.Random(kinds)
    old, new = ("".join(f"{dice.randrange(kinds)}\n" for _ in range(3000)) for _ in range(2))
    started = time.perf_counter()
    unified(old, new)
    assert time.perf_counter() - started < 2
