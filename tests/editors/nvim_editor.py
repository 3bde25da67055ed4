"""Neovim in a terminal, with the plugin of ``editors/nvim`` as its README says: keys go in as a user types them, and
what is asked of it comes out as JSON."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.editors.conftest import REPOSITORY, Editors
from tests.editors.scene import Scene
from tests.editors.terminal import WAIT_S, Terminal
from tests.support.waiting import until

PLUGIN = REPOSITORY / "editors" / "nvim"
VERSIONS = ("nvim", "nvim-0.11")
README_FOLDER = "~/src/qmlx-lsp/editors/nvim"
"""Where the README supposes the plugin to be."""
_numbers = itertools.count(1)


def readme(heading: str) -> str:
    """The first block of Lua below ``heading`` in the plugin's README, with the plugin's real place."""
    text = (PLUGIN / "README.md").read_text(encoding="utf-8")
    below = text.split(f"## {heading}\n", 1)[1].split("\n## ")[0]
    return re.findall(r"```lua\n(.*?)```", below, re.DOTALL)[0].replace(README_FOLDER, str(PLUGIN))


STANDARD = "\n".join((readme("Install"), readme("Keys"), readme("Status line"))) if PLUGIN.exists() else ""
"""The configuration that the README arrives at, from nothing."""


@dataclass(frozen=True)
class Neovim:
    """A running one."""

    terminal: Terminal
    asker: asyncio.subprocess.Process

    async def type(self, text: str) -> None:
        await self.terminal.type(text)

    async def keys(self, *names: str) -> None:
        await self.terminal.keys(*names)

    async def command(self, text: str) -> None:
        """A command as a user types it, from normal mode."""
        await self.terminal.type(f":{text}")
        await self.terminal.keys("Enter")

    async def shows(self, what: str | re.Pattern[str], within_s: float = WAIT_S) -> str:
        return await self.terminal.shows(what, within_s)

    async def lua(self, expression: str) -> Any:
        """The value of a Lua expression in it."""
        assert self.asker.stdin is not None
        assert self.asker.stdout is not None
        self.asker.stdin.write(f"{json.dumps(expression)}\n".encode())
        try:
            line = await asyncio.wait_for(self.asker.stdout.readline(), WAIT_S)
        except TimeoutError:
            raise AssertionError(f"{expression}: no answer. The screen:\n{self.terminal.screen()}") from None
        answer = json.loads(line)
        assert "failed" not in answer, answer
        return answer.get("value")

    async def becomes(self, expression: str, value: Any) -> None:
        """Wait until the Lua expression has this value."""
        now = None
        try:
            async with asyncio.timeout(WAIT_S):
                while (now := await self.lua(expression)) != value:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        except TimeoutError:
            screen = self.terminal.screen()
            raise AssertionError(f"{expression} is {now!r} and not {value!r}. The screen:\n{screen}") from None

    async def lines(self) -> list[str]:
        """Of the current buffer."""
        return list(await self.lua("vim.api.nvim_buf_get_lines(0, 0, -1, false)"))

    async def answers(self) -> str:
        """The buffer of answers."""
        return "\n".join(await self.lua("vim.api.nvim_buf_get_lines(vim.fn.bufnr('qmlx://answer'), 0, -1, false)"))

    async def attached(self) -> None:
        """Wait until the file is served, and the model is there."""
        await self.becomes("#vim.lsp.get_clients({ bufnr = 0, name = 'qmlx' }) > 0", True)
        await self.becomes("(vim.lsp.get_clients({ bufnr = 0, name = 'qmlx' })[1] or {}).initialized or false", True)


@asynccontextmanager
async def neovim(
    editors: Editors,
    scene: Scene,
    version: str = "nvim",
    init: str = STANDARD,
    file: str = "parser.py",
    env: dict[str, str] | None = None,
    rows: int = 28,
    columns: int = 100,
) -> AsyncIterator[Neovim]:
    """One with this ``init.lua``, in the project of the scene, with ``file`` open."""
    program = editors.path(version)
    with tempfile.TemporaryDirectory(prefix="qmlx-nvim-") as folder:
        socket, config = Path(folder) / "socket", Path(folder) / "init.lua"
        config.write_text(init, encoding="utf-8")
        given = {**scene.env(), **(env or {})}
        argv = [str(program), "-n", "-i", "NONE", "--listen", str(socket), "-u", str(config), file]
        tmux = str(editors.path("tmux"))
        async with Terminal(argv, env=given, cwd=scene.root, tmux=tmux, rows=rows, columns=columns) as terminal:
            await until(socket.exists)
            async with _asker(program, socket) as asker:
                yield Neovim(terminal, asker)
                await terminal.keys("Escape")
                await terminal.type(":qall!")
                await terminal.keys("Enter")


@asynccontextmanager
async def _asker(program: Path, socket: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """One for all questions of a test: a program for each takes longer than what it asks for."""
    pipe, script = asyncio.subprocess.PIPE, Path(__file__).with_name("nvim_asker.lua")
    asker = await asyncio.create_subprocess_exec(program, "-l", script, socket, stdin=pipe, stdout=pipe)
    try:
        yield asker
    finally:
        asker.kill()
        await asker.wait()
