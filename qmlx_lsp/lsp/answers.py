"""Answers, where people can read them: in the editor's own panel, or as a Markdown document.

Invariant: nothing depends on what the editor makes of ``window/showDocument``; where it has not shown the document,
one line says where it is.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from qmlx_lsp.errors import StoreError
from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.workspace.mirror import path_to_uri, uri_to_path

SHOW_S = 5.0
"""Seconds that an editor may take to show a document."""
CONVERSATION_TURNS_MAX = 100
"""Turns of a conversation that are shown at most, the newest ones."""


def age(connection: Connection, root: Path) -> int:
    """How often the conversation of ``root`` has been forgotten by now."""
    answers = connection.registry.answers
    return 0 if answers is None else answers.age(root)


def root_of_answer(connection: Connection, uri: str) -> Path | None:
    """The root of this editor's that the document ``uri`` is an answer about; None if it is none."""
    answers, path = connection.registry.answers, uri_to_path(uri)
    if answers is None or path is None:
        return None
    return next((root for root in connection.roots if answers.holds(root, Path(path))), None)


async def show(connection: Connection, root: Path, kind: str, text: str, since: int) -> str:
    """Show an answer, asked for at the age ``since``; what is left to be said of where it is, "" for nothing."""
    answers = connection.registry.answers
    if connection.client.panel or answers is None:
        return ""
    try:
        file = await asyncio.to_thread(answers.write, root, kind, text, since)
    except StoreError as error:
        return str(error)
    return "" if await show_file(connection, file) else f"the answer is in {file}"


async def show_file(connection: Connection, file: Path) -> bool:
    """Whether the editor says that it shows ``file``."""
    if not connection.client.shows_documents:
        return False
    params = types.ShowDocumentParams(uri=path_to_uri(str(file)), take_focus=True)
    request = connection.protocol.send_request_async(types.WINDOW_SHOW_DOCUMENT, params)
    try:
        result = await asyncio.wait_for(request, SHOW_S)
    except (TimeoutError, JsonRpcException):  # no answer, or an error as the answer
        return False
    return getattr(result, "success", None) is True


async def show_conversation(connection: Connection, root: Path) -> dict[str, str | None]:
    """The newest turns of the conversation of ``root`` as a document. Raises StoreError."""
    since = age(connection, root)
    found = await connection.registry.conversation(root, CONVERSATION_TURNS_MAX)
    parts = [f"# The conversation about {root.name}\n"]
    for turn in found["turns"]:
        ended = "" if turn["finish"] == "complete" else f"\n\n*({turn['finish']})*"
        parts.append(f"## {_heading(turn['question'])}\n\n{turn['question']}\n\n---\n\n{turn['text']}{ended}\n")
    if not found["turns"]:
        parts.append("Nothing has been asked yet.\n")
    answers = connection.registry.answers
    if answers is None:
        return {"file": None}
    file = await asyncio.to_thread(answers.write_conversation, root, "\n".join(parts), since)
    if not await show_file(connection, file):
        params = types.ShowMessageParams(type=types.MessageType.Info, message=f"The conversation is in {file}")
        connection.protocol.notify(types.WINDOW_SHOW_MESSAGE, params)
    return {"file": str(file)}


def _heading(question: str) -> str:
    line = question.split("\n", 1)[0].strip()
    return line if len(line) <= 100 else f"{line[:99]}…"
