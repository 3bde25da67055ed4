"""The Neovim plugin in real Neovims, 0.12 and 0.11: set up as its README says, typed into, looked at."""

from __future__ import annotations

import re

import pytest

from tests.editors.conftest import Editors, Pictures
from tests.editors.nvim_editor import VERSIONS, Neovim, neovim
from tests.editors.scene import Scene
from tests.editors.terminal import settled

MARKS = "vim.api.nvim_buf_get_extmarks(0, vim.api.nvim_create_namespace('{}'), 0, -1, {{}})"
NATIVE = "nvim.lsp.inline_completion"
both = pytest.mark.parametrize("version", VERSIONS)

ANSWER = """\
It adds up the `numbers`, one after another, and begins with **0**:

```python
assert total([1, 2, 3]) == 6
```

Python's own `sum` does the same — schöner.
"""
LONG = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"


async def ended(nvim: Neovim, times: int = 1) -> None:
    """Wait until so many sections of the answers have their last line."""
    await nvim.becomes("require('qmlx.jobs').count()", 0)
    marks = "vim.api.nvim_buf_get_extmarks(vim.fn.bufnr('qmlx://answer'), -1, 0, -1, { details = true })"
    await nvim.becomes(f"#vim.tbl_filter(function(one) return one[4].virt_lines ~= nil end, {marks})", times)


@both
async def test_an_answer_grows_while_the_user_goes_on(
    version: str, editors: Editors, scene: Scene, pictures: Pictures
) -> None:
    scene.say("what does total do?", ANSWER, pace_ms=20)
    scene.say("hello", "Hello.")
    async with neovim(editors, scene, version) as nvim:
        await nvim.attached()
        await nvim.command("9")
        await nvim.command("Qmlx ask what does total do?")
        await nvim.shows("It adds up")
        screen = await nvim.shows("qmlx: answering")
        assert "sum` does" not in screen, "it is shown while it grows"
        assert (await nvim.lua("vim.fn.expand('%:t')")) == "parser.py", "the focus stays"
        await nvim.shows(re.compile(r"\d+ tokens read, \d+ kept, \d+ written"))
        await nvim.shows(re.compile(r"qmlx: \d+ read, \d+ kept"))
        assert await nvim.answers() == f"## what does total do?\n\n*parser.py:9*\n\n{ANSWER}"
        assert await nvim.lua("vim.bo[vim.fn.bufnr('qmlx://answer')].modifiable") is False
        await nvim.command("Qmlx ask hello")
        await ended(nvim, 2)
        await nvim.command("Qmlx ask what does total do?")
        await ended(nvim, 3)
        if version == "nvim":
            await settled(nvim.terminal)
            nvim.terminal.picture(pictures.path("nvim", "answer.svg"), "Neovim: a question and its answer")
    assert await scene.replies() == [("complete", ANSWER), ("complete", "Hello."), ("complete", ANSWER)]


@both
async def test_a_completion_is_accepted_whole_by_word_and_by_line(
    version: str, editors: Editors, scene: Scene, pictures: Pictures
) -> None:
    scene.complete("def mean(numbers): return total(numbers) / len(numbers)")
    async with neovim(editors, scene, version) as nvim:
        await nvim.attached()
        await nvim.type("Go")
        await nvim.keys("Enter")
        await nvim.type("def me")
        await nvim.shows("def mean(numbers): return total(numbers)")
        assert (await nvim.lines())[-1] == "def me", "it is shown, and not there"
        if version == "nvim":
            await settled(nvim.terminal)
            nvim.terminal.picture(pictures.path("nvim", "completion.svg"), "Neovim: a completion while typing")
        await nvim.keys("M-Right")
        await nvim.becomes("vim.api.nvim_get_current_line()", "def mean")
        await nvim.keys("M-Right")
        await nvim.becomes("vim.api.nvim_get_current_line()", "def mean(")
        await nvim.shows("def mean(numbers): return total(numbers)")
        if version == "nvim":
            # What was left of it goes as soon as Neovim shows the next one, so that nothing is shown twice.
            await nvim.becomes(f"#{MARKS.format('qmlx.ghost')} .. ',' .. #{MARKS.format(NATIVE)}", "0,1")
            assert nvim.terminal.screen().count("return total(numbers)") == 1
        await nvim.keys("M-Down")
        await nvim.becomes(
            "vim.api.nvim_get_current_line()", "def mean(numbers): return total(numbers) / len(numbers)"
        )
        await nvim.keys("Escape", "u")
        await nvim.becomes("vim.api.nvim_get_current_line()", "def mean(")
        await nvim.type("A")
        await nvim.shows("def mean(numbers): return total(numbers)")
        await nvim.keys("Tab")
        await nvim.becomes(
            "vim.api.nvim_get_current_line()", "def mean(numbers): return total(numbers) / len(numbers)"
        )
        await nvim.keys("Tab")
        await nvim.becomes("vim.api.nvim_get_current_line():sub(-1)", " ")  # a tab, as Python files have them
    assert await scene.replies() == [], "nothing of it stays in the conversation"


