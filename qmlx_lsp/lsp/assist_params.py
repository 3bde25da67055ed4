"""Arguments of the commands that ask the model, as plain data checked by hand: one object, or plain texts and numbers
as Helix sends them.

    {textDocument? | uri?, range?, text? | instruction?, diagnostic?, root?, workDoneToken?}
    "what is wanted", "a path or URI", line, {"sel": [first, last]}

The first of the plain ones is there for commands that take what their user wants; lines count from 1.
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qmlx_lsp.errors import QuestionError
from qmlx_lsp.lsp.convert import cursor_from, diagnostics_from, lines_from
from qmlx_lsp.lsp.methods import field, mapping, token_of
from qmlx_lsp.workspace.diagnostics import Diagnostic
from qmlx_lsp.workspace.instructions import Kind
from qmlx_lsp.workspace.parts import Range

PLACE = "give {uri, range}, or a path and a line"
TAKES_TEXT = {Kind.ASK: "what you want to know", Kind.REWRITE: "what is to be changed"}
_TEXT_MEANS = 'give {text}, or a text as the first argument, as in qmlx.%s "…"'


@dataclass(frozen=True, slots=True)
class AssistParams:
    """``uri`` of an object, or ``place`` as a plain text names it. ``lines`` are selected, ``at`` is the line of the
    cursor, from 1; both are None for the whole document."""

    text: str | None = None
    uri: str | None = None
    place: str | None = None
    lines: Range | None = None
    at: int | None = None
    diagnostic: Diagnostic | None = None
    root: str | None = None
    work_done_token: str | int | None = None


def assist_params(kind: Kind, arguments: Sequence[Any]) -> AssistParams:
    """Check and unpack. Raises QuestionError naming what is wrong."""
    if len(arguments) == 1 and isinstance(arguments[0], Mapping):
        params = _of_object(arguments[0])
    else:
        params = _of_texts(kind, arguments)
    if kind in TAKES_TEXT and not (params.text or "").strip():
        raise QuestionError(f"Say {TAKES_TEXT[kind]}: {_TEXT_MEANS % kind.value}.")
    if params.uri is None and params.place is None and kind is not Kind.ASK:
        raise QuestionError(f"Say which lines qmlx.{kind.value} is about: {PLACE}.")
    return params


def _of_object(given: Mapping[str, Any]) -> AssistParams:
    document = given.get("textDocument")
    uri = field(given, "uri", str, "uri")
    if document is not None and uri is None:
        uri = field(mapping(document, "textDocument"), "uri", str, "textDocument.uri")
    text = field(given, "text", str, "text")
    found = given.get("diagnostic")
    span = given.get("range")
    if found is not None and span is None:
        span = found.get("range") if isinstance(found, Mapping) else None
    return AssistParams(
        text=field(given, "instruction", str, "instruction") if text is None else text,
        uri=uri,
        lines=lines_from(span),
        at=cursor_from(span),
        diagnostic=None if found is None else next(iter(diagnostics_from(found)), None),
        root=field(given, "root", str, "root"),
        work_done_token=token_of(given, "workDoneToken"),
    )


def _of_texts(kind: Kind, arguments: Sequence[Any]) -> AssistParams:
    left = list(arguments)
    text = _text(left.pop(0), "what is wanted") if left and kind in TAKES_TEXT else None
    place = _text(left.pop(0), "a path") if left else None
    line = left.pop(0) if left else None
    selected = left.pop(0) if left else None
    if left:
        raise QuestionError(f"{reprlib.repr(left[0])} is too much: {PLACE}.")
    if isinstance(line, Mapping) and selected is None:
        line, selected = None, line
    at = None if line is None else _line(line)
    lines = None if selected is None else _selected(selected)
    if lines is not None and lines[0] == lines[1]:
        # In Helix every cursor is a selection: one line is where it stands.
        at, lines = at or lines[0], None
    return AssistParams(text, place=place, lines=lines, at=at)


def _text(given: Any, what: str) -> str:
    if not isinstance(given, str):
        raise QuestionError(f"{reprlib.repr(given)} is not {what}, which must be a text.")
    return given


def _line(given: Any) -> int:
    if isinstance(given, str) and given.strip().isdecimal():
        given = int(given)
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise QuestionError(f"{reprlib.repr(given)} is no line: give a whole number from 1.")
    return given


def _selected(given: Any) -> Range:
    ends = given.get("sel") if isinstance(given, Mapping) else None
    if not isinstance(ends, list) or len(ends) != 2:
        raise QuestionError(f'{reprlib.repr(given)} is no selection: give {{"sel": [first, last]}}.')
    first, last = sorted((_line(ends[0]), _line(ends[1])))
    return first, last
