"""Completions over the protocol, as tests ask for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.bench import Bench
from tests.support.fake_editor import InMemory, Message, initialize_params

INLINE, LIST = "textDocument/inlineCompletion", "textDocument/completion"
INVOKED, AUTOMATIC = 1, 2
CODE = "def total(items):\n    return s\n\n\nprint(total([]))\n"


async def editor_of(b: Bench, client: str = "vscode-1.139", **changes: Any) -> InMemory:
    editor = InMemory(b.app)
    await editor.initialize(initialize_params(client, b.project, **changes))
    return editor


def at(file: Path, line: int, character: int, kind: int = AUTOMATIC, **context: Any) -> Message:
    place = {"textDocument": {"uri": file.as_uri()}, "position": {"line": line, "character": character}}
    return {**place, "context": {"triggerKind": kind, **context}}


def said(b: Bench, *texts: str) -> None:
    """What the model writes next, one after another, and what it would write when it is asked once more."""
    b.backend._replies[:] = texts


async def ready(b: Bench, editor: InMemory) -> None:
    """The model is there, and the conversation has been opened."""
    await b.app.registry.session(b.project)


async def items(editor: InMemory, params: Message) -> list[Message]:
    found = await editor.request(INLINE, params)
    assert set(found) == {"items"}
    return found["items"]


async def texts(editor: InMemory, params: Message) -> list[str]:
    return [item["insertText"] for item in await items(editor, params)]


async def opened(b: Bench, text: str, client: str = "vscode-1.139", **changes: Any) -> tuple[InMemory, Path]:
    """An editor that shows ``text``, with the model there and the conversation open."""
    editor, file = await editor_of(b, client, **changes), b.project / "a.py"
    editor.open(file, text)
    await ready(b, editor)
    return editor, file