@both
async def test_what_is_typed_is_never_doubled(version: str, editors: Editors, scene: Scene) -> None:
    """Accepted right behind a keystroke, before anything new can have come."""
    scene.complete("def mean(numbers): return 1")
    async with neovim(editors, scene, version) as nvim:
        await nvim.attached()
        await nvim.type("Go")
        await nvim.type("def m")
        await nvim.shows("def mean(numbers)")
        await nvim.type("ean(")
        await nvim.keys("Tab")
        await nvim.becomes("vim.api.nvim_get_current_line()", "def mean(numbers): return 1")
        # Typed away from, it is gone, and so is what it would have inserted.
        await nvim.keys("Enter")
        await nvim.type("def m")
        await nvim.shows(re.compile(r"^def mean\(numbers\): return 1\s*\n(.*\n)*?def mean\(numbers\)", re.MULTILINE))
        await nvim.type("ax")
        await nvim.keys("M-Right")
        await nvim.becomes("vim.api.nvim_get_current_line()", "def max")
        await nvim.keys("Escape")
        await nvim.becomes("vim.fn.mode()", "n")


@both
async def test_ghost_text_goes_with_its_place(version: str, editors: Editors, scene: Scene) -> None:
    """Deleting, moving, dismissing, leaving insert mode; and text behind the cursor stays there."""
    scene.complete("mean = total(numbers) / len(numbers)")
    async with neovim(editors, scene, version) as nvim:
        await nvim.attached()
        await nvim.command("setlocal undolevels=77")
        await nvim.type("Go")
        await nvim.type("mean = ")
        await nvim.shows("mean = total(numbers) / len")
        await nvim.keys("M-e")
        await nvim.terminal.hides("mean = total")
        await nvim.keys("BSpace")
        await nvim.shows("mean = total(numbers) / len")
        await nvim.keys("Left")
        await nvim.keys("Left")
        await nvim.keys("Escape")
        await nvim.terminal.hides("mean = total")
        assert (await nvim.lines())[-1] == "mean ="
        await nvim.command("s/.*/mean = # at once/")
        await nvim.type("0f#i")
        await nvim.shows("total(numbers) / len(numbers)# at once")
        await nvim.keys("Tab")
        await nvim.becomes("vim.api.nvim_get_current_line()", "mean = total(numbers) / len(numbers)# at once")
        await nvim.keys("Escape")
        await nvim.type("u")
        await nvim.becomes("vim.api.nvim_get_current_line()", "mean = # at once")
        assert await nvim.lua("vim.bo.undolevels") == 77, "the buffer's own setting stays"


@both
async def test_a_block_is_shown_below_and_accepted_in_lines(version: str, editors: Editors, scene: Scene) -> None:
    block = "def mean(numbers):\n    count = len(numbers)\n    return total(numbers) / count"
    scene.complete(block)
    async with neovim(editors, scene, version) as nvim:
        await nvim.attached()
        await nvim.command("set noautoindent indentexpr=")
        await nvim.type("Go")
        await nvim.keys("Enter")
        await nvim.type("def mean(numbers):")
        await nvim.shows("    return total(numbers) / count")
        await nvim.keys("M-Down")
        await nvim.becomes("vim.api.nvim_get_current_line()", "    count = len(numbers)")
        await nvim.shows("    return total(numbers) / count")
        await nvim.keys("Tab")
        await nvim.becomes("vim.api.nvim_get_current_line()", "    return total(numbers) / count")
        assert (await nvim.lines())[-3:] == block.split("\n")


