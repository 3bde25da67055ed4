"""What every editor is shown: a small project, a home of its own, and a model that says what a test wants to hear."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from qmlx_lsp.daemon.socket import ask_daemon
from qmlx_lsp.engine.mlx import embedded
from tests.support import corpus
from tests.support.processes import Home, home
from tests.support.waiting import until

FILES = {
    "parser.py": '''\
"""Sums up numbers."""


def parse(text):
    return [int(word) for word in text.split()]


def total(numbers):
    result = 0
    for number in numbers:
        result = result + number
    return result
''',
    "lexer.py": '''\
"""Words of a text."""


def words(text):
    return text.split()
''',
    ".qmlx.toml": '[tools.check]\ncommand = "echo 3 passed"\n',
    ".gitignore": ".env\n",
    ".env": "SECRET=1\n",
}


class Scene:
    """``home`` has the daemon's folders; ``user`` is an empty HOME, for the editor's own settings."""

    def __init__(self, made: Home) -> None:
        self._home = made
        self.home = made.home
        self.root = made.project
        self.user = made.base  # as a home is: the project lies in it
        self._bin = made.base / "bin"
        self._bin.mkdir()
        (self._bin / "qmlx-lsp").symlink_to(Path(sys.executable).with_name("qmlx-lsp"))
        self._script = made.base / "script.json"
        self._rules: list[dict[str, Any]] = []
        self.environ["QMLX_SCRIPT"] = str(self._script)
        self._write()
        for name, text in FILES.items():
            (self.root / name).write_text(text, encoding="utf-8")
        git = ["git", "-C", str(self.root), "-c", "user.name=t", "-c", "user.email=t@t"]
        for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
            subprocess.run([*git, *arguments], check=True, capture_output=True)

    def env(self) -> dict[str, str]:
        """What an editor is started with: ``qmlx-lsp`` on the PATH, and no settings of this machine's user."""
        user, ours = str(self.user), str(Path(sys.executable).parent)  # where a linter may be, which has actions too
        path = [str(self._bin), *(one for one in os.environ["PATH"].split(os.pathsep) if one != ours)]
        return {
            **{key: value for key, value in self._home.environ.items() if not key.startswith(("XDG_", "TMUX"))},
            "HOME": user, "XDG_CONFIG_HOME": f"{user}/.config", "XDG_DATA_HOME": f"{user}/.local/share",
            "XDG_STATE_HOME": f"{user}/.local/state", "XDG_CACHE_HOME": f"{user}/.cache",
            "PATH": os.pathsep.join(path),
        }  # fmt: skip

    @property
    def environ(self) -> dict[str, str]:
        """The daemon's: what is set here before an editor starts, it will have."""
        return self._home.environ

    def say(self, when: str, text: str, pace_ms: float = 0) -> None:
        """A question with ``when`` in it is answered by ``text``, ``pace_ms`` for each of its bytes."""
        self._rules.append({"when": when, "say": text, "pace_ms": pace_ms})
        self._write()

    def complete(self, line: str, pace_ms: float = 0) -> None:
        """Where the beginning of ``line`` stands (without its indentation), the rest of it is the completion."""
        self._rules.append({"line": line, "pace_ms": pace_ms})
        self._write()

    def _write(self) -> None:
        made = self._script.with_suffix(".new")
        made.write_text(json.dumps({"rules": self._rules}), encoding="utf-8")
        made.replace(self._script)

    def use_real_model(self, max_tokens: int) -> None:
        """The embedded model from now on, fetched if need be, with short replies."""
        embedded.ensure(corpus.models(), lambda *_report: None, lambda: False)
        models = self.home / "cache" / "models"
        models.parent.mkdir(parents=True, mode=0o700)
        models.symlink_to(corpus.models())
        self.environ.update(QMLX_MODEL="embedded", QMLX_MAX_TOKENS=str(max_tokens))

    async def cli(self, *arguments: str) -> str:
        """What ``qmlx-lsp`` prints, run in the project."""
        code, out, err = await self._home.run(*arguments)
        assert code == 0, err
        return out

    async def log(self) -> list[dict[str, Any]]:
        """The conversation: ``{entry, kind, finish, text, span}`` each."""
        return [json.loads(line) for line in (await self.cli("log", "--json")).splitlines()]

    async def replies(self) -> list[tuple[str, str]]:
        """How every reply ended, and its text."""
        return [(e["finish"], e["text"]) for e in await self.log() if e["kind"] == "assistant"]

    @property
    def daemon(self) -> int | None:
        """Its pid, if it runs."""
        return self._home.pid

    async def ready(self, clients: int = 1) -> None:
        """Wait until the daemon's model is ready and so many editors are connected."""

        def seen() -> bool:
            found = ask_daemon(self._home.paths, "status")
            return found is not None and found["model"]["state"] == "ready" and found["clients"] == clients

        await until(seen)

    async def kill_daemon(self) -> None:
        """As a crash would."""
        pid = self.daemon
        assert pid is not None, "no daemon runs"
        os.kill(pid, signal.SIGKILL)
        await self._home.gone(pid)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    async with home() as made:
        yield Scene(made)
