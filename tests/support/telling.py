"""Files of a project, an editor on it, and what the conversation was told of them."""

from __future__ import annotations

from pathlib import Path

from qmlx_lsp.transcript.entry import Kind
from tests.support.bench import Bench
from tests.support.fake_editor import InMemory, initialize_params

TEXT = "".join(f"line number {n}\n" for n in range(30))
FUNCTIONS = "\n".join(f"def function_{n}(value):\n    first = value\n    return first + {n}\n" for n in range(400))
REQUEST_FAILED = -32803


async def editor_of(b: Bench, client: str = "vscode-1.139", root: Path | None = None) -> InMemory:
    editor = InMemory(b.app)
    await editor.initialize(initialize_params(client, root or b.project))
    return editor


def told(b: Bench) -> list[str]:
    return [entry.text for entry in b.entries() if entry.kind is Kind.CONTEXT]


def write(b: Bench, name: str, text: str = TEXT) -> Path:
    file = b.project / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file