FIXED = '''\
```python
def total(numbers):
    """The sum of the numbers."""
    result = 0
    for number in numbers:
        result = result + number
    return result
```
'''


@both
async def test_a_code_action_edits_and_one_undo_takes_it_back(
    version: str, editors: Editors, scene: Scene, pictures: Pictures
) -> None:
    scene.say("Document", FIXED)
    scene.say("with sum", "```python\ndef total(numbers):\n    return sum(numbers)\n```\n")
    async with neovim(editors, scene, version) as nvim:
        await nvim.attached()
        before = await nvim.lines()
        await nvim.command("8")
        await nvim.type("gra")
        screen = await nvim.shows("Generate tests")
        number = re.search(r"(\d+): Document", screen)
        assert number, screen
        if version == "nvim":
            await settled(nvim.terminal)
            nvim.terminal.picture(pictures.path("nvim", "action.svg"), "Neovim: code actions")
        await nvim.type(number[1])
        await nvim.keys("Enter")
        await nvim.becomes("vim.api.nvim_buf_get_lines(0, 8, 9, false)[1]", '    """The sum of the numbers."""')
        await ended(nvim)
        assert "qmlx://answer" not in nvim.terminal.screen(), "what is applied needs no window"
        await nvim.type("u")
        await nvim.becomes("vim.api.nvim_buf_get_lines(0, 0, -1, false)", before)
        # An action that needs a text asks for it.
        await nvim.type("Vjjjj")
        await nvim.type("gra")
        screen = await nvim.shows("Rewrite selection")
        number = re.search(r"(\d+): Rewrite selection", screen)
        assert number, screen
        await nvim.type(number[1])
        await nvim.keys("Enter")
        await nvim.shows("Rewrite:")
        await nvim.type("with sum")
        await nvim.keys("Enter")
        await nvim.becomes(
            "vim.api.nvim_buf_get_lines(0, 7, -1, false)", ["def total(numbers):", "    return sum(numbers)"]
        )


@both
async def test_commands_fix_test_and_run(version: str, editors: Editors, scene: Scene) -> None:
    scene.say(
        "Write tests for",
        "```python\nfrom parser import total\n\n\ndef test_total():\n    assert total([]) == 0\n```\n",
    )
    scene.say("number is unused", "```python\n    for number in numbers[:]:\n```\n")
    diagnostic = "{ lnum = 9, col = 8, end_col = 14, message = 'number is unused', severity = 2 }"
    async with neovim(editors, scene, version) as nvim:
        await nvim.attached()
        await nvim.command("Qmlx fix")
        await nvim.shows("qmlx: there is no diagnostic here")
        await nvim.lua(f"vim.diagnostic.set(vim.api.nvim_create_namespace('t'), 0, {{ {diagnostic} }}) or 0")
        await nvim.command("10")
        await nvim.command("Qmlx fix")
        await ended(nvim)
        assert "Fix: number is unused" in await nvim.answers()
        await nvim.type("u")
        await nvim.becomes("vim.api.nvim_buf_line_count(0)", 12)
        # Several: its user is asked which.
        other = diagnostic.replace("lnum = 9", "lnum = 8").replace("is unused", "is odd")
        await nvim.lua(f"vim.diagnostic.set(vim.api.nvim_create_namespace('t'), 0, {{ {diagnostic}, {other} }}) or 0")
        await nvim.command("9,10Qmlx fix")
        await nvim.shows("1: 10: number is unused")
        await nvim.shows("2: 9: number is odd")
        await nvim.keys("Enter")
        await nvim.command("edit .env")
        await nvim.command("Qmlx explain")
        await nvim.shows(re.compile("qmlx: .env is private"))
        await ended(nvim, 2)
        await nvim.command("edit! parser.py")
        await nvim.command("8Qmlx tests")
        await ended(nvim, 3)
        await nvim.becomes("vim.fn.expand('%:t')", "test_parser.py")
        assert "def test_total():" in await nvim.lines()
        await nvim.command("edit! parser.py")
        await nvim.type(":Qmlx tool ")
        await nvim.keys("Tab")
        await nvim.shows(":Qmlx tool check")
        await nvim.keys("Enter")
        await nvim.shows("3 passed")
        await ended(nvim, 4)


