"""Lines and columns: the protocol's terminators only, clamping, and the three encodings."""

import time

import pytest

from qmlx_lsp.workspace.positions import Encoding, LineIndex, all_lines, column, split_lines, to_lf

U8, U16, U32 = Encoding.UTF8, Encoding.UTF16, Encoding.UTF32


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x0c", "\x0b", "\x85", "\x1c", "\x1d", "\x1e"])
def test_python_only_separators_do_not_end_a_line(separator):
    index = LineIndex(f"a{separator}b\nq")
    assert index.line_count == 2
    assert index.offset(1, 0, U16) == 4


def test_three_terminators_in_one_text_each_end_a_line():
    index = LineIndex("a\rb\r\nc\nd")
    assert [index.line_range(line) for line in range(index.line_count)] == [(0, 1), (2, 3), (5, 6), (7, 8)]


def test_empty_text_has_one_line_and_final_terminator_opens_an_empty_one():
    assert LineIndex("").line_count == 1
    assert LineIndex("a\n").line_count == 2
    assert LineIndex("a\n").line_range(1) == (2, 2)
    assert LineIndex("\n\r").line_count == 3


@pytest.mark.parametrize(("encoding", "column"), [(U8, 8), (U16, 6), (U32, 5)])
def test_column_behind_an_emoji_counts_the_encodings_units(encoding, column):
    index = LineIndex('x="😋"\n')
    assert index.offset(0, column - 1, encoding) == 4
    assert index.offset(0, column, encoding) == 5
    assert index.position(4, encoding) == (0, column - 1)


@pytest.mark.parametrize(("encoding", "column"), [(U16, 2), (U8, 2), (U8, 3), (U8, 4)])
def test_column_inside_a_character_goes_before_it(encoding, column):
    assert LineIndex("a😋b").offset(0, column, encoding) == 1


@pytest.mark.parametrize("encoding", list(Encoding))
def test_positions_out_of_range_are_clamped(encoding):
    index = LineIndex("hé\r\nyou\rme")
    assert index.offset(0, 999, encoding) == 2
    assert index.offset(1, 2**31 - 1, encoding) == 7
    assert index.offset(9, 0, encoding) == 10
    assert index.offset(-1, 5, encoding) == 0
    assert index.offset(1, -3, encoding) == 4
    assert index.offset(2, 99, encoding) == 10


def test_offset_inside_crlf_is_the_end_of_its_line():
    assert LineIndex("ab\r\ncd").position(3, U16) == (0, 2)
    assert LineIndex("ab\r\ncd").offset(0, 3, U16) == 2


def test_offsets_outside_the_text_are_clamped():
    assert LineIndex("ab\ncd").position(-4, U16) == (0, 0)
    assert LineIndex("ab\ncd").position(99, U16) == (1, 2)
    assert LineIndex("ab\ncd").line_range(-1) == (0, 2)
    assert LineIndex("ab\ncd").line_range(7) == (3, 5)
    assert LineIndex("ab\ncd").line_start(7) == 3


def test_zero_width_joiner_emoji_has_five_utf16_units():
    index = LineIndex("👩\u200d💻x")
    assert index.offset(0, 5, U16) == 3
    assert index.position(3, U8) == (0, 11)


def test_lone_surrogates_in_a_text_do_not_raise():
    index = LineIndex("a\ud83db😋c")
    for encoding in Encoding:
        assert all(0 <= index.offset(0, column, encoding) <= 5 for column in range(14))


def test_split_lines_keeps_terminators_and_adds_no_empty_line():
    assert split_lines("a\r\nb\rc\x0cd\ne") == ["a\r\n", "b\r", "c\x0cd\n", "e"]
    assert split_lines("a\n") == ["a\n"]
    assert split_lines("") == []


def test_to_lf_changes_terminators_only():
    assert to_lf("a\r\nb\rc\n\u2028\r\r\n") == "a\nb\nc\n\u2028\n\n"


def test_all_lines_end_with_one_that_has_no_terminator():
    assert all_lines("") == [""]
    assert all_lines("a") == ["a"]
    assert all_lines("a\n") == ["a\n", ""]
    assert all_lines("a\r\nb\rc\n\rd") == ["a\r\n", "b\r", "c\n", "\r", "d"]
    assert all_lines("a\x0cb\u2028c\x85d\n") == ["a\x0cb\u2028c\x85d\n", ""]


def test_columns_are_clamped_to_the_line_and_never_cut_a_character():
    assert [column("ab\r\n", at, U16) for at in (-1, 0, 2, 3, 99)] == [0, 0, 2, 2, 2]
    assert [column("a😋b\r", at, U16) for at in range(6)] == [0, 1, 1, 2, 3, 3]
    assert [column("é😋", at, Encoding.UTF8) for at in (1, 2, 3, 5, 6, 7)] == [0, 1, 1, 1, 2, 2]
    assert column("a😋b\n", 2, Encoding.UTF32) == 2


def test_columns_at_the_end_of_a_huge_ascii_line_are_found_without_a_walk():
    text = "x=1;" * 2_500_000
    started = time.perf_counter()
    for _ in range(20):
        assert LineIndex(text).offset(0, 9_999_999, U16) == 9_999_999
    # A walk in Python takes over a second for each of the twenty.
    assert time.perf_counter() - started < 5
