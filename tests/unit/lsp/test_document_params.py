"""What notifications about documents say: whole or not at all, and nothing raises."""

from __future__ import annotations

import math
from typing import Any

import pytest

from qmlx_lsp.lsp.document_params import Item, cells_of, changes_of, item_of, number, part, uri_of
from qmlx_lsp.workspace.cells import Cell
from qmlx_lsp.workspace.document import Change


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (3, 3), (3.0, 3), (-1, -1), (2**70, 2**70), (1e20, 10**20), (0.5, None), (math.inf, None), (math.nan, None),
        (True, None), ("3", None), (None, None), ([], None),
    ],
)  # fmt: skip
def test_whole_numbers(value: Any, want: int | None) -> None:
    assert number(value) == want


@pytest.mark.parametrize("given", [None, 5, [], "x", {}, {"a": None}, {"a": []}, {"a": {"uri": 5}}])
def test_what_leads_nowhere_is_none(given: Any) -> None:
    assert part(given, "a", "b", "c") is None
    assert uri_of(given, "a") is None
    assert item_of(given) is None


def test_items() -> None:
    assert item_of({"uri": "u", "languageId": "p", "version": 3, "text": "t"}) == Item("u", "p", 3, "t")
    assert item_of({"uri": "u", "languageId": 5, "version": "3", "text": None}) == Item("u", "", None, None)


def span(*numbers: Any) -> dict[str, Any]:
    a, b, c, d = numbers
    return {"start": {"line": a, "character": b}, "end": {"line": c, "character": d}}


GOOD = {"text": "x", "range": span(0, 1, 2, 3)}


@pytest.mark.parametrize(
    ("events", "want"),
    [
        ([], []),
        ([GOOD], [Change("x", ((0, 1), (2, 3)))]),
        ([GOOD, {"text": "w"}, GOOD], [Change("w"), Change("x", ((0, 1), (2, 3)))]),
        ([{"text": "w", "range": None}], [Change("w")]),
        ([{"text": "x", "range": span(0.0, 1, 2, 3)}], [Change("x", ((0, 1), (2, 3)))]),
        ([5, {"text": "w"}], [Change("w")]),
        ([{"text": "w"}, 5], None),
        ([GOOD, {"text": 5}], None),
        ([{"text": "x", "range": span(0, 1, None, 3)}], None),
        ([{"text": "x", "range": []}], None),
        (None, None),
        ({}, None),
    ],
)
def test_changes(events: Any, want: list[Change] | None) -> None:
    assert changes_of(events) == want


def test_cells() -> None:
    given = [{"kind": 2, "document": "c:a%41"}, {"kind": 1, "document": "c:b"}, {"document": "c:c"}]
    assert cells_of(given) == [Cell("c:aA", False), Cell("c:b", True), Cell("c:c", False)]
    for wrong in (None, {}, [5], [{"document": 5}], [{"kind": 1}]):
        assert cells_of(wrong) is None
