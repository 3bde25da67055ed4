"""What has vanished and what is new: the same file or not."""

from qmlx_lsp.workspace.renames import COMPARED_MAX, Rename, common, groups, pair
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


def test_files_that_moved_together_are_one_line():
    renames = [Rename(f"src/old/{name}", f"src/new/{name}", TEXT) for name in ("a.py", "b/c.py", "d.py")]
    assert groups([*renames, Rename("x.py", "y.py", TEXT)]) == [renames]
    assert common(renames, {"src/other.py"}) == "Folder src/old was renamed to src/new (3 files).\n"
    assert common(renames, {"src/old/left.py"}) == "Files were moved from src/old to src/new: a.py, b/c.py, d.py.\n"
    assert groups(renames[:2]) == []
    assert groups([Rename(f"old/{n}.py", f"{n}.py", TEXT) for n in range(4)]) == []


def test_a_thousand_files_are_compared_in_no_time_worth_mentioning(monkeypatch):
    """By counting: no more pairs of texts are compared than is allowed."""
    compared = []
    monkeypatch.setattr(
        "qmlx_lsp.workspace.renames.unified", lambda one, _other: compared.append(one) or "x" * len(one)
    )
    vanished = {f"a{n}.py": TEXT.replace("number 7", f"number {n} seven") for n in range(200)}
    homes = {f"b{n}.py": TEXT.replace("number 8", f"number {n} eight") for n in range(50)}
    assert pair(vanished, homes) == []
    assert len(compared) <= COMPARED_MAX