@both
async def test_cancelled_by_its_key_and_asked_again(version: str, editors: Editors, scene: Scene) -> None:
    scene.say("count slowly", LONG, pace_ms=40)
    scene.say("and now?", "Done.")
    scene.say("Document", FIXED, pace_ms=40)
    async with neovim(editors, scene, version) as nvim:
        await nvim.attached()
        await nvim.command("Qmlx ask count slowly")
        await nvim.shows("one two three")
        await nvim.keys("C-w")
        await nvim.type("j")
        await nvim.becomes("vim.api.nvim_buf_get_name(0)", "qmlx://answer")
        await nvim.keys("C-c")
        await nvim.shows(re.compile(r"cancelled; \d+ tokens read"))
        await nvim.shows("qmlx: cancelled")
        await nvim.keys("C-c")
        await nvim.shows("qmlx: nothing runs")
        await nvim.type("q")
        await nvim.becomes("#vim.api.nvim_list_wins()", 1)
        await nvim.command("Qmlx ask and now?")
        await nvim.shows("Done.")
        await ended(nvim, 2)
        # An edit that is cancelled, or whose daemon dies, opens nothing; the latter would go unseen.
        await nvim.command("only")
        await nvim.command("8Qmlx document")
        await nvim.shows("qmlx: answering")
        await nvim.command("Qmlx cancel")
        await ended(nvim, 3)
        await nvim.command("8Qmlx document")
        await nvim.shows("qmlx: answering")
        await scene.kill_daemon()
        await nvim.shows("qmlx: Document: the server ended, and nothing was changed")
        assert await nvim.lua("#vim.api.nvim_list_wins()") == 1
    (first, partial), second, *_edits = await scene.replies()
    assert first == "cancelled"
    assert partial
    assert LONG.startswith(partial)
    assert partial != LONG
    assert second == ("complete", "Done.")


@both
async def test_a_server_that_keeps_ending_is_left_alone(version: str, editors: Editors, scene: Scene) -> None:
    """Five starts in three minutes, then one line; asked for, it is started again."""
    async with neovim(editors, scene, version) as nvim:
        await nvim.attached()
        for _ in range(5):
            await nvim.lua("require('qmlx.ended').exited(1, 0, 99) or 0")
        assert "keeps ending" not in await nvim.lua("vim.fn.execute('messages')")
        await nvim.lua("require('qmlx.ended').exited(1, 0, 99) or 0")
        await nvim.shows("qmlx: the server keeps ending: see :checkhealth qmlx, then :Qmlx restart")


@both
async def test_answers_survive_what_is_done_to_their_buffer(version: str, editors: Editors, scene: Scene) -> None:
    scene.say("count slowly", LONG, pace_ms=20)
    scene.say("hello", "Hello.")
    async with neovim(editors, scene, version) as nvim:
        await nvim.attached()
        for remove in ("bdelete", "bwipeout!"):
            await nvim.command("Qmlx ask count slowly")
            await nvim.shows("one two")
            await nvim.command(f"{remove} qmlx://answer")
            await nvim.becomes("require('qmlx.jobs').count()", 0)
            await nvim.command("Qmlx ask hello")
            await nvim.shows("## hello")
            await nvim.shows("Hello.")
            await nvim.becomes("require('qmlx.jobs').count()", 0)
            await nvim.becomes("vim.bo[vim.fn.bufnr('qmlx://answer')].buftype", "nofile")
        messages = str(await nvim.lua("vim.fn.execute('messages')"))
        assert "Error" not in messages
        assert "traceback" not in messages
    assert [finish for finish, _ in await scene.replies()] == ["complete"] * 4


@both
async def test_text_never_goes_into_another_section(version: str, editors: Editors, scene: Scene) -> None:
    """The answers are wiped out, and the next question is asked, while the first one is still answered."""
    scene.say("count slowly", LONG, pace_ms=15)
    scene.say("hello", "Hello.")
    async with neovim(editors, scene, version) as nvim:
        await nvim.attached()
        await nvim.command("Qmlx ask count slowly")
        await nvim.shows("one two")
        await nvim.command("bwipeout! qmlx://answer")
        await nvim.command("Qmlx ask hello")
        await ended(nvim)
        assert await nvim.answers() == "## hello\n\n*parser.py:1*\n\nHello.\n"
    assert await scene.replies() == [("complete", LONG), ("complete", "Hello.")]


