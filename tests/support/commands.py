"""Commands as editors send them, and what is seen of the jobs that they begin."""

from __future__ import annotations

from typing import Any

from tests.support.fake_editor import FakeEditor, Message

COMMAND, CANCEL = "workspace/executeCommand", "qmlx.cancel"
PROGRESS, MESSAGE = "$/progress", "window/showMessage"


def call(command: str, *arguments: Any, **more: Any) -> dict[str, Any]:
    return {"command": command, "arguments": list(arguments), **more}


def span(first: int, last: int, character: int = 0) -> dict[str, Any]:
    """Lines from 0, the last not included."""
    return {"start": {"line": first, "character": 0}, "end": {"line": last, "character": character}}


async def ended(editor: FakeEditor, token: Any) -> str:
    """The line with which the job on this progress ended."""

    def right(m: Message) -> bool:
        about = m.get("params")
        return m.get("method") == PROGRESS and about["token"] == token and about["value"]["kind"] == "end"

    message = await editor.until(right)
    said: str = message["params"]["value"]["message"]
    return said


async def run(editor: FakeEditor, command: str, *arguments: Any, token: Any = "t") -> str:
    """Run a command to its end; returns the line with which it ended."""
    answer = await editor.request(COMMAND, call(command, *arguments, workDoneToken=token))
    assert list(answer) == ["jobId"]
    return await ended(editor, token)


def told(editor: FakeEditor) -> list[tuple[int, str]]:
    """The messages on the screen so far; each is one line."""
    found = [(params["type"], params["message"]) for params in editor.of(MESSAGE)]
    assert all("\n" not in text for _, text in found)
    return found
