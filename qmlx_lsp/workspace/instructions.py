"""What a model is asked for each command: the same words every time, and the lines that they are about.

Invariant: nothing in the words moves; what differs is the user's own text, the file's name, and the lines.
Invariant: the lines stand in the question itself, as the editor that asks has them. What a conversation was told of
the file may be another editor's text, or be older by the time of the answer.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from enum import StrEnum

from qmlx_lsp.workspace.fence import fenced
from qmlx_lsp.workspace.parts import Range
from qmlx_lsp.workspace.positions import to_lf
from qmlx_lsp.workspace.shown import shown


class Kind(StrEnum):
    """The commands that ask the model; the values are their names."""

    ASK = "ask"
    EXPLAIN = "explain"
    FIX = "fix"
    REWRITE = "rewrite"
    DOCUMENT = "document"
    TESTS = "tests"
    DO_COMMENT = "doComment"


EDITING = frozenset({Kind.FIX, Kind.REWRITE, Kind.DOCUMENT, Kind.DO_COMMENT})
"""What changes the lines that it is about."""

NAMES_MAX = 100
"""Names that are tried for a new file at most."""

_WHAT = {
    Kind.EXPLAIN: "Explain {lines}",
    Kind.FIX: "Fix {lines}",
    Kind.REWRITE: "Change {lines}",
    Kind.DOCUMENT: "Document {lines}: say in the language's own form of documentation what they are for",
    Kind.TESTS: "Write tests for {lines}",
    Kind.DO_COMMENT: "Change {lines}",
}
_HOW = {
    Kind.EXPLAIN: "Say what the code is for and how it works, briefly.",
    Kind.TESTS: "Answer with one whole test file in one fenced block and nothing else.",
}
_HOW_EDIT = "Answer with the whole new text of these lines in one fenced block and nothing else."
_HOW_NEW = "Answer with the code that is to stand there in one fenced block and nothing else."


def question(kind: Kind, place: str, code: str | None, language: str, wish: str = "") -> str:
    """The question: ``place`` says where the lines ``code`` stand, ``wish`` what the user wants of them. ``code`` is
    None when nobody but the conversation has them."""
    how = _HOW.get(kind, _HOW_EDIT if code is None or code.strip() else _HOW_NEW)
    what = _WHAT[kind].format(lines=place)
    shown_code = "" if code is None else block(code, language)
    return f"{what}{f': {wish}' if wish else '.'}\n{shown_code}{how}"


def block(code: str, language: str) -> str:
    """Lines as they are shown to the model, and as its reply is likely to show them."""
    return fenced(to_lf(code), language)


def place_of(path: str, lines: Range, *, cell: bool = False) -> str:
    """Where lines stand, in words; ``cell`` is true of a notebook's cell, in which lines are counted anew."""
    first, last = lines
    which = f"line {first}" if first == last else f"lines {first}-{last}"
    return f"{which} of a cell of {shown(path)}" if cell else f"{which} of {shown(path)}"


# --- tests ---------------------------------------------------------------------------------------------------------

_BEHIND_A_DOT = {"js", "jsx", "ts", "tsx", "mjs", "cjs", "mts", "cts", "vue", "svelte"}


def test_file(path: str, language: str, tests_folder: str | None, taken: Callable[[str], bool]) -> str | None:
    """A name for a new file with tests of ``path``, relative as that is, which is not ``taken``; None when all that
    are tried are. ``tests_folder`` is where the project's tests lie, if it has such a folder."""
    folder, name = posixpath.split(path)
    stem, suffix = posixpath.splitext(name)
    if language == "python" or suffix in (".py", ".pyi"):
        folder = folder if tests_folder is None else tests_folder
        stem, suffix = f"test_{stem}", ".py"
    elif suffix[1:] in _BEHIND_A_DOT:
        stem = f"{stem}.test"
    else:
        stem = f"{stem}_test"
    for number in range(1, NAMES_MAX + 1):
        more = "" if number == 1 else f"_{number}"
        # Go's and JavaScript's runners know a test by the end of its name.
        tried = f"{stem}{more}{suffix}" if stem.startswith("test_") else _numbered(stem, more, suffix)
        found = posixpath.join(folder, tried)
        if not taken(found):
            return found
    return None


def _numbered(stem: str, more: str, suffix: str) -> str:
    for mark in (".test", "_test"):
        if stem.endswith(mark):
            return f"{stem.removesuffix(mark)}{more}{mark}{suffix}"
    return f"{stem}{more}{suffix}"
