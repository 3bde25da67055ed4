"""What is told of a file: exact blocks, once each, and nothing of a binary or oversized one."""

import pytest

from qmlx_lsp.workspace.told import STALE, Limits, Shown, Telling, is_named, mention, named, recall, tell

LIMITS = Limits(max_file_bytes=1_000, max_diff_share=0.5)
TEXT = "".join(f"line {number}\n" for number in range(40))


def test_first_sight_tells_the_whole_text():
    assert tell("src/a.py", None, "x = 1\n", LIMITS) == Telling(
        "src/a.py", "whole", "File src/a.py:\n```python\nx = 1\n```\n", "x = 1\n"
    )


def test_later_sight_tells_the_difference():
    new = TEXT.replace("line 7\n", "seven\n")
    want = "Change in a.txt:\n```diff\n@@ -6,5 +6,5 @@\n line 5\n line 6\n-line 7\n+seven\n line 8\n line 9\n```\n"
    assert tell("a.txt", TEXT, new, LIMITS) == Telling("a.txt", "diff", want, new)


def test_same_text_is_not_told_again():
    assert tell("a.py", TEXT, TEXT, LIMITS) is None
    assert tell("a.py", None, None, LIMITS) is None


@pytest.mark.parametrize("other", [TEXT.replace("\n", "\r\n"), TEXT.replace("\n", "\r"), "\ufeff" + TEXT])
def test_line_ends_and_byte_order_mark_are_no_change_and_are_not_shown(other):
    assert tell("a.txt", TEXT, other, LIMITS) is None
    assert tell("a.txt", other, TEXT, LIMITS) is None
    first = tell("a.txt", None, other, LIMITS)
    assert first == Telling("a.txt", "whole", f"File a.txt:\n```txt\n{TEXT}```\n", other)
    assert tell("a.txt", first.told, other, LIMITS) is None


def test_difference_longer_than_its_share_gives_way_to_the_whole_text():
    new = "".join(f"row {number}\n" for number in range(40))
    telling = tell("a.rs", TEXT, new, LIMITS)
    assert telling == Telling("a.rs", "whole", f"File a.rs (new text):\n```rust\n{new}```\n", new)


def test_emptied_file_is_told_as_empty():
    assert tell("a.py", TEXT, "", LIMITS).text == "File a.py (new text):\n```python\n```\n"


def test_deletion_is_told_once_and_a_new_file_of_the_name_is_whole_again():
    gone = tell("a.py", TEXT, None, LIMITS)
    assert gone == Telling("a.py", "gone", "File a.py was deleted.\n", None)
    assert tell("a.py", gone.told, None, LIMITS) is None
    assert tell("a.py", gone.told, "x\n", LIMITS).text == "File a.py:\n```python\nx\n```\n"


def test_oversized_file_is_named_once_however_it_grows_and_told_when_it_shrinks():
    big = tell("a.py", None, "x=1;" * 2_500_000, LIMITS)
    assert big.form == "named"
    assert big.text == "File a.py is not shown: too large (10.0 MB).\n"
    assert is_named(big.told)
    assert tell("a.py", big.told, "x" * 1_001, LIMITS) is None
    assert tell("a.py", big.told, "x\n", LIMITS).text == "File a.py:\n```python\nx\n```\n"
    assert tell("a.py", big.told, None, LIMITS).form == "gone"
    assert tell("a.py", TEXT, "y" * 2_000, LIMITS).text == "File a.py is not shown: too large (2.0 kB).\n"


def test_size_is_counted_in_utf8_bytes():
    assert tell("a", None, "é" * 500, LIMITS).form == "whole"
    assert tell("a", None, "é" * 501, LIMITS).form == "named"


@pytest.mark.parametrize("text", ["a\0b", "caf\udce9\n", "\0binary", "\0too large"])
def test_binary_and_undecodable_texts_are_named_once(text):
    telling = tell("a.bin", None, text, LIMITS)
    assert telling == Telling("a.bin", "named", "File a.bin is not shown: binary.\n", telling.told)
    assert tell("a.bin", telling.told, text, LIMITS) is None
    assert tell("a.bin", telling.told, "x" * 2_000, LIMITS).text.endswith("too large (2.0 kB).\n")


def test_marker_of_another_reason_is_no_text_even_for_a_file_that_holds_it():
    too_large = named("a", None, "too large", 5_000)
    assert too_large.text == "File a is not shown: too large (5.0 kB).\n"
    assert tell("a", too_large.told, too_large.told, LIMITS).text == "File a is not shown: binary.\n"


def test_marker_can_be_stored_as_utf8():
    assert named("a", None, "too large").told.encode().decode() == named("a", None, "too large").told


