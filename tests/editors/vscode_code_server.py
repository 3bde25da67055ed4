"""VS Code as its users have it, but in a browser: code-server with the packaged extension, and Chromium.

One of each serves a whole file of tests; a window is a page of the browser, on whichever folder.

Invariant: the extension is installed from its ``.vsix``, as a user does it, and nothing else is.
Invariant: what is started here is ended by its own process group.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.editors.scene import Scene

REPOSITORY = Path(__file__).parents[2]
EXTENSION = REPOSITORY / "editors" / "vscode"
START_S = 60.0
BUILD_S = 240

# No welcome, no news, no offers: what is left is the editor and the extension.
SETTINGS: dict[str, Any] = {
    "security.workspace.trust.enabled": False,
    "telemetry.telemetryLevel": "off",
    "workbench.startupEditor": "none",
    "workbench.tips.enabled": False,
    "workbench.secondarySideBar.defaultVisibility": "hidden",
    "workbench.layoutControl.enabled": False,
    "workbench.colorTheme": "Default Light Modern",
    "workbench.reduceMotion": "on",
    "window.commandCenter": False,
    "chat.commandCenter.enabled": False,
    "chat.agentsControl.enabled": False,
    "extensions.ignoreRecommendations": True,
    "git.openRepositoryInParentFolders": "never",
    "git.blame.statusBarItem.enabled": False,
    "files.autoSave": "off",
    "editor.wordBasedSuggestions": "off",
    "editor.minimap.enabled": False,
    "editor.cursorBlinking": "solid",
    "editor.fontSize": 13,
}


def packaged(npm: Path) -> Path:
    """The extension's ``.vsix``, made from its sources as its README says; once for all processes of a run."""
    made = EXTENSION / "qmlx.vsix"
    with (EXTENSION / "package.json").open() as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        if not made.exists() or made.stat().st_mtime < _changed():
            _package(npm)
    return made


def _changed() -> float:
    """When the newest of what goes into it was written."""
    sources = [EXTENSION, *(EXTENSION / name for name in ("src", "media", "images"))]
    return max(file.stat().st_mtime for folder in sources for file in folder.iterdir()
               if file.is_file() and file.suffix != ".vsix")  # fmt: skip


def _package(npm: Path) -> None:
    environ = {**os.environ, "PATH": f"{npm.parent}{os.pathsep}{os.environ['PATH']}"}
    commands = [["run", "-s", "package"]]
    if not (EXTENSION / "node_modules").is_dir():
        commands.insert(0, ["ci", "--no-audit", "--no-fund"])
    for command in commands:
        done = subprocess.run(
            [npm, *command], cwd=EXTENSION, env=environ, capture_output=True, text=True, timeout=BUILD_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


class CodeServer:
    """A running code-server; ``settings`` are its user's, which may be changed while it runs."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port

    def address(self, root: Path) -> str:
        """Of a folder, or of the file of a workspace."""
        return f"http://127.0.0.1:{self.port}/?{'folder' if root.is_dir() else 'workspace'}={root}"

    def set_machine(self, **settings: Any) -> None:
        """The settings of the machine that the files are on, where those are that no project may choose."""
        self._write(self.folder / "data" / "Machine" / "settings.json", settings)

    def set(self, **changes: Any) -> None:
        """The settings of every test, with these: dots are written as two underscores."""
        self._write(self.folder / "data" / "User" / "settings.json", {**SETTINGS, **changes})

    def _write(self, file: Path, settings: dict[str, Any]) -> None:
        named = {key.replace("__", "."): value for key, value in settings.items()}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(named), encoding="utf-8")


@asynccontextmanager
async def code_server(
    program: Path, scene: Scene, extension: Path, *, linked: bool = True, **settings: Any
) -> AsyncIterator[CodeServer]:
    """Install the extension, start, wait until it listens; end it at the end. ``linked``: whether ``qmlx-lsp`` is
    where the extension finds it."""
    folder = scene.user / "vs"
    server = CodeServer(folder, _free_port())
    server.set(**settings)
    folders = ["--user-data-dir", str(folder / "data"), "--extensions-dir", str(folder / "extensions")]
    environ = scene.env()
    if linked:
        _put_in_the_usual_place(scene.user)
    installed = await asyncio.create_subprocess_exec(
        program, *folders, "--install-extension", extension, env=environ,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await asyncio.wait_for(installed.communicate(), START_S)
    assert b"was successfully installed" in said, said.decode()
    process = await asyncio.create_subprocess_exec(
        program, *folders, "--auth", "none", "--bind-addr", f"127.0.0.1:{server.port}", "--disable-telemetry",
        "--disable-update-check", "--disable-getting-started-override",
        env=environ, start_new_session=True, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        said = await asyncio.wait_for(_until_listening(process.stdout), START_S)
        reading = asyncio.create_task(process.stdout.read())  # so that it never waits for a reader
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    await reading


def _put_in_the_usual_place(user: Path) -> None:
    """code-server takes its PATH from a login shell, which knows nothing of ours."""
    place = user / ".local" / "bin"
    place.mkdir(parents=True, exist_ok=True)
    (place / "qmlx-lsp").symlink_to(Path(sys.executable).parent / "qmlx-lsp")


async def _until_listening(output: asyncio.StreamReader) -> bytes:
    said = b""
    while b"HTTP server listening" not in said:
        line = await output.readline()
        assert line, said.decode()
        said += line
    return said


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
