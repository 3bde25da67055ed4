"""Names and parameters of our own methods, as plain data checked by hand.

The names are fixed: editors' packages and scripts rely on them (DESIGN 11).
"""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qmlx_lsp.errors import QuestionError

ASK = "qmlx/ask"
CONVERSATION = "qmlx/conversation"
STATUS = "qmlx/status"
CONTEXT = "qmlx/context"
DID_FOCUS = "qmlx/didFocus"
# What an editor may say of completions. The text says it too, in every editor, and is what is believed.
HINTS = ("qmlx/didShowCompletion", "qmlx/didPartiallyAccept")
TOOL_RESULT = "qmlx/toolResult"
STREAM = "qmlx/stream"
DID_CHANGE_STATUS = "qmlx/didChangeStatus"

TURNS_MAX = 1 << 31
"""Turns that are asked for at most; more than any conversation has."""

# What capabilities.experimental.qmlx says we have.
EXPERIMENTAL = {
    "ask": True, "conversation": True, "status": True, "context": True, "toolResult": True, "stream": True,
    "didChangeStatus": True, "didFocus": True, "didShowCompletion": True, "didPartiallyAccept": True,
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
    given = mapping(params, f"The parameters of {ASK}")
    document = given.get("textDocument")
    uri = None
    if document is not None:
        uri = field(mapping(document, "textDocument"), "uri", str, "textDocument.uri")
        if uri is None:
            raise QuestionError("textDocument.uri is missing: give the URI of a file, or no textDocument.")
    return AskParams(
        text=field(given, "text", str, "text") or "",
        uri=uri,
        range=given.get("range"),
        root=field(given, "root", str, "root"),
        max_tokens=field(given, "maxTokens", int, "maxTokens"),
        work_done_token=token_of(given, "workDoneToken"),
        partial_result_token=token_of(given, "partialResultToken"),
        diagnostics=given.get("diagnostics"),
    )


def conversation_params(params: Any) -> tuple[str | None, int | None]:
    """``root`` and ``limit``. Raises QuestionError naming the field."""
    given = mapping(params, f"The parameters of {CONVERSATION}")
    limit = field(given, "limit", int, "limit")
    if limit is not None and limit < 0:
        raise QuestionError(f"limit is {limit}, but must be 0 or more.")
    return field(given, "root", str, "root"), None if limit is None else min(limit, TURNS_MAX)


def context_params(params: Any) -> tuple[str | None, str | None]:
    """``root`` and ``file``. Raises QuestionError naming the field."""
    given = mapping(params, f"The parameters of {CONTEXT}")
    return field(given, "root", str, "root"), field(given, "file", str, "file")


def focused(params: Any) -> str | None:
    """The URI of the document that the user looks at now; None when the hint makes no sense."""
    document = params.get("textDocument") if isinstance(params, Mapping) else None
    uri = document.get("uri") if isinstance(document, Mapping) else None
    return uri if isinstance(uri, str) else None


@dataclass(frozen=True, slots=True)
class ToolResultParams:
    """Parameters of ``qmlx/toolResult``; ``command`` is "" where none was given."""

    root: str | None
    name: str
    command: str
    exit_code: int | None
    output: str


def tool_result_params(params: Any) -> ToolResultParams:
    """Check and unpack. Raises QuestionError naming the field."""
    given = mapping(params, f"The parameters of {TOOL_RESULT}")
    name, output = field(given, "name", str, "name"), field(given, "output", str, "output")
    if name is None or not name.strip():
        raise QuestionError("name is missing: say which tool the result is from.")
    if output is None:
        raise QuestionError('output is missing: give what the tool has printed, "" for nothing.')
    command, exit_code = field(given, "command", str, "command"), field(given, "exitCode", int, "exitCode")
    return ToolResultParams(field(given, "root", str, "root"), name, command or "", exit_code, output)


@dataclass(frozen=True, slots=True)
class RunToolParams:
    """What ``qmlx.runTool`` is to run, and where: ``root`` is a root, ``place`` a root or something below one."""

    name: str | None = None
    root: str | None = None
    place: str | None = None
    work_done_token: str | int | None = None


def run_tool_params(arguments: Sequence[Any]) -> RunToolParams:
    """Check and unpack: nothing, an object, or one or two texts. Raises QuestionError."""
    first = arguments[0] if arguments else None
    if isinstance(first, Mapping) and len(arguments) == 1:
        name, root = field(first, "name", str, "name"), field(first, "root", str, "root")
        return RunToolParams(name, root, None, token_of(first, "workDoneToken"))
    if len(arguments) > 2 or not all(isinstance(argument, str) for argument in arguments):
        shown = reprlib.repr(list(arguments))
        raise QuestionError(f"{shown} is no tool: give its name, its name and a path, or {{name, root}}.")
    return RunToolParams(first, None, arguments[1] if len(arguments) == 2 else None)


def cancel_params(arguments: Sequence[Any]) -> str | None:
    """The job that ``qmlx.cancel`` means, None for all: nothing, an id, or ``{jobId}``. Raises QuestionError."""
    given = arguments[0] if arguments else None
    if isinstance(given, Mapping):
        given = given.get("jobId")
    if len(arguments) > 1 or not (given is None or isinstance(given, str)):
        raise QuestionError(f"{reprlib.repr(list(arguments))} is no job: give nothing, a jobId, or {{jobId}}.")
    return given


def forced(arguments: Sequence[Any]) -> bool:
    """Whether ``qmlx.restart`` is meant for other editors as well: nothing, "force", or ``{force}``. Raises
    QuestionError."""
    given = arguments[0] if arguments else False
    if isinstance(given, Mapping):
        given = given.get("force", False)
    if len(arguments) > 1 or not (isinstance(given, bool) or given == "force"):
        raise QuestionError(f"{reprlib.repr(list(arguments))} says nothing here: give nothing, or {{force: true}}.")
    return bool(given)


def mapping(value: Any, name: str) -> Mapping[str, Any]:
    """Raises QuestionError for anything else."""
    if not isinstance(value, Mapping):
        raise QuestionError(f"{name} must be an object.")
    return value


def field(given: Mapping[str, Any], key: str, kind: type, name: str) -> Any:
    """``given[key]``, None where it is missing. Raises QuestionError for another kind."""
    value = given.get(key)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        shown = reprlib.repr(value)
        raise QuestionError(f"{name} is {shown}, but must be {'a text' if kind is str else 'a whole number'}.")
    return value


def token_of(given: Mapping[str, Any], key: str) -> str | int | None:
    """The token of a progress. Raises QuestionError for what is none."""
    value = given.get(key)
    if value is None or (isinstance(value, (str, int)) and not isinstance(value, bool)):
        return value
    raise QuestionError(f"{key} is {reprlib.repr(value)}, but must be a text or a whole number.")
