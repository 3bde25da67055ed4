"""Parts of a large file: what is looked at, what was asked about, and never more than the budget."""

import itertools

import pytest

from qmlx_lsp.workspace.parts import merged, missing, relevant, words

FUNCTIONS = "import os\n\n" + "\n".join(
    f"def function_{n}(value):\n    first = value\n    return first + {n}\n" for n in range(40)
)
LINES = FUNCTIONS.splitlines(keepends=True)
SPECIAL = FUNCTIONS.replace("    return first + 25\n", "    return quicksort(first)\n")


def lines_counted(text):
    return text.count("\n")


def line_of(text, wanted):
    return next(at for at, line in enumerate(text.splitlines(), 1) if wanted in line)


def test_the_section_looked_at_comes_first_whole_with_its_neighbours():
    at = line_of(FUNCTIONS, "return first + 20")
    assert relevant(FUNCTIONS, [(at, at)], (), 4, lines_counted) == [(at - 2, at + 1)]
    assert relevant(FUNCTIONS, [(at, at)], (), 12, lines_counted) == [(at - 6, at + 5)]


def test_words_that_were_asked_about_bring_their_sections():
    (part,) = relevant(SPECIAL, [], words("How does quicksort work?"), 4, lines_counted)
    assert "quicksort(first)" in "".join(SPECIAL.splitlines(keepends=True)[part[0] - 1 : part[1]])


def test_rare_words_count_more_than_frequent_ones():
    (part,) = relevant(SPECIAL, [], words("why does value go into quicksort"), 4, lines_counted)
    assert part[0] <= line_of(SPECIAL, "quicksort") <= part[1]


def test_without_a_hint_it_is_the_head():
    parts = relevant(FUNCTIONS, [], (), 10, lines_counted)
    assert parts[0][0] == 1
    assert len(parts) == 1
    assert relevant(FUNCTIONS, [], (), 10, lines_counted, fill=False) == []


def test_lines_that_are_more_than_the_budget_are_cut_around_what_is_looked_at():
    text = "".join(f"    row {n}\n" for n in range(1_000))
    ((first, last),) = relevant(text, [(501, 501)], (), 11, lines_counted)
    assert last - first + 1 <= 11
    assert first <= 501 <= last
    ((first, last),) = relevant(text, [(100, 900)], (), 8, lines_counted)
    assert first == 100
    assert 1 <= last - first + 1 <= 8
    assert relevant(text, [(5, 5)], (), 0, lines_counted) == []


def test_places_outside_the_text_are_none():
    assert relevant("a\nb\n", [(9, 12), (-3, 0)], (), 9, lines_counted) == [(1, 2)]
    assert relevant("", [(1, 1)], ("a",), 9, lines_counted) == []


@pytest.mark.parametrize("budget", [1, 7, 40, 100, 1_000])
def test_parts_are_in_order_apart_and_within_the_budget(budget):
    parts = relevant(SPECIAL, [(3, 4), (70, 90)], words("quicksort value"), budget, lines_counted)
    flat = [line for first, last in parts for line in range(first, last + 1)]
    assert flat == sorted(set(flat))
    assert all(after[0] > before[1] + 1 for before, after in itertools.pairwise(parts))
    assert len(flat) <= budget
    assert all(1 <= line <= len(LINES) for line in flat)


def test_ranges_are_merged_and_what_is_missing_is_found():
    assert merged([(5, 7), (1, 2), (3, 3), (6, 9), (12, 11)]) == [(1, 3), (5, 9)]
    assert missing([(1, 10)], [(3, 4), (8, 8)]) == [(1, 2), (5, 7), (9, 10)]
    assert missing([(3, 4)], [(1, 9)]) == []
    assert missing([(9, 12), (1, 2)], [(1, 10)]) == [(11, 12)]
    assert missing([(1, 2)], []) == [(1, 2)]
