"""A burst of changes as one short text."""

import pytest

from qmlx_lsp.workspace.changes import Changes
from qmlx_lsp.workspace.summary import CHARS_MIN, LINES_MIN, summary


def many(pattern, count):
    return frozenset(pattern.format(n) for n in range(count))


def test_few_files_are_named():
    changes = Changes(frozenset(["new.py"]), frozenset(["src/b.py", "src/a.py"]), frozenset(["old/x"]))
    assert summary(changes) == (
        "On disk 4 files changed (2 changed, 1 new, 1 deleted):\n"
        "- new.py: new\n- old/x: deleted\n- src/a.py: changed\n- src/b.py: changed\n"
    )


def test_many_files_are_counted_where_they_are():
    changes = Changes(
        many("src/parser/{}.py", 340) | many("docs/{}.md", 3), many("src/{}.py", 2_000), many("old/a/b/{}", 12)
    )
    assert summary(changes, 7, because="The branch is now feature/x.") == (
        "The branch is now feature/x.\n"
        "On disk 2,355 files changed (2,000 changed, 343 new, 12 deleted):\n"
        "- elsewhere in src/: 2,000 files\n- src/parser/: 340 files\n- old/a/b/: 12 files\n- docs/: 3 files\n"
    )


def test_a_folder_with_too_many_folders_shows_the_largest():
    changes = Changes(changed=many("p/a/{}", 50) | many("p/b/{}", 40) | many("p/c/{}", 30) | many("q/{}", 35))
    assert summary(changes, 4) == (
        "On disk 155 files changed (155 changed):\n- elsewhere in p/: 70 files\n- p/a/: 50 files\n- q/: 35 files\n"
    )


def test_files_of_a_folder_are_named_all_or_none():
    changes = Changes(changed=many("p/{}", 3) | many("{}", 4))
    assert summary(changes, 6) == (
        "On disk 7 files changed (7 changed):\n"
        "- p/: 3 files\n- 0: changed\n- 1: changed\n- 2: changed\n- 3: changed\n"
    )
    assert summary(changes, 4) == "On disk 7 files changed (7 changed):\n- elsewhere: 4 files\n- p/: 3 files\n"
    assert summary(Changes(many("{}", 9)), 5) == "On disk 9 files changed (9 new):\n- the top folder: 9 files\n"


def test_one_file_and_none():
    assert summary(Changes(removed=frozenset(["a"]))) == "On disk 1 file changed (1 deleted):\n- a: deleted\n"
    assert summary(Changes()) == "On disk nothing changed.\n"


def test_no_name_breaks_out_of_its_line():
    changes = Changes(frozenset(["a\nOn disk 9 files", "b\udcff", "c\u2028d/e"]))
    assert summary(changes, because="The branch is now x\ny.") == (
        "The branch is now x\\u000ay.\nOn disk 3 files changed (3 new):\n"
        "- a\\u000aOn disk 9 files: new\n- b\\udcff: new\n- c\\u2028d/e: new\n"
    )


def test_long_names_give_way_to_a_count():
    changes = Changes(many("{}" + "x" * 250, 5))
    text = summary(changes, 40, CHARS_MIN)
    assert text == f"On disk 5 files changed (5 new):\n- 0{'x' * 250}: new\n- 4 more places: 4 files\n"


def test_a_long_reason_is_cut():
    text = summary(Changes(frozenset("a")), LINES_MIN, CHARS_MIN, "b" * 5_000)
    assert text == f"{'b' * 200}\nOn disk 1 file changed (1 new):\n- a: new\n"


@pytest.mark.parametrize(("lines", "chars"), [(LINES_MIN - 1, CHARS_MIN), (LINES_MIN, CHARS_MIN - 1)])
def test_limits_that_hold_nothing_are_a_fault(lines, chars):
    with pytest.raises(AssertionError):
        summary(Changes(), lines, chars)
