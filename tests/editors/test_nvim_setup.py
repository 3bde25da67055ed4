"""Setting the Neovim plugin up, and doing without: installed in three ways, its help, its health, what is missing."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.editors.conftest import Editors
from tests.editors.nvim_editor import PLUGIN, STANDARD, VERSIONS, neovim, readme
from tests.editors.scene import Scene
from tests.editors.terminal import settled
from tests.editors.test_nvim import ended

both = pytest.mark.parametrize("version", VERSIONS)
ENABLE = "vim.lsp.enable('qmlx')\n"


async def headless(program: Path, scene: Scene, *arguments: str) -> str:
    """What a Neovim without a screen prints."""
    process = await asyncio.create_subprocess_exec(
        str(program), "--headless", "-n", "-i", "NONE", *arguments, cwd=scene.root, env=scene.env(),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    return out.decode().replace("\r", "")


@both
async def test_checkhealth_finds_nothing_wrong(version: str, editors: Editors, scene: Scene) -> None:
    async with neovim(editors, scene, version, rows=60) as nvim:
        await nvim.attached()
        await nvim.command("Qmlx health")
        await nvim.shows("qmlx: completions while typing")
        found = "\n".join(await nvim.lines())
    assert "ERROR" not in found
    assert "WARNING" not in found
    assert re.search(r"OK .*qmlx-lsp: qmlx-lsp \d", found)
    assert "model: scripted" in found
    assert re.search(r"client 1: .*project, 1 buffers, utf-8", found)


async def test_checkhealth_says_why_the_server_does_not_start(editors: Editors, scene: Scene) -> None:
    (scene.home / "config").mkdir(parents=True)
    (scene.home / "config" / "config.toml").write_text("[model]\ncolour = 1\n")
    async with neovim(editors, scene, columns=200) as nvim:
        await nvim.shows("unknown key model.colour")
        while "Press ENTER" in await settled(nvim.terminal):  # for each of Neovim's own messages
            await nvim.keys("Enter")
        await nvim.command("Qmlx health")
        await nvim.shows(re.compile(r"ERROR qmlx-lsp: .*config.toml: unknown key model.colour"))


@both
async def test_everything_has_its_help(version: str, editors: Editors, scene: Scene, tmp_path: Path) -> None:
    """``:helptags`` finds no fault, its tags come along, and every subcommand, map, option and function is one."""
    copy = tmp_path / "nvim"
    shutil.copytree(PLUGIN, copy)
    out = await headless(
        editors.path(version), scene, "-u", "NONE", "--cmd", f"set rtp+={copy}", "-c", f"helptags {copy}/doc",
        "-c", "runtime plugin/qmlx.lua",
        "-c", "lua io.write(table.concat(require('qmlx.commands').names(), ' '), '\\n')",
        "-c", "lua for name in pairs(require('qmlx')) do io.write('fn:', name, '\\n') end",
        "-c", "lua for _, m in ipairs({ 'n', 'i', 'x' }) do for _, map in ipairs(vim.api.nvim_get_keymap(m)) do"
        " if map.lhs:find('qmlx') then io.write('map:', map.lhs, '\\n') end end end",
        "-c", "qall!",
    )  # fmt: skip
    assert not re.search(r"E\d+:", out), out
    assert (copy / "doc" / "tags").read_text() == (PLUGIN / "doc" / "tags").read_text(), (
        "run :helptags editors/nvim/doc"
    )
    tags = {line.split("\t")[0] for line in (copy / "doc" / "tags").read_text().splitlines()}
    first, *rest = out.strip().split("\n")
    assert len(first.split()) > 10, out
    wanted = {f":Qmlx-{name}" for name in first.split()}
    wanted |= {f"qmlx.{line[3:]}()" for line in rest if line.startswith("fn:")}
    wanted |= {line[4:] for line in rest if line.startswith("map:")}
    options = re.findall(r"^  \{?\s*'(\w+)',\s*'(\w+)',", _one_line_keys(), re.MULTILINE)
    assert len(options) == 6
    wanted |= {f"qmlx.{section}.{name}" for section, name in options}
    wanted |= set(re.findall(r"Qmlx[A-Z]\w+(?= = )", (PLUGIN / "lua/qmlx/config.lua").read_text()))
    assert wanted - tags == set()


def _one_line_keys() -> str:
    """The table of options, with each of its rows on one line."""
    text = (PLUGIN / "lua/qmlx/config.lua").read_text(encoding="utf-8")
    table = text.split("local KEYS = {\n")[1].split("\n}\n")[0]
    return re.sub(r"\{\n\s+('\w+',)\n\s+('\w+',)\n", r"{ \1 \2\n", table)


@both
async def test_as_a_package_that_neovim_finds_by_itself(version: str, editors: Editors, scene: Scene) -> None:
    start = scene.user / ".local/share/nvim/site/pack/qmlx/start"
    start.mkdir(parents=True)
    (start / "qmlx").symlink_to(PLUGIN)
    async with neovim(editors, scene, version, init=ENABLE) as nvim:
        await nvim.attached()
        scene.say("hello", "Hello to you.")
        await nvim.command("Qmlx ask hello")
        await nvim.shows("Hello to you.")


@both
async def test_a_missing_server_is_one_clear_line(version: str, editors: Editors, scene: Scene) -> None:
    without = {"PATH": "/usr/bin:/bin"}
    async with neovim(editors, scene, version, env=without) as nvim:
        await nvim.shows("qmlx: qmlx-lsp is not on the PATH")
        await nvim.command("edit lexer.py")
        await nvim.command("Qmlx ask anything")
        await nvim.shows("qmlx: qmlx-lsp is not on the PATH")
        messages = await nvim.lua("vim.fn.execute('messages')")
        assert str(messages).count("not on the PATH") == 2, "once by itself, once when it was wanted"
        assert "stack traceback" not in messages
        await nvim.command("checkhealth qmlx")
        await nvim.shows(re.compile("ERROR .?qmlx-lsp.? is not on the PATH"))  # the quotes may be concealed


@both
async def test_mistakes_are_one_line(version: str, editors: Editors, scene: Scene) -> None:
    wrong = "require('qmlx').setup({ answer = { size = 7 }, colour = {}, inline = { speed = 1 } })"
    async with neovim(editors, scene, version, columns=240) as nvim:
        await nvim.attached()
        await nvim.lua(f"{wrong} or 0")
        first = "answer.size must be a share from 0.1 to 0.9, colour is no section (inline, answer)"
        for typed, line in (
            ("", f"qmlx: setup: {first}, there is no inline.speed; see :help qmlx-options"),
            ("sing", "qmlx: there is no :Qmlx sing: see :help :Qmlx"),
            ("status now", "qmlx: :Qmlx status takes nothing more; to ask, :Qmlx ask now"),
            ("cancel", "qmlx: nothing runs"),
            ("fix", "qmlx: there is no diagnostic here"),
        ):
            if typed:
                await nvim.lua(f"vim.cmd([[Qmlx {typed}]]) or 0")
            await nvim.becomes(f"vim.fn.execute('messages'):find([==[{line}]==], 1, true) ~= nil", True)
        messages = await nvim.lua("vim.fn.execute('messages')")
        assert "traceback" not in str(messages)


@both
async def test_what_fails_is_read_as_a_whole_and_needs_no_key(version: str, editors: Editors, scene: Scene) -> None:
    """More than a line holds: a hint is said, and below the question all of it stands."""
    scene.environ["QMLX_MODEL"] = "/no/such/model"
    async with neovim(editors, scene, version, rows=20) as nvim:
        await nvim.attached()
        for asked in ("Qmlx ask hello", "8Qmlx document"):
            await nvim.command(asked)
            await nvim.becomes("require('qmlx.jobs').count() == 0 and vim.fn.bufnr('qmlx://answer') > 0", True)
            await nvim.shows(re.compile(r"There is no model '/no/such/model'[^\n…]*\n[^\n]*or QMLX_MODEL\)\."))
            await nvim.shows(re.compile(r"^qmlx: .*There is no model .*…", re.MULTILINE))
            assert "Press ENTER" not in nvim.terminal.screen()
            await nvim.command("bwipeout qmlx://answer")
        await nvim.becomes("#require('qmlx').status() < 80 and require('qmlx').status():find('error') ~= nil", True)
        await nvim.command("set nomodifiable")
        await nvim.command("8Qmlx document")
        await nvim.shows("qmlx: this buffer cannot be changed")


@both
async def test_settings_hold_from_when_they_are_made(version: str, editors: Editors, scene: Scene) -> None:
    """The README's lines, and a change of mind while a file is open."""
    scene.complete("mean = total(numbers) / len(numbers)")
    async with neovim(editors, scene, version, init=f"{STANDARD}\n{readme('Settings')}") as nvim:
        await nvim.attached()
        await nvim.lua("require('qmlx').setup({ inline = { enabled = false } }) or 0")
        await nvim.type("Gomean = ")
        await nvim.becomes("vim.api.nvim_get_current_line()", "mean = ")
        enabled = "vim.lsp.inline_completion and vim.lsp.inline_completion.is_enabled({ bufnr = 0 }) or false"
        assert await nvim.lua(enabled) is False
        assert await nvim.lua("#vim.api.nvim_get_autocmds({ buffer = 0, event = 'CursorMovedI' })") <= 1
        assert await nvim.lua("require('qmlx').accept()") in (False, None)
        await nvim.lua("require('qmlx').setup({ inline = { enabled = true } }) or 0")
        await nvim.keys("BSpace")
        await nvim.shows("mean = total(numbers) / len(numbers)")
        assert "rror" not in await nvim.lua("vim.fn.execute('messages')")