async def test_all_folders_come_back_when_the_daemon_dies(editors: Editors, scene: Scene) -> None:
    """Five starts are what each of them has; they are not for all together."""
    folders = [scene.user / f"project{number}" for number in range(6)]
    async with neovim(editors, scene) as nvim:
        await nvim.attached()
        for folder in folders:
            (folder / ".git").mkdir(parents=True)
            await nvim.command(f"edit {folder}/x.py")
            await nvim.attached()
        roots = "vim.tbl_map(function(one) return one.root_dir end, vim.lsp.get_clients({ name = 'qmlx' }))"
        wanted = sorted(map(str, [scene.root, *folders]))
        first = await nvim.lua("vim.iter(vim.lsp.get_clients()):map(function(c) return c.id end):totable()")
        assert sorted(await nvim.lua(roots)) == wanted
        await scene.kill_daemon()
        alive = f"vim.iter(vim.lsp.get_clients()):filter(function(c) return c.id > {max(first)} end):totable()"
        await nvim.becomes(f"#{alive}", len(wanted))
        assert sorted(await nvim.lua(roots)) == wanted
        assert "keeps ending" not in await nvim.lua("vim.fn.execute('messages')")


@both
async def test_a_killed_daemon_is_started_again(version: str, editors: Editors, scene: Scene) -> None:
    scene.say("count slowly", LONG, pace_ms=40)
    scene.say("and now?", "Here again.")
    async with neovim(editors, scene, version) as nvim:
        await nvim.attached()
        await nvim.command("Qmlx ask count slowly")
        await nvim.shows("one two three")
        first = await nvim.lua("vim.lsp.get_clients({ name = 'qmlx' })[1].id")
        await scene.kill_daemon()
        await nvim.shows("the server ended here")
        await nvim.becomes(
            f"(vim.lsp.get_clients({{ name = 'qmlx', bufnr = 0 }})[1] or {{ id = {first} }}).id ~= {first}", True
        )
        assert "Press ENTER" not in nvim.terminal.screen(), "nothing has to be confirmed"
        await nvim.command("Qmlx ask and now?")
        await nvim.shows("Here again.")
        await ended(nvim, 2)
    finish, text = (await scene.replies())[0]
    assert (finish, LONG.startswith(text)) == ("cancelled", True)


async def test_two_neovims_have_one_conversation(editors: Editors, scene: Scene, pictures: Pictures) -> None:
    scene.say("what is a word?", "What stands between two spaces.", pace_ms=10)
    link = scene.user / "link"  # the same folder by another name, as /tmp is on macOS
    link.symlink_to(scene.root)
    async with (
        neovim(editors, scene, "nvim") as first,
        neovim(editors, scene, "nvim-0.11", file=str(link / "lexer.py")) as second,
    ):
        await first.attached()
        await second.attached()
        await first.command("Qmlx ask what is a word?")
        await second.shows("qmlx: answering")
        await second.shows(re.compile(r"qmlx: \d+ read, \d+ kept"))
        await second.command("Qmlx log")
        await second.shows("What stands between two spaces.")
        await second.shows("## what is a word?")
        await second.type("q")
        await second.command("Qmlx status")
        await second.shows(re.compile(r"last turn +\d+ tokens read"))
        await second.shows("2 connected")
        await second.type("q")
        await ended(first)
        await first.command("Qmlx ask what is a word?")
        await ended(first, 2)
        await first.command("Qmlx status")
        await first.shows("conversation")
        await settled(first.terminal)
        first.terminal.picture(pictures.path("nvim", "status.svg"), "Neovim: what the last turn cost")
        await first.type("q")
        # A restart would cut the other one off, and so it is asked about.
        daemon = scene.daemon
        await first.command("Qmlx restart")
        await first.shows("1 more connected")
        await first.type("n")
        assert scene.daemon == daemon
        await first.command("Qmlx! new")
        await first.shows("a new conversation has begun")
        await first.command("Qmlx! restart")
        await first.becomes("vim.lsp.get_clients({ name = 'qmlx', bufnr = 0 })[1] ~= nil", True)
        await first.command("Qmlx ask what is a word?")
        await ended(first, 3)
        assert scene.daemon not in (None, daemon)
    assert [finish for finish, _ in await scene.replies()] == ["complete"] * 3
