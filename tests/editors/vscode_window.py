"""One window of VS Code, driven as a person would: keys, the palette, and what is on the screen.

Nothing here sleeps: every step waits for what it brings about, and what never comes is said with what is there.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from playwright.async_api import Locator, Page, expect
from playwright.async_api import TimeoutError as NeverCame

WAIT_MS = 20_000
SIZE = {"width": 1100, "height": 700}
STATUS = r"#qmlx\.qmlx\.qmlx\.status"


class Window:
    """A page on one folder."""

    def __init__(self, page: Page) -> None:
        self.page = page
        page.set_default_timeout(WAIT_MS)

    # --- coming and going -----------------------------------------------------------------------------------------

    async def open(self, address: str) -> None:
        """Until the workbench and the extension are there."""
        await self.page.goto(address)
        await self.page.wait_for_selector(STATUS, timeout=2 * WAIT_MS)

    async def ready(self) -> None:
        """Until the server runs and nothing is under way."""
        await expect(self.status).to_have_text(re.compile(r"^\s*qmlx( · .* read, .* kept)?\s*$"), timeout=WAIT_MS)

    async def tidy(self) -> None:
        """As it was when it was opened: no editors, no chat to see, no messages, files as they are on the disk."""
        await self.page.keyboard.press("Escape")
        await self.page.keyboard.press("Escape")
        for title in ("File: Revert File", "View: Close All Editors", "Notifications: Clear All Notifications"):
            if title != "File: Revert File" or await self.page.locator(".tab.active.dirty").count():
                await self.command(title)
        await expect(self.page.locator(".tab")).to_have_count(0, timeout=WAIT_MS)
        if await self.page.locator(".part.auxiliarybar .interactive-session").is_visible():
            await self.command("View: Hide Secondary Side Bar")

    # --- what is on the screen ------------------------------------------------------------------------------------

    @property
    def status(self) -> Locator:
        return self.page.locator(STATUS)

    async def figures(self) -> tuple[int, int]:
        """Tokens read and kept in the last turn, from the status bar."""
        await expect(self.status).to_have_text(re.compile("read, .* kept"), timeout=WAIT_MS)
        read, kept = re.findall(r"([\d,]+) (?:read|kept)", await self.status.inner_text())
        return int(read.replace(",", "")), int(kept.replace(",", ""))

    @property
    def messages(self) -> Locator:
        """Notifications."""
        return self.page.locator(".notifications-toasts .notification-list-item")

    @property
    def lines(self) -> Locator:
        """The text of the first editor as far as it is on the screen."""
        return self.page.locator(".editor-group-container .view-lines").first

    @property
    def reply(self) -> Locator:
        """The last reply in the chat."""
        return self.page.locator(".interactive-response").last

    @property
    def answer(self) -> Locator:
        """The document of an answer, beside the code."""
        return self.page.locator(".editor-group-container").nth(1).locator(".view-lines")

    @property
    def first(self) -> Locator:
        """The first thing to choose in the box at the top."""
        return self.page.locator(".quick-input-list .monaco-list-row").first

    # --- what a person does ---------------------------------------------------------------------------------------

    async def command(self, title: str) -> None:
        """From the palette."""
        await self.look_up(title)
        await self.page.keyboard.press("Enter")

    async def look_up(self, title: str) -> None:
        """Until the palette shows it first."""
        box = self.page.locator(".quick-input-widget input").first
        for patience_ms in (5_000, 5_000, WAIT_MS):  # what comes to the front just then closes it: once more
            await self.page.keyboard.press("F1")
            with contextlib.suppress(NeverCame):
                await box.fill(f">{title}", timeout=patience_ms)
                break
        await expect(self.first).to_contain_text(title, timeout=WAIT_MS)

    async def choose(self, placeholder: str, item: str) -> None:
        """From the list that asks with ``placeholder``."""
        await self.page.locator(f'.quick-input-widget input[placeholder="{placeholder}"]').fill(item)
        await expect(self.first).to_contain_text(item, timeout=WAIT_MS)
        await self.page.keyboard.press("Enter")

    async def answer_box(self, placeholder: str, text: str) -> None:
        """Type into the box that asks for something."""
        box = self.page.locator(f'.quick-input-widget input[placeholder*="{placeholder}"]')
        await box.fill(text)
        await self.page.keyboard.press("Enter")

    async def pick(self, folder: Path, button: str) -> None:
        """In the dialog for files and folders, which writes a folder of its own into its box once it has read it."""
        choose = self.page.get_by_role("button", name=button)
        box = self.page.locator(".quick-input-widget input").first
        await choose.wait_for()
        for patience_ms in (
            5_000,
            5_000,
            WAIT_MS,
        ):  # what it writes late takes the place of what was typed: once more
            await expect(box).to_have_value(re.compile("/"), timeout=WAIT_MS)
            await expect(self.first).to_be_visible(timeout=WAIT_MS)
            await box.fill(f"{folder}/")
            with contextlib.suppress(AssertionError):
                await expect(self.first).to_be_visible(timeout=patience_ms)
                await expect(box).to_have_value(f"{folder}/", timeout=patience_ms)
                await choose.click()
                await expect(choose).to_be_hidden(timeout=patience_ms)
                return
        await expect(choose).to_be_hidden(timeout=WAIT_MS)

    async def file(self, name: str, line: int | None = None) -> None:
        """Open a file, with the cursor at the end of ``line``."""
        await self.page.keyboard.press("Control+p")
        box = self.page.locator(".quick-input-widget input").first
        await box.fill(name)
        await expect(self.first).to_contain_text(name, timeout=WAIT_MS)
        await self.page.keyboard.press("Enter")
        await self.page.locator(f'.tab.active[data-resource-name="{name}"]').wait_for()
        if line is not None:
            await self.go_to(line)

    async def go_to(self, line: int) -> None:
        await self.page.keyboard.press("Control+g")
        box = self.page.locator(".quick-input-widget input").first
        await box.fill(f":{line}")
        await expect(self.first).to_contain_text(f"go to line {line} ", timeout=WAIT_MS)
        await self.page.keyboard.press("Enter")
        await expect(self.page.locator("#status\\.editor\\.selection")).to_contain_text(
            f"Ln {line},", timeout=WAIT_MS
        )
        await self.page.keyboard.press("End")

    async def select(self, first: int, last: int) -> None:
        """Whole lines, from the first's beginning to the last's end."""
        await self.go_to(first)
        await self.page.keyboard.press("Home")
        await self.page.keyboard.press("Home")
        for _ in range(last - first):
            await self.page.keyboard.press("Shift+ArrowDown")
        await self.page.keyboard.press("Shift+End")

    async def actions(self) -> list[str]:
        """Open the menu of code actions; returns its titles."""
        rows = self.page.locator(".action-widget .monaco-list-row.action")
        for patience_ms in (5_000, 5_000, WAIT_MS):  # what moves in the editor just then closes it: once more
            await self.page.keyboard.press("Control+.")
            with contextlib.suppress(NeverCame):
                await rows.first.wait_for(timeout=patience_ms)
                break
        return [text.strip() for text in await rows.all_inner_texts()]

    async def action(self, title: str, picture: Path | None = None) -> None:
        """Take one from the menu of code actions."""
        await self.actions()
        if picture is not None:
            await self.picture(picture)
        await self.page.locator(".action-widget .monaco-list-row.action", has_text=title).first.click()

    async def ask_in_chat(self, question: str) -> None:
        await self.command("qmlx: Ask in the Chat")
        box = self.page.locator(
            ".interactive-input-part .native-edit-context, .interactive-input-part textarea"
        ).first
        await box.wait_for(state="attached")
        await expect(self.page.locator(".interactive-input-part .view-lines")).to_contain_text(
            "@qmlx", timeout=WAIT_MS
        )
        await self.page.wait_for_function("document.activeElement?.closest('.interactive-input-part')")
        await self.page.keyboard.type(question)
        await expect(self.page.locator(".interactive-input-part .view-lines")).to_contain_text(
            question.rsplit(maxsplit=1)[-1], timeout=WAIT_MS
        )
        await self.page.keyboard.press("Enter")

    async def picture(self, path: Path) -> None:
        await self.page.mouse.move(0, 0)
        await self.page.screenshot(path=path, animations="disabled", caret="initial")