@both
async def test_every_question_goes_to_its_own_project(version: str, editors: Editors, scene: Scene) -> None:
    """Asked at once, when only another project's client is ready; and from a buffer without a name."""
    scene.say("hello", "Hello.")
    other = scene.user / "other größe"
    (other / ".git").mkdir(parents=True)
    (other / "x.py").write_text("x = 1\n")
    async with neovim(editors, scene, version) as nvim:
        await nvim.attached()
        await nvim.command("Qmlx ask hello from the first")
        await nvim.shows("Hello.")
        await nvim.lua(f"(function() vim.cmd.edit([[{other}/x.py]]) vim.cmd('Qmlx ask hello x') return 1 end)()")
        await nvim.shows("other größe/x.py:1*")
        await nvim.becomes("require('qmlx.jobs').count()", 0)
        await nvim.lua(
            f"(function() vim.cmd.cd([[{other}]]) vim.cmd.enew() vim.cmd('Qmlx ask hello y') return 1 end)()"
        )
        await ended(nvim, 3)
        await nvim.lua(
            f"(function() vim.cmd.cd([[{scene.user}]]) vim.cmd.enew() vim.cmd('Qmlx ask z') return 1 end)()"
        )
        await nvim.shows("qmlx: there is no project here: open a file of one, or :cd to it")
    assert [e["text"].split("\n")[-1] for e in await scene.log() if e["kind"] == "question"] == [
        "hello from the first"
    ]
    there = [json.loads(line) for line in (await scene.cli("log", "--json", "--root", str(other))).splitlines()]
    assert [e["text"] for e in there if e["kind"] == "assistant"] == ["Hello.", "Hello."]


