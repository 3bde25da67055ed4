"""What a notification about documents says, as far as it can be understood. Plain data in, plain data out.

Nothing here raises: a notification has no answer, and editors are not all as careful as the protocol wants. What is
missing or makes no sense is None, so that the mirror can be told that it has missed something.

Invariant: a change is understood as a whole or not at all; nothing of it is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from qmlx_lsp.workspace.cells import Cell
from qmlx_lsp.workspace.document import Change, Place

MARKUP = 1
"""The protocol's kind of a cell that holds prose."""


@dataclass(frozen=True, slots=True)
class Item:
    """A document that is opened; ``text`` is None where none came."""

    uri: str
    language: str
    version: int | None
    text: str | None


def part(given: Any, *keys: str) -> Any:
    """What stands at the end of ``keys``; None where one of them leads nowhere."""
    for key in keys:
        given = given.get(key) if isinstance(given, Mapping) else None
    return given


def each(given: Any) -> Iterator[Any]:
    """The items of a list; nothing of anything else."""
    yield from given if isinstance(given, list) else ()


def uri_of(given: Any, *keys: str) -> str | None:
    """The ``uri`` below ``keys``."""
    uri = part(given, *keys, "uri")
    return uri if isinstance(uri, str) else None


def number(value: Any) -> int | None:
    """A whole number, however it was written: ``3`` or ``3.0``."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None


def item_of(given: Any) -> Item | None:
    """A ``TextDocumentItem``."""
    uri = uri_of(given)
    if uri is None:
        return None
    language, text = part(given, "languageId"), part(given, "text")
    return Item(
        uri,
        language if isinstance(language, str) else "",
        number(part(given, "version")),
        text if isinstance(text, str) else None,
    )


def changes_of(events: Any) -> list[Change] | None:
    """Content changes in order; None when something before the last full text matters and makes no sense."""
    if not isinstance(events, list):
        return None
    found: list[Change] | None = []
    for event in events:
        change = _change(event)
        if change is not None and change.range is None:
            found = [change]
        elif change is None or found is None:
            found = None
        else:
            found.append(change)
    return found


def _change(event: Any) -> Change | None:
    text, span = part(event, "text"), part(event, "range")
    if not isinstance(text, str):
        return None
    if span is None:
        return Change(text)
    start, end = _place(part(span, "start")), _place(part(span, "end"))
    return None if start is None or end is None else Change(text, (start, end))


def _place(given: Any) -> Place | None:
    line, character = number(part(given, "line")), number(part(given, "character"))
    return None if line is None or character is None else (line, character)


def cells_of(given: Any) -> list[Cell] | None:
    """``NotebookCell`` objects; None when one of them makes no sense."""
    if not isinstance(given, list):
        return None
    cells = []
    for one in given:
        uri = part(one, "document")
        if not isinstance(uri, str):
            return None
        cells.append(Cell.of(uri, prose=number(part(one, "kind")) == MARKUP))
    return cells
