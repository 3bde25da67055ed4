"""Helix with the files that its README says to paste: questions, answers, actions, cancels, a killed daemon.

25.07 passes texts to commands, 25.01 does not. Neither can cancel a request, nor complete at the cursor by itself.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.editors.conftest import REPOSITORY, Editors, Pictures
from tests.editors.scene import FILES, Scene
from tests.editors.terminal import Terminal, settled
from tests.support.waiting import until

NEW, OLD = "hx", "hx-25.01"
BOTH = pytest.mark.parametrize("version", [NEW, OLD])
ANSWER = "`total` adds the numbers up, one after another.\n\n```python\ntotal([1, 2])  # 3\n```\n"
SHORTER = "```python\ndef total(numbers):\n    return sum(numbers)\n```\n"
SLOW = "word " * 400
LINE = 8  # of `def total`


@asynccontextmanager
async def helix(editors: Editors, scene: Scene, version: str, clients: int = 1) -> AsyncIterator[Terminal]:
    """Helix with the file open, the cursor in ``total``, connected."""
    folder = scene.user / ".config" / "helix"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("languages.toml", "config.toml"):
        (folder / name).write_text((REPOSITORY / "editors" / "helix" / name).read_text(encoding="utf-8"))
    argv = [str(editors.path(version)), f"parser.py:{LINE}"]
    tmux = str(editors.path("tmux"))
    async with Terminal(argv, env=scene.env(), cwd=scene.root, columns=100, rows=20, tmux=tmux) as terminal:
        await terminal.shows("Sums up")
        await scene.ready(clients)
        yield terminal


async def choose(terminal: Terminal, title: str) -> None:
    """A code action by its title."""
    await terminal.keys("Space", "a")
    screen = await terminal.shows(title)
    menu = [
        line for line in screen.splitlines() if re.search(r" (Explain|Document|Generate tests|Do: |Run check)", line)
    ]
    await terminal.keys(*["Down"] * next(at for at, line in enumerate(menu) if title in line), "Enter")


async def test_a_question_is_asked_answered_and_counted(editors: Editors, scene: Scene, pictures: Pictures) -> None:
    scene.say("What does", ANSWER, pace_ms=5)
    async with helix(editors, scene, NEW) as terminal:
        await terminal.keys("Space", "q", "a")
        await terminal.shows('qmlx.ask "" ')
        await terminal.type("What does it do?")
        terminal.picture(pictures.path("helix", "question.svg"), "Asking: space q a")
        await terminal.keys("Enter")
        await terminal.shows("answering")
        await terminal.shows("one after another")
        assert "Answer of lines 8-12 of parser.py" in await terminal.shows("ask: answered")
        await terminal.keys("Space", "q", "s")
        await terminal.shows(re.compile(r"scripted is ready; last turn: [\d,]+ tokens read, 0 kept"))
        terminal.picture(pictures.path("helix", "answer.svg"), "The answer, and what it cost: space q s")
        # The answer's own document is a place to go on from.
        scene.say("And why", "Because.")
        await terminal.keys("Space", "q", "a")
        await terminal.shows('qmlx.ask "" ')
        await terminal.type("And why?")
        await terminal.keys("Enter")
        await terminal.shows("Because.")
    assert [text for _, text in await scene.replies()] == [ANSWER, "Because."]


async def test_what_is_wrong_is_said_in_a_line(editors: Editors, scene: Scene) -> None:
    async with helix(editors, scene, NEW) as terminal:
        await terminal.keys("Space", "q", "a", "Enter")
        await terminal.shows("Say what you want to know")
        await terminal.keys("Space", "q", "x")
        await terminal.type("nothing")
        await terminal.keys("Enter")
        await terminal.shows("check")  # the tool that there is


async def test_a_rewrite_is_one_undo(editors: Editors, scene: Scene, pictures: Pictures) -> None:
    scene.say("with sum", SHORTER)
    async with helix(editors, scene, NEW) as terminal:
        await terminal.keys("Space", "q", "r")
        await terminal.shows('qmlx.rewrite "" ')
        await terminal.type("with sum()")
        await terminal.keys("Enter")
        screen = await terminal.shows("rewrite: applied")
        assert "    return sum(numbers)" in screen
        assert "result" not in screen
        await terminal.type(":w\r")
        changed = FILES["parser.py"][: FILES["parser.py"].index("    result = 0")] + "    return sum(numbers)\n"
        await until(lambda: (scene.root / "parser.py").read_text() == changed)
        await terminal.keys("u")
        await terminal.type(":w\r")
        await until(lambda: (scene.root / "parser.py").read_text() == FILES["parser.py"])


@BOTH
async def test_a_comment_says_what_to_do_and_an_action_does_it(
    editors: Editors, scene: Scene, pictures: Pictures, version: str
) -> None:
    text = FILES["parser.py"].replace("    result = 0\n", "    # qmlx: use sum\n    result = 0\n")
    (scene.root / "parser.py").write_text(text)
    scene.say("use sum", SHORTER)
    async with helix(editors, scene, version) as terminal:
        await terminal.keys("j")
        await terminal.keys("Space", "a")
        await terminal.shows("Do: use sum")
        if version == NEW:
            terminal.picture(pictures.path("helix", "actions.svg"), "What can be done here: space a")
        await terminal.keys("Escape")
        await choose(terminal, "Do: use sum")
        screen = await terminal.shows("return sum(numbers)")
        assert "qmlx: use sum" not in screen
        await terminal.type(":w\r")
        await until(lambda: (scene.root / "parser.py").read_text().endswith("):\n    return sum(numbers)\n"))


@BOTH
async def test_nothing_stands_still_and_a_cancel_keeps_what_was_said(
    editors: Editors, scene: Scene, version: str
) -> None:
    scene.say("Explain", SLOW, pace_ms=10)
    async with helix(editors, scene, version) as terminal:
        await choose(terminal, "Explain")
        await terminal.shows("answering")
        # While it writes, the editor is its user's.
        await terminal.type("ggO# typed meanwhile")
        await terminal.keys("Escape")
        await terminal.shows(re.compile("^ +1 .# typed meanwhile", re.MULTILINE))
        await terminal.keys("Space", "q", "c")
        await terminal.shows("cancelled")
        ((finish, said),) = await scene.replies()
        assert finish == "cancelled"
        assert SLOW.startswith(said)
        assert 0 < len(said) < len(SLOW)
        # What was said is shown, and the next answer is a whole one.
        await terminal.shows("Explanation of")
        await terminal.type(":bc\r")
        scene.say("Document", "It is fine as it is.")
        await terminal.shows("typed meanwhile")
        await terminal.keys("g", "e")
        await choose(terminal, "Document")
        await terminal.shows("It is fine as it is.")
    assert [finish for finish, _ in await scene.replies()] == ["cancelled", "complete"]


@BOTH
async def test_after_a_killed_daemon_it_goes_on(editors: Editors, scene: Scene, version: str) -> None:
    scene.say("Explain", "First answer.")
    async with helix(editors, scene, version) as terminal:
        await choose(terminal, "Explain")
        await terminal.shows("First answer.")
        await terminal.type(":bc\r")
        await terminal.shows("Sums up")
        await scene.kill_daemon()
        scene.say("Document", "Second answer.")
        await terminal.shows("Language server exited")
        for command in [":lsp-restart"] if version == NEW else [":bc", ":o parser.py"]:
            await terminal.type(f"{command}\r")
            await settled(terminal)
        await scene.ready()
        await choose(terminal, "Document")
        await terminal.shows("Second answer.")
        await terminal.keys("Space", "q", "s")
        await terminal.shows(re.compile(r"last turn: \d+ tokens read, \d+ kept \(\d+ from disk\)"))
    assert [text for _, text in await scene.replies()] == ["First answer.", "Second answer."]


@BOTH
async def test_two_editors_share_the_conversation(editors: Editors, scene: Scene, version: str) -> None:
    scene.say("Explain", "Heard in both.")
    async with helix(editors, scene, version) as first, helix(editors, scene, NEW, clients=2) as second:
        await choose(first, "Explain")
        await first.shows("Heard in both.")
        await second.keys("Space", "q", "l")
        await second.shows("The conversation about project")
        await second.type("ge")
        await second.shows("Heard in both.")


async def test_a_completion_is_the_last_of_the_list(editors: Editors, scene: Scene, pictures: Pictures) -> None:
    scene.complete("return sorted(text.split())")
    async with helix(editors, scene, NEW) as terminal:
        await terminal.type("ggjo    retu")
        await terminal.shows("return sorted(")
        terminal.picture(pictures.path("helix", "completion.svg"), "A completion, the last of the list")
        await terminal.keys("Up")
        await terminal.shows("    return sorted(text.split())")
        await terminal.keys("Enter", "Escape")
        await terminal.hides("INS")
        await terminal.type(":w\r")
        await until(lambda: "    return sorted(text.split())\n" in (scene.root / "parser.py").read_text())


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.timeout(300)
async def test_with_a_real_model(editors: Editors, scene: Scene) -> None:
    scene.use_real_model(24)
    async with helix(editors, scene, NEW) as terminal:
        await choose(terminal, "Explain")
        await terminal.shows("Explanation of lines 8-12 of parser.py", within_s=240)
        ((_, said),) = await scene.replies()
        assert said.split()[0] in terminal.screen()