@both
async def test_not_enabled_and_no_file(version: str, editors: Editors, scene: Scene) -> None:
    scene.say("hello", "Hello to you.")
    async with neovim(editors, scene, version, init=STANDARD.replace(ENABLE, "")) as nvim:
        await nvim.command("Qmlx ask hello")
        await nvim.shows("qmlx: it is not enabled: add vim.lsp.enable('qmlx')")
    async with neovim(editors, scene, version, file="") as nvim:
        await nvim.command("Qmlx ask hello")
        await nvim.shows("Hello to you.")
        assert await nvim.lua("vim.lsp.get_clients({ name = 'qmlx' })[1].root_dir") == str(scene.root)
        await nvim.command("help")
        await nvim.becomes("vim.bo.buftype", "help")
        assert await nvim.lua("#vim.lsp.get_clients({ bufnr = 0 })") == 0, "no part of any project"


@both
async def test_without_the_plugin(version: str, editors: Editors, scene: Scene) -> None:
    """The README's lines alone: code actions, answers as documents, completions."""
    scene.say("Say what the code is for", "It adds numbers up.")
    scene.complete("def mean(numbers): return total(numbers) / len(numbers)")
    init = readme("Without the plugin")
    async with neovim(editors, scene, version, init=init) as nvim:
        await nvim.attached()
        await nvim.type("Go")
        await nvim.keys("Enter")
        await nvim.type("def me")
        if version == "nvim":
            await nvim.shows("def mean(numbers): return total(numbers)")
            await nvim.keys("Tab")
            await nvim.becomes(
                "vim.api.nvim_get_current_line()", "def mean(numbers): return total(numbers) / len(numbers)"
            )
        else:
            await nvim.keys("C-x", "C-o")
            await nvim.becomes("vim.api.nvim_get_current_line()", "def mean(numbers):")
        await nvim.keys("Escape")
        await nvim.command("8")
        await nvim.type("gra")
        screen = await nvim.shows(re.compile(r"\d+: Explain"))
        await nvim.type(re.search(r"(\d+): Explain", screen)[1])  # type: ignore[index]
        await nvim.keys("Enter")
        await nvim.shows("# Explanation of lines 8-12 of parser.py")
        await nvim.shows("0001-explain.md")


def test_the_linter_has_nothing_to_say(editors: Editors) -> None:
    done = subprocess.run(
        [editors.path("luacheck"), "--no-color", "."], cwd=PLUGIN, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@both
def test_what_is_left_of_a_suggestion(version: str, editors: Editors) -> None:
    script = Path(__file__).with_name("nvim_suggestion.lua")
    done = subprocess.run([editors.path(version), "-l", script, PLUGIN], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(300)
async def test_a_real_model_answers_and_completes(editors: Editors, scene: Scene) -> None:
    scene.use_real_model(24)
    async with neovim(editors, scene) as nvim:
        await nvim.attached()
        await nvim.command("Qmlx ask What does total do?")
        await nvim.shows(re.compile(r"\d+ tokens read, \d+ kept, \d+ written"), 200)
        await nvim.type("Go")
        await nvim.keys("Enter")
        await nvim.type("def parse_lines(te")
        await nvim.becomes("require('qmlx').accept()", True)
        await nvim.becomes("vim.api.nvim_get_current_line():find('^def parse_lines%(te.') ~= nil", True)
    ((finish, text),) = await scene.replies()
    assert finish in ("complete", "length")
    assert text.strip()
