"""Applying a client's changes: order, clamping, reversed ranges, line ends kept."""

import time

import pytest

from qmlx_lsp.workspace.document import Change, Document, apply, without_lone_surrogates
from qmlx_lsp.workspace.positions import Encoding

U16 = Encoding.UTF16


def edited(text, *changes, encoding=U16):
    document = Document("u", "python", 1, text)
    built = [change if isinstance(change, Change) else Change(change[1], change[0]) for change in changes]
    return apply(document, built, 2, encoding).text


def at(a, b, c, d):
    return ((a, b), (c, d))


@pytest.mark.parametrize(
    ("text", "changes", "want"),
    [
        ('s="a\u2028b"\nq', [(at(1, 0, 1, 1), "Q")], 's="a\u2028b"\nQ'),
        ('x="😋"\n', [(at(0, 5, 0, 5), "x")], 'x="😋x"\n'),
        ('const face = "😀";', [(at(0, 0, 0, 18), 'const next = "🚀";')], 'const next = "🚀";'),
        ("a😋b", [(at(0, 2, 0, 2), "Z")], "aZ😋b"),
        ("hello\rworld", [(at(1, 0, 1, 1), "W")], "hello\rWorld"),
        ("hello\rworld", [(at(0, 5, 0, 999), "!")], "hello!\rworld"),
        ("hello\r\nworld", [(at(0, 5, 0, 999), "!")], "hello!\r\nworld"),
        ("ab\r\ncd", [(at(0, 3, 0, 3), "Z")], "abZ\r\ncd"),
        ("abcdef", [(at(0, 4, 0, 1), "")], "aef"),
        ("ab\ncd\nef", [(at(2, 1, 0, 1), "-")], "a-f"),
        ("a\n", [(at(9, 0, 9, 0), "Z")], "a\nZ"),
        ("a\n", [(at(-1, 7, 0, 1), "Z")], "Z\n"),
        ("a\n", [], "a\n"),
        ("a\n", [Change("b\nc\n"), (at(1, 0, 1, 1), "d")], "b\nd\n"),
        ("a\r\nb\nc\r\n", [(at(2, 0, 2, 1), "C")], "a\r\nb\nC\r\n"),
        ("\ufeffa\r\n", [(at(0, 1, 0, 2), "b")], "\ufeffb\r\n"),
        ("a\rb\n", [(at(1, 0, 1, 1), ""), (at(1, 0, 1, 0), "x")], "a\r\nx"),
        ("a\rb\nc", [(at(1, 0, 1, 0), "\n"), (at(1, 0, 1, 1), "B")], "a\r\nB\nc"),
    ],
)
def test_changes_give_the_right_text(text, changes, want):
    assert edited(text, *changes) == want


def test_utf8_columns_are_bytes():
    assert edited("öbc", (at(0, 2, 0, 2), "a"), encoding=Encoding.UTF8) == "öabc"
    assert edited("öbc", (at(0, 1, 0, 1), "a"), encoding=Encoding.UTF32) == "öabc"


def test_changes_apply_in_order_to_the_result_of_the_one_before():
    changes = [(at(0, 0, 0, 0), letter) for letter in ["a", "b"] * 1000]
    assert edited("", *changes) == "ba" * 1000


def test_lone_surrogate_becomes_replacement_character_and_halves_join():
    assert without_lone_surrogates("a\ud83db") == "a\ufffdb"
    assert without_lone_surrogates("\ude00") == "\ufffd"
    assert without_lone_surrogates("\ud83d") == "\ufffd"
    assert without_lone_surrogates("\ud83d\ude00!") == "😀!"
    assert edited("ab", (at(0, 1, 0, 1), "\udc00")) == "a\ufffdb"
    assert edited("ab", Change("é\ud800")) == "é\ufffd"


def test_full_text_makes_a_doubtful_document_synced_and_a_range_does_not():
    doubtful = Document("u", "python", 1, "a", synced=False)
    assert not apply(doubtful, [Change("b", at(0, 0, 0, 1))], 2, U16).synced
    assert apply(doubtful, [Change("b")], 2, U16) == Document("u", "python", 2, "b")


def test_document_is_left_as_it_was():
    document = Document("u", "python", 1, "a\nb")
    apply(document, [Change("x", at(0, 0, 0, 1))], 2, U16)
    assert document.text == "a\nb"
    assert document.lines == ["a\n", "b"]
    assert apply(document, [Change("x", at(0, 0, 0, 1))], 2, U16).text == "x\nb"
    assert document.lines == ["a\n", "b"]
    assert document == Document("u", "python", 1, "a\nb")


@pytest.mark.parametrize("order", [1, -1])
def test_thousand_cursors_in_one_list_do_not_index_the_text_each_time(order):
    text = "some line of a text\n" * 20_000
    changes = [(at(line, 0, line, 4), "any\n") for line in range(0, 2000, 2)][::order]
    if order == 1:
        changes = [(at(line + n, 0, line + n, 4), "any\n") for n, line in enumerate(range(0, 2000, 2))]
    started = time.perf_counter()
    got = edited(text, *changes)
    assert time.perf_counter() - started < 1
    assert got == "any\n line of a text\nsome line of a text\n" * 1000 + "some line of a text\n" * 18_000
