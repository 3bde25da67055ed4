"""Somebody types while the model writes and while its edit is on the way, in every style of editor: what they see is
their own text with the lines replaced, or their own text, and it is said which of the two."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.support.applying import Applying, Style
from tests.support.bench import bench
from tests.support.commands import COMMAND, call, ended, told

STYLES = (Style.VSCODE, Style.HELIX, Style.NEOVIM, Style.SILENT)
ENDS = ("\n", "\r\n", "\r")
ROUNDS = 3


class Typist:
    """Types lines into a document and knows what it must look like. Lines are each alone of their kind."""

    def __init__(self, editor: Applying, uri: str, lines: list[str], target: range, end: str, dice: random.Random):
        self.editor, self.uri, self.end, self.dice = editor, uri, end, dice
        self.above, self.target, self.below = (
            lines[: target.start], lines[target.start : target.stop], lines[target.stop :],
        )  # fmt: skip
        self.touched = False
        self.count = 0

    @property
    def lines(self) -> list[str]:
        return [*self.above, *self.target, *self.below]

    def text(self, target: list[str] | None = None) -> str:
        return self.end.join([*self.above, *(self.target if target is None else target), *self.below, ""])

    def type(self, *, into_target: bool = False) -> None:
        """One line more, or one changed; in the editor's own text as it is."""
        self.count += 1
        fresh = f"typed {self.count} 😋"
        part = self.target if into_target else self.dice.choice([self.above, self.below])
        self.touched = self.touched or into_target
        first = 0 if part is self.above else len(self.above) + (len(self.target) if part is self.below else 0)
        at = self.dice.randrange(len(part) + (not into_target))
        if at < len(part) and (into_target or self.dice.random() < 0.3):
            width = (
                len(part[at].encode("utf-16-le")) // 2 if self.editor.encoding == "utf-16" else len(part[at].encode())
            )
            part[at] = fresh
            self.editor.type(self.uri, first + at, 0, width, fresh)
        else:
            part.insert(at, fresh)
            self.editor.type(self.uri, first + at, 0, 0, fresh + self.end)


@pytest.mark.slow
@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("seed", range(3))
async def test_typed_text_is_never_lost_nor_mangled(tmp_path: Path, style: Style, seed: int) -> None:
    dice = random.Random(f"{seed} {style}")
    plans = []
    for number in range(ROUNDS):
        size = dice.randrange(4, 12)
        lines = [f"line {number} {n} é" for n in range(size)]
        start = dice.randrange(size - 1)
        target = range(start, dice.randrange(start + 1, size))
        new = [f"new {number} {n}" if dice.random() < 0.6 else lines[n] for n in target]
        new += [f"more {number}"] * dice.randrange(2)
        plans.append((lines, target, new))
    replies = ["```\n" + "\n".join(new) + "\n```\n" for _, _, new in plans]
    async with bench(tmp_path, replies=replies) as b:
        editor = Applying(b.app, style)
        await editor.begin_as(b.project)
        for number, (lines, target, new) in enumerate(plans):
            end = dice.choice(ENDS)
            uri = editor.show(b.project / f"f{number}.txt", end.join([*lines, ""]), version=dice.randrange(1, 9))
            typist = Typist(editor, uri, lines, target, end, dice)
            b.gate.hold("decode", 2)
            span = {"start": {"line": target.start, "character": 0}, "end": {"line": target.stop, "character": 0}}
            about = {"uri": uri, "range": span, "text": "change"}
            await editor.request(COMMAND, call("qmlx.rewrite", about, workDoneToken=number))
            await b.gate.reached()
            for _ in range(dice.randrange(4)):
                typist.type(into_target=dice.random() < 0.1)
            late = dice.randrange(3) if style is not Style.SILENT else 0

            def comes(typist: Typist = typist, late: int = late) -> None:
                editor.before_edit = None
                editor.holds_back = style is Style.NEOVIM  # which sends changes a moment later
                for _ in range(late):
                    typist.type(into_target=typist.dice.random() < 0.2)
                if editor.holds_back:
                    asyncio.get_running_loop().call_soon(editor.flush)

            editor.before_edit = comes
            b.gate.open()
            said = await ended(editor, number)
            editor.before_edit = None
            before, after = typist.text(), typist.text(new)
            assert editor.text(uri) in (before, after), (said, lines, target, new)
            if before != after:
                assert (said == "rewrite: applied") is (editor.text(uri) == after), said
            if not typist.touched and new != lines[target.start : target.stop]:
                assert said == "rewrite: applied", "nobody has touched these lines"
            editor.hide(uri)
        told(editor)
        assert await editor.leave()
