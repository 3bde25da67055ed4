"""What has vanished and what is new: the same file or not."""

from qmlx_lsp.workspace.renames import Rename, folders, pair
from qmlx_lsp.workspace.told import Limits, moved, tell

LIMITS = Limits(100_000, 0.6)
TEXT = "".join(f"line number {n}\n" for n in range(30))
OTHER = "".join(f"quite another text {n * 7}\n" for n in range(30))


def test_equal_texts_are_one_file_whatever_it_is_called():
    assert pair({"a.py": TEXT}, {"b.txt": TEXT, "c.py": OTHER}) == [Rename("a.py", "b.txt", TEXT)]
    assert pair({"a.py": TEXT}, {"b.py": TEXT.replace("\n", "\r\n")}) == [Rename("a.py", "b.py", TEXT)]


def test_similar_texts_are_one_file_if_they_end_alike():
    near = TEXT.replace("number 7", "number seven")
    assert pair({"a.py": TEXT}, {"b.py": near}) == [Rename("a.py", "b.py", TEXT)]
    assert pair({"a.py": TEXT}, {"b.md": near}) == []
    assert pair({"a.py": TEXT}, {"b.py": OTHER}) == []


def test_equal_ones_are_paired_before_similar_ones_and_each_once():
    near = TEXT.replace("number 7", "number seven")
    found = pair({"a.py": near, "b.py": TEXT}, {"x.py": TEXT})
    assert found == [Rename("b.py", "x.py", TEXT)]
    assert pair({"a.py": TEXT, "b.py": TEXT}, {"x.py": TEXT}) == [Rename("a.py", "x.py", TEXT)]


def test_the_same_name_is_preferred_and_short_texts_prove_nothing():
    assert pair({"p/a.py": TEXT}, {"q/z.py": TEXT, "q/a.py": TEXT}) == [Rename("p/a.py", "q/a.py", TEXT)]
    assert pair({"p/__init__.py": ""}, {"q/b.py": ""}) == []
    assert pair({"p/__init__.py": ""}, {"q/__init__.py": ""}) == [Rename("p/__init__.py", "q/__init__.py", "")]


def test_a_rename_is_one_line_and_a_change_on_the_way_a_difference():
    assert moved("a.py", "b.py", TEXT, TEXT, LIMITS).text == "File a.py was renamed to b.py.\n"
    telling = moved("a.py", "b.py", TEXT, TEXT.replace("number 7", "number seven"), LIMITS)
    assert telling.text.startswith("File a.py was renamed to b.py.\nChange in b.py:\n```diff\n")
    assert "-line number 7\n+line number seven\n" in telling.text
    assert telling.told == TEXT.replace("number 7", "number seven")


def test_what_was_shown_in_parts_stays_so_under_its_new_name():
    part = tell("a.py", None, TEXT, LIMITS, [(3, 5)])
    telling = moved("a.py", "b.py", part.told, TEXT, LIMITS)
    assert telling.text == "File a.py was renamed to b.py.\n"
    assert telling.told == part.told


def test_a_folder_that_was_moved_is_one_line():
    renames = [Rename(f"src/old/{name}", f"src/new/{name}", TEXT) for name in ("a.py", "b/c.py", "d.py")]
    lines, covered = folders([*renames, Rename("x.py", "y.py", TEXT)])
    assert lines == ["Folder src/old was renamed to src/new (3 files).\n"]
    assert covered == renames
    assert folders(renames[:2]) == ([], [])
    flat = [Rename(f"old/{n}.py", f"{n}.py", TEXT) for n in range(4)]
    assert folders(flat) == ([], [])
