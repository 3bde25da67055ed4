"""Incremental edits in three encodings against a reference that counts every character by itself."""

from hypothesis import given, settings
from hypothesis import strategies as st

from qmlx_lsp.workspace.document import Change, Document, apply
from qmlx_lsp.workspace.positions import Encoding, LineIndex, all_lines, split_lines
from tests.support.reference_text import lines_of, reference_edit, reference_offset

ALPHABET = [
    "a",
    "b",
    " ",
    "\n",
    "\r\n",
    "\r",
    "😋",
    "👩\u200d💻",
    "e\u0301",
    "é",
    "소",
    "\x0c",
    "\u2028",
    "\x85",
    "\ufeff",
    "\x00",
]
texts = st.lists(st.sampled_from(ALPHABET), max_size=25).map("".join)
encodings = st.sampled_from(list(Encoding))
places = st.tuples(st.integers(-1, 8), st.integers(-1, 12))
quick = settings(deadline=None, max_examples=60)


@given(texts, places, encodings)
@quick
def test_offset_agrees_with_counting_every_character(text, place, encoding):
    assert LineIndex(text).offset(*place, encoding) == reference_offset(text, place, encoding)


@given(texts, encodings)
@quick
def test_position_of_every_offset_leads_back_to_it(text, encoding):
    index = LineIndex(text)
    for offset in range(len(text) + 1):
        line, column = index.position(offset, encoding)
        inside_crlf = text[max(offset - 1, 0) : offset + 1] == "\r\n"
        assert index.offset(line, column, encoding) == offset - inside_crlf


@given(texts)
@quick
def test_lines_are_those_of_the_three_terminators(text):
    index = LineIndex(text)
    assert [(start, text[start:end]) for start, end in map(index.line_range, range(index.line_count))] == lines_of(
        text
    )
    assert "".join(split_lines(text)) == text
    assert "".join(all_lines(text)) == text
    assert [line.rstrip("\r\n") for line in all_lines(text)] == [line for _, line in lines_of(text)]


@given(texts, st.lists(st.tuples(places, places, texts), max_size=8), encodings)
@settings(deadline=None, max_examples=150)
def test_list_of_edits_agrees_with_the_reference(text, edits, encoding):
    changes = [Change(piece, (place, other)) for place, other, piece in edits]
    got = apply(Document("u", "p", 1, text), changes, 2, encoding)
    assert got.lines == all_lines(got.text), "lines are held as the text would be taken apart"
    by_one = Document("u", "p", 1, text)
    for change in changes:
        by_one = apply(by_one, [change], 2, encoding)
    assert by_one.text == got.text
    for place, other, piece in edits:
        text = reference_edit(text, place, other, piece, encoding)
    assert got == Document("u", "p", 2, text)


@given(texts, st.lists(st.tuples(places, places, texts), max_size=6), encodings)
@quick
def test_edits_one_message_each_agree_with_the_same_edits_in_one_message(text, edits, encoding):
    document = Document("u", "p", 1, text)
    changes = [Change(piece, (place, other)) for place, other, piece in edits]
    one_by_one = document
    for version, change in enumerate(changes, 2):
        one_by_one = apply(one_by_one, [change], version, encoding)
    assert one_by_one.text == apply(document, changes, 2, encoding).text
