"""Between the editor's words and ours: positions, ranges, URIs. The only place that does either."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lsprotocol import types

from qmlx_lsp.errors import QuestionError
from qmlx_lsp.workspace.diagnostics import Diagnostic
from qmlx_lsp.workspace.mirror import uri_to_path
from qmlx_lsp.workspace.positions import Encoding
from qmlx_lsp.workspace.uris import is_path


def choose_encoding(capabilities: types.ClientCapabilities) -> Encoding:
    """The client's first choice that we know; UTF-16 when it says nothing."""
    offered = (capabilities.general.position_encodings if capabilities.general else None) or []
    for name in offered:
        value = str(getattr(name, "value", name))
        if value in set(Encoding):
            return Encoding(value)
    return Encoding.UTF16


def roots_from(params: types.InitializeParams) -> list[Path]:
    """Workspace folders of an ``initialize``; the older ``rootUri`` and ``rootPath`` when there are none."""
    folders = [folder_path(folder.uri) for folder in params.workspace_folders or ()]
    if not folders and params.root_uri:
        folders = [folder_path(params.root_uri)]
    if not folders and params.root_path:
        folders = [folder_path(params.root_path)]
    return [folder for folder in folders if folder is not None]


def folder_path(uri: str) -> Path | None:
    """The folder of a file URI (or a plain absolute path) by its one real name, None for another scheme and for what
    can be no folder's name."""
    path = uri if uri.startswith("/") else uri_to_path(uri)
    return None if path is None or not is_path(path) else Path(os.path.realpath(path))


def file_path(uri: str) -> str:
    """The file of a document's URI.

    Raises:
        QuestionError: the document is not a file on disk.
    """
    path = uri_to_path(uri)
    if path is None:
        raise QuestionError(f"{uri} is not a file on disk: save it first, or ask without it.")
    return os.path.normpath(path)


def cursor_from(span: Any) -> int | None:
    """The line, from 1, of an empty LSP range as plain dicts; None for any other."""
    if span is None or lines_from(span) is not None:
        return None
    return int(span["start"]["line"]) + 1


def diagnostics_from(given: Any) -> tuple[Diagnostic, ...]:
    """Diagnostics of the protocol as plain dicts.

    Raises:
        QuestionError: they are none.
    """
    try:
        return tuple(_diagnostic(one) for one in (given if isinstance(given, list) else [given]))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise QuestionError("diagnostics must be a list of {range, message, severity?, source?, code?}.") from None


def _diagnostic(one: Any) -> Diagnostic:
    line, message, severity = one["range"]["start"]["line"], one["message"], one.get("severity") or 1
    if type(line) is not int or line < 0 or not isinstance(message, str) or type(severity) is not int:
        raise TypeError
    code = one.get("code")
    source = " ".join(str(part) for part in (one.get("source"), code) if isinstance(part, (str, int)) and part != "")
    return Diagnostic(line + 1, severity, message, source)


def lines_from(span: Any) -> tuple[int, int] | None:
    """First and last line, from 1, of an LSP range as plain dicts; None for none or an empty one.

    Raises:
        QuestionError: it is no range.
    """
    if span is None:
        return None
    try:
        places = [(span[part]["line"], span[part]["character"]) for part in ("start", "end")]
    except (KeyError, TypeError):
        places = []
    if not places or any(type(number) is not int or number < 0 for place in places for number in place):
        raise QuestionError("range must be {start: {line, character}, end: {line, character}}.")
    (start, first), (end, last) = sorted(places)
    if (start, first) == (end, last):
        return None
    return start + 1, (end if last == 0 and end > start else end + 1)
