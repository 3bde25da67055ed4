"""The extension with a real model, once: what the status bar says of it is what a model has really read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed: run make test-editors")

from playwright.async_api import async_playwright, expect

from tests.editors.conftest import Editors
from tests.editors.scene import Scene
from tests.editors.vscode_code_server import code_server, packaged
from tests.editors.vscode_window import SIZE, Window

pytestmark = [pytest.mark.slow, pytest.mark.model]
ANSWER_MS = 240_000


@pytest.mark.timeout(600)
async def test_the_embedded_model_answers_in_the_chat_and_reads_only_what_is_new(
    editors: Editors, scene: Scene, tmp_path: Path
) -> None:
    program, chromium, npm = (editors.path(name) for name in ("code-server", "chromium", "npm"))
    scene.use_real_model(24)
    async with code_server(program, scene, packaged(npm)) as server, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        window = Window(await browser.new_page(viewport=SIZE))
        await window.open(server.address(scene.root))
        await window.file("parser.py", 5)
        await expect(window.status).not_to_contain_text("starting", timeout=ANSWER_MS)
        totals = []
        for question in ("What does parse return?", "And what does total return?"):
            await window.ask_in_chat(question)
            await expect(window.reply).to_contain_text(re.compile("tokens read, .* kept"), timeout=ANSWER_MS)
            await expect(window.status).to_contain_text("kept", timeout=ANSWER_MS)
            totals.append(await window.figures())
        await browser.close()
    (first_read, first_kept), (read, kept) = totals
    assert kept >= first_read + first_kept, "something was read twice"
    assert read < 100
    assert [finish for finish, text in await scene.replies() if text] in (
        [first, second] for first in ("complete", "length") for second in ("complete", "length")
    )
