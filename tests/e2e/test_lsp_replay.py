"""The recorded editors at work: long sessions of edits in each one's own columns, and two editors on one project.

What the daemon holds is compared with a reference after every message.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.bench import bench, text_of
from tests.support.fake_editor import CLIENT_NAMES, InMemory, Message, initialize_params
from tests.support.reference_text import Place, reference_edit, reference_place
from tests.support.waiting import until

ENCODINGS = {
    "emacs-28-eglot-1.9": "utf-16", "emacs-30-eglot-1.17": "utf-32", "helix-25.01": "utf-8", "helix-25.07": "utf-8",
    "neovim-0.11": "utf-8", "neovim-0.12": "utf-8", "vscode-1.139": "utf-16",
}  # fmt: skip
PIECES = [
    "x", "name", " ", "\n", "\r\n", "\r", "😋", "👩\u200d💻", "e\u0301", "é", "소", "你好，世界", "─", "\t", "\x0c",
    "\x0b", "\x1c", "\x85", "\u2028", "\u2029", "\ufeff", "𝒳", "def f(😋):\r\n\treturn '\u2028'\n", "",
]  # fmt: skip
FIRST = '\ufeffs = "a\u2028b"\r\nface = "😋"\rq\x0c = 1\n소 = 2'


class Buffer:
    """One document as one editor shows it, and as the reference has it."""

    def __init__(self, editor: InMemory, encoding: str, file: Path, text: str) -> None:
        self.editor = editor
        self.encoding = encoding
        self.file = file
        self.text = text
        self.version = 1
        editor.open(file, text)

    def change(self, place: Place, other: Place, piece: str) -> Message:
        """One change, and what it makes of the reference."""
        self.text = reference_edit(self.text, place, other, piece, self.encoding)
        return {"range": {"start": position(place), "end": position(other)}, "text": piece}

    def between(self, start: int, end: int, piece: str) -> Message:
        """A change as an editor makes it: of the characters from ``start`` to ``end``."""
        return self.change(*(reference_place(self.text, at, self.encoding) for at in (start, end)), piece)

    def whole(self, text: str) -> Message:
        self.text = text
        return {"text": text}

    def send(self, *changes: Message) -> None:
        self.version += 1
        self.editor.change(self.file, self.version, *changes)

    async def check(self) -> None:
        """To the character."""
        held = await self.editor.request("qmlx/context", {"file": str(self.file)})
        assert held == {"path": self.file.name, "text": self.text, "source": "editor"}


def position(place: Place) -> dict[str, int]:
    return {"line": place[0], "character": place[1]}


async def client(app: Any, name: str, root: Path) -> InMemory:
    editor = InMemory(app)
    said = await editor.initialize(initialize_params(name, root))
    assert said["capabilities"].get("positionEncoding", "utf-16") == ENCODINGS[name]
    return editor


def test_all_recorded_editors_are_replayed() -> None:
    assert sorted(ENCODINGS) == CLIENT_NAMES


@pytest.mark.parametrize("name", CLIENT_NAMES)
async def test_a_long_session_of_edits(tmp_path: Path, name: str) -> None:
    chance = random.Random(f"{name} edits")
    async with bench(tmp_path) as b:
        editor = await client(b.app, name, b.project)
        buffer = Buffer(editor, ENCODINGS[name], b.project / "a b.py", FIRST)
        await buffer.check()
        for step in range(60):
            changes = [_random(buffer, chance) for _ in range(chance.choice([1, 1, 1, 2, 5]))]
            if step % 20 == 10:
                changes.insert(chance.randrange(len(changes) + 1), buffer.whole(FIRST + str(step)))
                buffer.text = _replayed(changes, buffer.encoding)
            if len(buffer.text) > 3000:
                changes.append(buffer.whole(FIRST))
            buffer.send(*changes)
            await buffer.check()
        assert await editor.leave()


def _random(buffer: Buffer, chance: random.Random) -> Message:
    piece = "".join(chance.choices(PIECES, k=chance.randint(0, 3)))
    if chance.random() < 0.6:
        start, end = sorted(chance.randint(0, len(buffer.text)) for _ in range(2))
        end = min(end, start + chance.choice([0, 1, 3, 40]))
        return buffer.between(start, end, piece)
    # Anything at all: past the ends, reversed, inside characters and between CR and LF.
    lines = buffer.text.count("\n") + 3
    one, other = ((chance.randint(0, lines), chance.choice([0, 1, 2, 3, 9, 2**31 - 1])) for _ in range(2))
    return buffer.change(one, other, piece)


def _replayed(changes: list[Message], encoding: str) -> str:
    """The text behind changes of which at least one is a whole text."""
    text = ""
    for change in changes:
        if "range" in change:
            start, end = ((p["line"], p["character"]) for p in (change["range"]["start"], change["range"]["end"]))
            text = reference_edit(text, start, end, change["text"], encoding)
        else:
            text = change["text"]
    return text


@pytest.mark.parametrize(("one", "other"), [("helix-25.07", "vscode-1.139"), ("emacs-30-eglot-1.17", "neovim-0.12")])
async def test_two_editors_of_which_one_leaves_while_the_other_is_answered(
    tmp_path: Path, one: str, other: str
) -> None:
    reply = "a reply in full: 你好，世界 😋"
    async with bench(tmp_path, replies=[reply]) as b:
        (b.project / "shared.py").write_text("face = '😋é'\n" * 8)
        staying, leaving = await client(b.app, one, b.project), await client(b.app, other, b.project)
        mine, *_ = await _type_in_both(staying, leaving, ENCODINGS[one], ENCODINGS[other], b.project)
        b.gate.hold("decode", 3)
        number = staying.begin("qmlx/ask", {"text": "Q"})
        leaving.begin("qmlx/ask", {"text": "never answered"})
        await b.gate.reached()
        mine.send(mine.between(8, 8, "typed while it streams 😋"))
        await leaving.drop()
        await mine.check()
        b.gate.open()
        result = await staying.result(number)
        assert (result["text"], result["finish"]) == (reply, "complete")
        assert "".join(part["delta"] for part in staying.of("qmlx/stream")) == reply
        await mine.check()
        assert "never answered" not in text_of(b.ids())
        assert [len(b.app.registry.mirror.open_uris()), b.app.registry.mirror.open_uris()[0]] == [
            1,
            mine.file.as_uri(),
        ]
        assert await staying.leave()


@pytest.mark.parametrize(("one", "other"), [("vscode-1.139", "helix-25.07"), ("neovim-0.11", "emacs-28-eglot-1.9")])
async def test_two_editors_of_which_one_leaves_in_the_middle_of_its_reply(
    tmp_path: Path, one: str, other: str
) -> None:
    async with bench(tmp_path, replies=["cut off", "whole"]) as b:
        (b.project / "shared.py").write_text("face = '😋é'\n" * 8)
        staying, leaving = await client(b.app, one, b.project), await client(b.app, other, b.project)
        mine, theirs, alone = await _type_in_both(staying, leaving, ENCODINGS[one], ENCODINGS[other], b.project)
        b.gate.hold("decode", 3)
        leaving.begin("qmlx/ask", {"text": "Q", "textDocument": {"uri": theirs.file.as_uri()}})
        await b.gate.reached()
        dropping = asyncio.create_task(leaving.drop())
        number = staying.begin("qmlx/ask", {"text": "R", "textDocument": {"uri": mine.file.as_uri()}})
        mine.send(mine.between(0, 4, "visage"))
        await until(lambda: any(job.cancelled for job in b.app.registry.running))
        b.gate.open()
        await dropping
        assert (await staying.result(number))["text"] == "whole"
        await mine.check()
        said = text_of(b.ids())
        assert "cut<|im_end|>" in said, "what was said is kept, and no more"
        assert said.index(theirs.text) < said.index("visage = '"), "the other's text, and then mine"
        assert await staying.leave()
        assert alone.file.as_uri() not in b.app.registry.mirror.open_uris()


async def _type_in_both(
    staying: InMemory, leaving: InMemory, mine: str, theirs: str, root: Path
) -> tuple[Buffer, Buffer, Buffer]:
    """Both have the same file open and have typed behind the same characters, each in their own columns."""
    text = (root / "shared.py").read_text()
    first = Buffer(staying, mine, root / "shared.py", text)
    second = Buffer(leaving, theirs, root / "shared.py", text)
    alone = Buffer(leaving, theirs, root / "alone.py", "")
    at = text.index("'\n", 20)
    first.send(first.between(at, at, "<mine>"))
    await first.check()
    second.send(second.between(at, at, "<theirs>"), second.between(at + 8, at + 9, "' 👩\u200d💻"))
    alone.send(alone.between(0, 0, "s = '😋'\r\n"))
    await second.check()  # the latest change is what counts
    await alone.check()
    return first, second, alone
