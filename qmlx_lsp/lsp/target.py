"""What a command is about: the lines of one editor's document, as they were when the command arrived.

Invariant: a target is taken while the command's message is handled, before any later message is: what the user saw is
what counts, whatever is typed before the command comes to run.
Invariant: the text is the asking editor's own, whatever another editor has typed into the same document.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qmlx_lsp.errors import QuestionError
from qmlx_lsp.lsp.answers import root_of_answer
from qmlx_lsp.lsp.ask import diagnostics_of, document_path, root_of, told_lines
from qmlx_lsp.lsp.assist_params import AssistParams
from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.lsp.named import named
from qmlx_lsp.session.sight import UNSAVED, private, relative
from qmlx_lsp.workspace.around import around, trimmed
from qmlx_lsp.workspace.diagnostics import Diagnostic
from qmlx_lsp.workspace.document import Document
from qmlx_lsp.workspace.instructions import Kind
from qmlx_lsp.workspace.parts import Range
from qmlx_lsp.workspace.wishes import Wish, wishes, without

_LANGUAGE = re.compile(r"[\w+#.-]{1,40}")


@dataclass(frozen=True, slots=True)
class Target:
    """``path`` is as a question has it, ``shown`` below the root. ``document`` is the editor's own copy, None where
    it has none that is certain: then there are no ``lines`` and no ``code`` of it, only what was pointed at in the
    text that is told, ``pointed`` and ``at``. ``said``: the comments in it that say what is wanted, which ``code``
    lacks. ``found``: what checkers say of the file. ``age``: how often the
    conversation had been forgotten."""

    root: Path
    path: str | None = None
    shown: str = ""
    uri: str = ""
    document: Document | None = None
    lines: Range = (1, 1)
    code: str | None = None
    cell: bool = False
    pointed: Range | None = None
    at: int | None = None
    said: tuple[Wish, ...] = ()
    found: tuple[Diagnostic, ...] | None = None
    age: int = 0

    @property
    def language(self) -> str:
        known = self.document.language if self.document is not None else ""
        return known if _LANGUAGE.fullmatch(known) else ""

    @property
    def names(self) -> Sequence[str]:
        """How a model may call the file."""
        return [name for name in (self.shown, self.path) if name]


def take(connection: Connection, kind: Kind, wanted: AssistParams) -> Target:
    """What ``wanted`` is about. Plain, for the message is being handled. Raises QuestionError."""
    if wanted.place is not None:
        wanted = replace(wanted, uri=named(connection, wanted.place))
    if wanted.uri is None:
        return Target(root_of(connection, wanted.root))
    if kind is Kind.ASK and (answered := root_of_answer(connection, wanted.uri)) is not None:
        return Target(answered)  # it goes on where the answer was; what it says is in the conversation already
    root, path, shown = place(connection, wanted.uri, wanted.root)
    document = connection.registry.mirror.copy(connection, wanted.uri)
    pointed, at = told_lines(connection, wanted.uri, wanted.lines, wanted.at)
    found = diagnostics_of(connection, wanted.uri)
    if document is None or not document.synced:
        if kind is Kind.DO_COMMENT:
            raise QuestionError(f"{shown} is not open here: open it to have done what its comments say.")
        return Target(root, path, shown, wanted.uri, pointed=pointed, at=at, found=found)
    lines, said = _lines(kind, document, wanted)
    rows = document.lines
    code = "".join(without(rows[lines[0] - 1 : lines[1]], lines[0], said))
    cell = connection.registry.notebooks.of_cell(connection, wanted.uri) is not None
    return Target(
        root, path, shown, document.uri, document, lines, code, cell, pointed, at, tuple(said), found
    )  # fmt: skip


def place(connection: Connection, uri: str, root: str | None = None) -> tuple[Path, str, str]:
    """The root of a document, its path as questions have it, and as it is shown. Raises QuestionError."""
    path = document_path(connection, uri)
    found = root_of(connection, root, path)
    return found, path, path.removeprefix(UNSAVED) if path.startswith(UNSAVED) else relative(found, path) or path


def _lines(kind: Kind, document: Document, wanted: AssistParams) -> tuple[Range, list[Wish]]:
    """The lines that are meant, within the document; and the comments among them that say what is wanted."""
    rows = document.lines
    first, last = wanted.lines or (wanted.at or 1, wanted.at or len(rows))
    first, last = min(first, len(rows)), min(last, len(rows))
    if kind is not Kind.DO_COMMENT:
        whole = wanted.lines is None and wanted.at is not None
        if kind is Kind.FIX and wanted.diagnostic is not None:
            whole = True  # what is wrong is marked in a few letters
        return trimmed(rows, *(_wider(around(rows, first), first, last) if whole else (first, last))), []
    said = wishes(rows, (first, last))
    if not said:
        which = f"line {first} says" if first == last else f"lines {first}-{last} say"
        raise QuestionError(f"None of what {which} begins with `qmlx:`: write a comment such as `# qmlx: sort it`.")
    if any(not one.strip() or number not in {wish.line for wish in said} for number, one in
           enumerate(rows[first - 1 : last], first)):  # fmt: skip
        return trimmed(rows, first, last), said
    return _around_wishes(rows, first, last), said


def _around_wishes(rows: Sequence[str], first: int, last: int) -> Range:
    """The lines that comments on ``first`` to ``last`` are about: what they stand in, or what follows them."""
    below = last + 1
    if below <= len(rows) and rows[below - 1].strip():
        return _wider(around(rows, below), first, last)
    alone = not rows[first - 1][:1].isspace()
    return (first, last) if alone else _wider(around(rows, first), first, last)


def _wider(lines: Range, first: int, last: int) -> Range:
    return min(lines[0], first), max(lines[1], last)


async def refuse_private(connection: Connection, root: Path, path: str, shown: str) -> None:
    """Raises QuestionError when nothing of the file may be shown to the model, as far as that is known now: a
    question looks again when it is told."""
    rules = connection.registry.project(root).rules()
    inside = path if path.startswith(UNSAVED) else relative(root, path)
    reason = None if inside is None else await asyncio.to_thread(private, root, inside, rules)
    if reason is not None:
        raise QuestionError(f"{shown} is private ({reason}) and is never shown to the model.")
