"""The extension in a real VS Code (code-server, Chromium), with real daemons on the scripted model."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

pytest.importorskip("playwright", reason="playwright is not installed: run make test-editors")

from playwright.async_api import Browser, async_playwright, expect

from tests.editors.conftest import Editors, Pictures
from tests.editors.scene import Scene
from tests.editors.scene import scene as made_scene
from tests.editors.vscode_code_server import CodeServer, code_server, packaged
from tests.editors.vscode_window import SIZE, WAIT_MS, Window
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Stage:
    """One code-server, one browser, one project, and one window on it that most tests share."""

    def __init__(self, scene: Scene, server: CodeServer, browser: Browser) -> None:
        self.scene, self.server, self.browser = scene, server, browser

    async def window(self) -> Window:
        context = await self.browser.new_context(viewport=SIZE, device_scale_factor=1)
        window = Window(await context.new_page())
        await window.open(self.server.address(self.scene.root))
        return window

    async def held(self, name: str) -> str:
        """The text that the daemon holds of a file: the editor's."""
        return await self.scene.cli("context", "--file", name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(editors: Editors) -> AsyncIterator[Stage]:
    program, chromium, npm = (editors.path(name) for name in ("code-server", "chromium", "npm"))
    vsix = packaged(npm)
    async with made_scene() as scene, code_server(program, scene, vsix) as server, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        try:
            yield Stage(scene, server, browser)
        finally:
            await browser.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(stage: Stage) -> AsyncIterator[Window]:
    window = await stage.window()
    yield window
    await window.page.context.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def second(stage: Stage, shared: Window) -> AsyncIterator[Window]:
    """Another window on the same project, in restricted mode."""
    stage.server.set(security__workspace__trust__enabled=True, security__workspace__trust__startupPrompt="never")
    window = await stage.window()
    await window.ready()
    stage.server.set()
    yield window
    await window.page.context.close()


@pytest_asyncio.fixture(loop_scope="module")
async def window(shared: Window, tmp_path: Path) -> AsyncIterator[Window]:
    yield shared
    await shared.page.screenshot(path=tmp_path / "last.png")
    await shared.tidy()


SPLITS = """\
`parse` makes a number of every word:

```python
parse("1 2")  # [1, 2]
```

Others raise `ValueError`.
"""


async def test_a_question_in_the_chat_streams_and_its_cost_is_in_the_status_bar(
    stage: Stage, window: Window, pictures: Pictures
) -> None:
    stage.scene.say("What does parse do", SPLITS, pace_ms=8)
    stage.scene.say("And who calls it", "Nobody yet, in the files that I have seen.")
    await window.file("parser.py", 5)
    await window.ready()
    await window.page.keyboard.press("Control+b")  # more room for the picture

    await window.ask_in_chat("What does parse do?")
    await expect(window.reply).to_contain_text("makes a number", timeout=WAIT_MS)
    assert "ValueError" not in await window.reply.inner_text(), "nothing was seen growing"
    await expect(window.status).to_contain_text("answering")
    await expect(window.reply).to_contain_text("kept", timeout=WAIT_MS)
    assert (await stage.scene.replies())[-1] == ("complete", SPLITS)
    first = sum(await window.figures())
    await window.picture(pictures.path("vscode", "chat.png"))

    await window.ask_in_chat("And who calls it?")
    await expect(window.reply).to_contain_text("Nobody yet", timeout=WAIT_MS)
    await expect(window.reply).to_contain_text("kept", timeout=WAIT_MS)
    await expect(window.status).not_to_contain_text("answering")
    read, kept = await window.figures()
    assert kept >= first + len(SPLITS.encode()), "the scripted model's tokens are bytes, and none is read twice"
    assert read < 200


async def test_ghost_text_comes_while_typing_and_tab_takes_it(
    stage: Stage, window: Window, pictures: Pictures
) -> None:
    stage.scene.complete("return sum(numbers) / len(numbers)")
    await window.file("parser.py", 12)
    await window.ready()
    await window.page.keyboard.press("Enter")
    await window.page.keyboard.press("Enter")
    await window.page.keyboard.press("Home")
    await window.page.keyboard.type("def mean(numbers):")
    await window.page.keyboard.press("Enter")
    await window.page.keyboard.type("retu")
    ghost = window.page.locator(".ghost-text-decoration, .ghost-text-decoration-preview, .ghost-text").first
    await expect(ghost).to_contain_text("rn", timeout=WAIT_MS)
    await window.picture(pictures.path("vscode", "ghost-text.png"))
    await window.page.keyboard.press("Tab")
    await expect(window.lines).to_contain_text("len(numbers)")
    assert "def mean(numbers):\n    return sum(numbers) / len(numbers)" in await stage.held("parser.py")


ITERATIVE = """```python
def total(numbers):
    return sum(numbers)
```"""


async def test_a_code_action_changes_the_file_and_one_undo_takes_it_back(
    stage: Stage, window: Window, pictures: Pictures
) -> None:
    stage.scene.say("use the built-in sum", ITERATIVE)
    before = (stage.scene.root / "parser.py").read_text(encoding="utf-8")
    await window.file("parser.py")
    await window.ready()
    await window.select(8, 12)
    await window.action("Rewrite selection…", pictures.path("vscode", "actions.png"))
    await window.answer_box("make it iterative", "use the built-in sum")
    await expect(window.lines).to_contain_text("return sum(numbers)", timeout=WAIT_MS)
    after = await stage.held("parser.py")
    assert after == before.replace(before[before.index("    result = 0") :], "    return sum(numbers)\n")
    await window.page.keyboard.press("Control+z")
    await expect(window.lines).to_contain_text("result = 0")
    assert await stage.held("parser.py") == before


async def test_a_reply_is_cancelled_kept_as_far_as_it_went_and_the_next_question_is_answered(
    stage: Stage, window: Window
) -> None:
    stage.scene.say("Tell me a long story", "Once upon a time there was a parser. " * 50, pace_ms=15)
    stage.scene.say("How did it end", "It was cut short.")
    await window.file("parser.py")
    await window.ready()
    await window.command("qmlx: Ask…")
    await window.answer_box("Why is this loop needed", "Tell me a long story.")
    await expect(window.answer).to_contain_text("Once upon a time", timeout=WAIT_MS)
    await window.status.click()
    await expect(window.answer).to_contain_text("cancelled", timeout=WAIT_MS)
    finish, text = (await stage.scene.replies())[-1]
    assert finish == "cancelled"
    assert text.startswith("Once upon a time")
    assert len(text) < 1_000

    await window.ask_in_chat("How did it end?")
    await expect(window.reply).to_contain_text("It was cut short.", timeout=WAIT_MS)
    assert [finish for finish, _text in (await stage.scene.replies())[-2:]] == ["cancelled", "complete"]


async def test_the_daemon_is_killed_and_the_conversation_goes_on(stage: Stage, window: Window) -> None:
    stage.scene.say("Remember", "I shall.")
    stage.scene.say("What was it", "A number.")
    await window.file("parser.py")
    await window.ready()
    await window.ask_in_chat("Remember the number 7.")
    await expect(window.reply).to_contain_text("I shall.", timeout=WAIT_MS)
    await expect(window.reply).to_contain_text("kept", timeout=WAIT_MS)
    told = sum(await window.figures())
    pid = stage.scene.daemon
    await stage.scene.kill_daemon()
    await until(lambda: stage.scene.daemon not in (None, pid))  # the extension has begun another one
    await window.ready()
    await window.ask_in_chat("What was it?")
    await expect(window.reply).to_contain_text("A number.", timeout=WAIT_MS)
    await expect(window.reply).to_contain_text("kept", timeout=WAIT_MS)
    _read, kept = await window.figures()
    assert kept >= told, "what had been read was not restored"
    assert (await stage.scene.replies())[-2:] == [("complete", "I shall."), ("complete", "A number.")]
    assert await window.messages.count() == 0


async def test_a_second_window_has_the_same_conversation_and_sees_its_cost(
    stage: Stage, window: Window, second: Window
) -> None:
    stage.scene.say("Who are you", "One conversation.", pace_ms=120)
    await window.file("parser.py")
    await window.ready()
    await window.ask_in_chat("Who are you?")
    await expect(second.status).to_contain_text("answering", timeout=WAIT_MS)
    await expect(window.reply).to_contain_text("One conversation.", timeout=WAIT_MS)
    await expect(window.reply).to_contain_text(re.compile(r"[\d,]+ kept"), timeout=WAIT_MS)
    kept = re.findall(r"[\d,]+ kept", await window.reply.inner_text())[-1]
    for one in (window, second):
        await expect(one.status).to_contain_text(kept, timeout=WAIT_MS)
    assert await second.figures() == await window.figures()
    await second.command("qmlx: Show the Conversation")
    await expect(second.lines).to_contain_text("The conversation about project", timeout=WAIT_MS)
    await second.page.keyboard.press("Control+End")
    await expect(second.lines).to_contain_text("One conversation.")


async def test_a_server_that_is_missing_is_said_with_buttons(stage: Stage, window: Window) -> None:
    await window.ready()
    stage.server.set_machine(qmlx__server__path="/nowhere/qmlx-lsp")
    try:
        await expect(window.status).to_contain_text("qmlx: not installed", timeout=WAIT_MS)
        await expect(window.messages).to_contain_text("qmlx.server.path is /nowhere/qmlx-lsp", timeout=WAIT_MS)
        buttons = window.messages.locator(".monaco-button:visible")
        assert [text.strip() for text in await buttons.all_inner_texts()] == ["Install…", "Choose…", "Open Setup"]
        await buttons.last.click()
        await expect(window.page.locator(".getting-started")).to_contain_text("Set up qmlx", timeout=WAIT_MS)
        await window.ask_in_chat("Are you there?")
        await expect(window.reply).to_contain_text("qmlx does not run: qmlx.server.path is", timeout=WAIT_MS)
    finally:
        stage.server.set_machine()
    await window.ready()


async def test_a_tool_is_run_and_its_result_is_told(stage: Stage, window: Window) -> None:
    await window.file("parser.py")
    await window.ready()
    await window.command("qmlx: Run a Tool and Tell the Result…")
    await window.choose("Which tool?", "check")
    await expect(window.answer).to_contain_text("3 passed", timeout=WAIT_MS)
    told = [entry["text"] for entry in await stage.scene.log() if entry["kind"] == "context"]
    assert "3 passed" in told[-1]


async def test_in_restricted_mode_no_tool_is_offered(second: Window) -> None:
    await second.tidy()
    await second.file("parser.py")
    await second.ready()
    await second.select(8, 12)
    titles = await second.actions()
    assert "Rewrite selection…" in titles
    assert not [title for title in titles if "check" in title]
    await second.page.keyboard.press("Escape")
    await second.look_up("qmlx: Restart the Server")
    box = second.page.locator(".quick-input-widget input").first
    await box.fill(">qmlx: Run a Tool and Tell")
    await expect(second.first).not_to_contain_text("qmlx: Restart", timeout=WAIT_MS)
    assert await second.page.locator(".quick-input-list", has_text="qmlx: Run a Tool").count() == 0


async def test_a_chosen_model_is_written_and_others_are_cut_off_only_on_demand(
    stage: Stage, window: Window, second: Window
) -> None:
    before = stage.scene.daemon
    await window.ready()
    await second.ready()
    await window.command("qmlx: Choose a Model…")
    await window.choose("Now: scripted", "embedded")
    await expect(window.messages).to_contain_text("would be cut off", timeout=WAIT_MS)
    assert stage.scene.daemon == before
    assert (stage.scene.home / "config" / "config.toml").read_text(encoding="utf-8") == '[model]\nname = "embedded"\n'
    await window.messages.get_by_role("button", name="Restart anyway").click()
    await until(lambda: stage.scene.daemon not in (None, before))
    await window.ready()
    await second.ready()


WORDS = """\
The words of a text, which are what stands between blanks: `split()` without an argument takes any run of blanks,
tabs and line ends for one.

- An empty text gives an empty list.
- The result is a list, so a large text is held twice; an iterator would not need that.
"""


async def test_an_explanation_grows_in_a_document_beside_the_code(
    stage: Stage, window: Window, pictures: Pictures
) -> None:
    stage.scene.say("lexer.py", WORDS, pace_ms=8)
    await window.file("lexer.py", 4)
    await window.ready()
    await window.command("qmlx: Explain")
    answer = window.answer
    await expect(answer).to_contain_text("The words of a text", timeout=WAIT_MS)
    assert "iterator" not in await answer.inner_text(), "nothing was seen growing"
    await expect(answer).to_contain_text("kept", timeout=WAIT_MS)
    await expect(answer).to_contain_text("# Explanation of lexer.py")
    await expect(answer).to_contain_text("iterator")
    await window.picture(pictures.path("vscode", "answer.png"))
