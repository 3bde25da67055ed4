"""Names and parameters of our own methods, as plain data checked by hand.

The names are fixed: editors' packages and scripts rely on them (DESIGN 11).
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from qmlx_lsp.errors import QuestionError

ASK = "qmlx/ask"
CONVERSATION = "qmlx/conversation"
STATUS = "qmlx/status"
CONTEXT = "qmlx/context"
DID_FOCUS = "qmlx/didFocus"
STREAM = "qmlx/stream"
DID_CHANGE_STATUS = "qmlx/didChangeStatus"

# What capabilities.experimental.qmlx says we have.
EXPERIMENTAL = {
    "ask": True, "conversation": True, "status": True, "context": True, "stream": True, "didChangeStatus": True,
    "didFocus": True,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AskParams:
    """Parameters of ``qmlx/ask``; ``range`` as it came."""

    text: str
    uri: str | None
    range: Any
    root: str | None
    max_tokens: int | None
    work_done_token: str | int | None
    partial_result_token: str | int | None
    diagnostics: Any = None


def ask_params(params: Any) -> AskParams:
    """Check and unpack. Raises QuestionError naming the field."""
    given = _mapping(params, f"The parameters of {ASK}")
    document = given.get("textDocument")
    uri = None
    if document is not None:
        uri = _field(_mapping(document, "textDocument"), "uri", str, "textDocument.uri")
        if uri is None:
            raise QuestionError("textDocument.uri is missing: give the URI of a file, or no textDocument.")
    return AskParams(
        text=_field(given, "text", str, "text") or "",
        uri=uri,
        range=given.get("range"),
        root=_field(given, "root", str, "root"),
        max_tokens=_field(given, "maxTokens", int, "maxTokens"),
        work_done_token=_token(given, "workDoneToken"),
        partial_result_token=_token(given, "partialResultToken"),
        diagnostics=given.get("diagnostics"),
    )


def conversation_params(params: Any) -> tuple[str | None, int | None]:
    """``root`` and ``limit``. Raises QuestionError naming the field."""
    given = _mapping(params, f"The parameters of {CONVERSATION}")
    limit = _field(given, "limit", int, "limit")
    if limit is not None and limit < 0:
        raise QuestionError(f"limit is {limit}, but must be 0 or more.")
    return _field(given, "root", str, "root"), limit


def context_params(params: Any) -> tuple[str | None, str | None]:
    """``root`` and ``file``. Raises QuestionError naming the field."""
    given = _mapping(params, f"The parameters of {CONTEXT}")
    return _field(given, "root", str, "root"), _field(given, "file", str, "file")


def focused(params: Any) -> str | None:
    """The URI of the document that the user looks at now; None when the hint makes no sense."""
    document = params.get("textDocument") if isinstance(params, Mapping) else None
    uri = document.get("uri") if isinstance(document, Mapping) else None
    return uri if isinstance(uri, str) else None


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise QuestionError(f"{name} must be an object.")
    return value


def _field(given: Mapping[str, Any], key: str, kind: type, name: str) -> Any:
    value = given.get(key)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        shown = reprlib.repr(value)
        raise QuestionError(f"{name} is {shown}, but must be {'a text' if kind is str else 'a whole number'}.")
    return value


def _token(given: Mapping[str, Any], key: str) -> str | int | None:
    value = given.get(key)
    if value is None or (isinstance(value, (str, int)) and not isinstance(value, bool)):
        return value
    raise QuestionError(f"{key} is {reprlib.repr(value)}, but must be a text or a whole number.")