def test_fence_is_longer_than_any_in_the_text():
    text = "a\n````\nb\n```\n"
    assert tell("a.md", None, text, LIMITS).text == f"File a.md:\n`````md\n{text}`````\n"
    assert tell("a.md", None, "a`b``c\n", LIMITS).text == "File a.md:\n```md\na`b``c\n```\n"


def test_fence_of_a_difference_is_longer_than_any_in_its_lines():
    new = TEXT.replace("line 7\n", "```\n")
    assert tell("a.txt", TEXT, new, LIMITS).text.startswith("Change in a.txt:\n````diff\n")


def test_missing_last_line_break_does_not_swallow_the_fence():
    assert tell("a.py", None, "x", LIMITS).text == "File a.py:\n```python\nx\n```\n"


@pytest.mark.parametrize(
    ("path", "fence"),
    [("a.tsx", "```tsx"), ("Makefile", "```"), (".bashrc", "```"), ("a.PY", "```python"), ("a.`x", "```")],
)
def test_language_comes_from_the_suffix(path, fence):
    assert tell(path, None, "x\n", LIMITS).text.split("\n")[1] == fence


def test_path_cannot_break_out_of_the_header():
    telling = tell("a\nFile b.py:\u2028\udcff.py", None, "x\n", LIMITS)
    assert telling.text == "File a\\u000aFile b.py:\\u2028\\udcff.py:\n```python\nx\n```\n"


@pytest.mark.parametrize(
    ("start", "end", "want"),
    [
        (2, 3, "Lines 2-3 of a.py:\n```python\nb\nc\n```\n"),
        (3, 2, "Lines 2-3 of a.py:\n```python\nb\nc\n```\n"),
        (0, 1, "Lines 1-1 of a.py:\n```python\na\n```\n"),
        (4, 99, "Lines 4-4 of a.py:\n```python\nd\n```\n"),
    ],
)
def test_mention_shows_the_lines_counted_from_one(start, end, want):
    assert mention("a.py", "\ufeffa\r\nb\rc\nd", start, end) == want


def test_mention_of_an_empty_text_is_an_empty_block():
    assert mention("a.py", "", 1, 1) == "Lines 1-1 of a.py:\n```python\n```\n"


def test_parts_are_shown_with_what_is_left_out_between_them():
    telling = tell("a.txt", None, TEXT, LIMITS, [(2, 3), (39, 40)])
    assert telling.form == "part"
    assert telling.text == (
        "Lines 2-3, 39-40 of a.txt, which has 40:\n```txt\nline 1\nline 2\n"
        "\u22ef lines 4-38 \u22ef\nline 38\nline 39\n```\n"
    )
    assert recall(telling.told) == Shown(TEXT, ((2, 3), (39, 40)))
    assert not is_named(telling.told)
    assert tell("a.txt", telling.told, TEXT, LIMITS) is None
    assert tell("a.txt", telling.told, TEXT, LIMITS, [(2, 2), (40, 40)]) is None


def test_more_parts_are_added_and_changes_are_differences_wherever_they_are():
    first = tell("a.txt", None, TEXT, LIMITS, [(2, 3)])
    more = tell("a.txt", first.told, TEXT, LIMITS, [(3, 5)])
    assert more.text == "Lines 4-5 of a.txt, which has 40:\n```txt\nline 3\nline 4\n```\n"
    assert recall(more.told).parts == ((2, 5),)
    changed = "new\n" + TEXT.replace("line 30\n", "thirty\n")
    diff = tell("a.txt", more.told, changed, LIMITS)
    assert diff.form == "diff"
    assert "+new\n" in diff.text
    assert "-line 30\n+thirty\n" in diff.text
    # The parts stand a line further down, and the changes with their context have been seen as well.
    assert recall(diff.told) == Shown(changed, ((1, 6), (30, 34)))
    both = tell("a.txt", more.told, changed, LIMITS, [(20, 21)])
    assert both.text.startswith(diff.text)
    assert both.text.endswith("Lines 20-21 of a.txt, which has 41:\n```txt\nline 18\nline 19\n```\n")


def test_a_large_change_of_a_part_shows_parts_anew():
    first = tell("a.txt", None, TEXT, LIMITS, [(2, 3)])
    new = "".join(f"row {number}\n" for number in range(40))
    telling = tell("a.txt", first.told, new, LIMITS, [(1, 1)])
    assert telling.text == "Lines 1-1 of a.txt, which has 40 (new text):\n```txt\nrow 0\n```\n"
    assert recall(telling.told) == Shown(new, ((1, 1),))


def test_what_was_out_of_date_is_told_whole_as_new():
    telling = tell("a.txt", STALE, TEXT, LIMITS)
    assert telling == Telling("a.txt", "whole", f"File a.txt (new text):\n```txt\n{TEXT}```\n", TEXT)
    assert recall(STALE) is None
    assert is_named(STALE)
