"""Coming to the extension from nothing, and the ways to have it that are not the usual one."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright", reason="playwright is not installed: run make test-editors")

from playwright.async_api import async_playwright, expect

from tests.editors.conftest import Editors
from tests.editors.scene import Scene
from tests.editors.vscode_code_server import REPOSITORY, CodeServer, code_server, packaged
from tests.editors.vscode_window import SIZE, WAIT_MS, Window

INSTALL_MS = 400_000


@asynccontextmanager
async def window_on(
    editors: Editors, scene: Scene, root: Path, machine: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[tuple[CodeServer, Window]]:
    program, chromium, npm = (editors.path(name) for name in ("code-server", "chromium", "npm"))
    async with (
        code_server(program, scene, packaged(npm), **options) as server,
        async_playwright() as playwright,
    ):
        server.set_machine(**machine or {})
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        try:
            window = Window(await browser.new_page(viewport=SIZE))
            await window.open(server.address(root))
            yield server, window
        finally:
            await browser.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_from_nothing_the_server_is_installed_from_a_clone(editors: Editors, scene: Scene) -> None:
    scene.say("Are you there", "I am.")
    for name in ("PYTHONPATH", "PYTHONWARNINGS"):  # it is what has been installed that runs
        del scene.environ[name]
    # The Python that runs this test, for the machine's own may lack its venv module.
    machine = {"qmlx__server__env": {"PATH": f"{Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin"}}
    async with window_on(editors, scene, scene.root, machine, linked=False) as (server, window):
        await expect(window.status).to_contain_text("qmlx: not installed", timeout=WAIT_MS)
        await window.messages.get_by_role("button", name="Install…").click()
        await window.pick(scene.root, "Install from here")
        await expect(window.messages.last).to_contain_text("has no pyproject.toml", timeout=WAIT_MS)
        await window.command("Notifications: Clear All Notifications")

        await window.command("qmlx: Install the Server…")
        await window.pick(REPOSITORY, "Install from here")
        await expect(window.status).to_have_text(re.compile(r"^\s*qmlx\s*$"), timeout=INSTALL_MS)
        made = server.folder / "data" / "User" / "globalStorage" / "qmlx.qmlx" / "venv" / "bin" / "qmlx-lsp"
        assert made.exists()
        await window.ask_in_chat("Are you there?")
        await expect(window.reply).to_contain_text("I am.", timeout=WAIT_MS)


async def test_every_folder_of_a_window_has_its_own_conversation(editors: Editors, scene: Scene) -> None:
    other = scene.user / "other"
    other.mkdir()
    (other / "shop.py").write_text("PRICE = 3\n", encoding="utf-8")
    workspace = scene.user / "two.code-workspace"
    workspace.write_text(json.dumps({"folders": [{"path": str(scene.root)}, {"path": str(other)}]}), encoding="utf-8")
    scene.say("what is sold", "Words.")
    scene.say("what is parsed", "Numbers.")
    async with window_on(editors, scene, workspace) as (_server, window):
        for name, question, answer in (
            ("shop.py", "what is sold?", "Words."), ("parser.py", "what is parsed?", "Numbers."),
        ):  # fmt: skip
            await window.file(name, 1)
            await window.ready()
            await window.ask_in_chat(question)
            await expect(window.reply).to_contain_text(answer, timeout=WAIT_MS)
            await expect(window.reply).to_contain_text("kept", timeout=WAIT_MS)
        assert await said(scene, other) == ["Words."]
        assert await said(scene, scene.root) == ["Numbers."]
        # Where no file says which is meant, its user is asked.
        await window.command("View: Close All Editors")
        await window.command("qmlx: Show the Conversation")
        await window.choose("Which folder is it about?", "other")
        await expect(window.lines).to_contain_text("The conversation about other", timeout=WAIT_MS)


async def said(scene: Scene, root: Path) -> list[str]:
    lines = (await scene.cli("log", "--json", "--root", str(root))).splitlines()
    return [entry["text"] for entry in map(json.loads, lines) if entry["kind"] == "assistant"]


async def test_the_commands_of_the_chat(editors: Editors, scene: Scene) -> None:
    scene.say("Explain", "It splits.")
    scene.say("Change", "```python\ndef total(numbers):\n    return sum(numbers)\n```")
    scene.say(
        "Write tests", "```python\nfrom parser import total\n\n\ndef test_total():\n    assert total([1]) == 1\n```"
    )
    async with window_on(editors, scene, scene.root) as (_server, window):
        await window.file("parser.py", 9)
        await window.ready()
        await window.ask_in_chat("/explain ")
        await expect(window.reply).to_contain_text("It splits.", timeout=WAIT_MS)
        await expect(window.reply).to_contain_text("kept", timeout=WAIT_MS)
        await window.ask_in_chat("/rewrite with sum")
        await expect(window.reply).to_contain_text("applied", timeout=WAIT_MS)
        await expect(window.lines).to_contain_text("return sum(numbers)", timeout=WAIT_MS)
        await window.ask_in_chat("/tests ")
        await expect(window.reply).to_contain_text("made", timeout=WAIT_MS)
        (tests,) = scene.root.rglob("test_*.py")
        assert "def test_total" in await scene.cli("context", "--file", str(tests)), "it is open, and not saved yet"
        await window.ask_in_chat("/status ")
        await expect(window.reply).to_contain_text("scripted", timeout=WAIT_MS)
        await window.ask_in_chat("/new ")
        await expect(window.reply).to_contain_text("A new conversation has begun.", timeout=WAIT_MS)
        (conversation,) = json.loads(await scene.cli("status", "--json"))["conversations"]
        assert conversation["epoch"] == 1


async def test_without_the_chat_the_commands_answer(editors: Editors, scene: Scene) -> None:
    scene.say("Explain", "It splits.")
    async with window_on(editors, scene, scene.root, chat__disableAIFeatures=True) as (_server, window):
        await window.file("parser.py", 4)
        await window.ready()
        await window.command("qmlx: Explain")
        await expect(window.answer).to_contain_text("It splits.", timeout=WAIT_MS)
        await expect(window.answer).to_contain_text("kept", timeout=WAIT_MS)
        assert await window.messages.count() == 0
