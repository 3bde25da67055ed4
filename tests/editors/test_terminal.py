"""The harness itself: a screen is what a program drew, and its picture has the same words and colours."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.editors.conftest import Editors
from tests.editors.picture import Screen, svg
from tests.editors.scene import Scene
from tests.editors.terminal import Terminal


async def test_a_screen_and_its_picture(editors: Editors, scene: Scene, tmp_path: Path) -> None:
    tmux = str(editors.path("tmux"))
    say = r"printf 'plain \033[1;38;2;1;2;3mcoloured\033[0m\n'; read line; echo \"got $line\"; exit 3"
    async with Terminal(
        ["sh", "-c", say.replace('\\"', '"')], env=scene.env(), cwd=scene.root, tmux=tmux
    ) as terminal:
        await terminal.shows("coloured")
        terminal.picture(tmp_path / "a.svg", "title")
        await terminal.type("it; 'all' $HOME")
        await terminal.keys("Enter")
        await terminal.shows("got it; 'all' $HOME")
        assert await terminal.ended() == 3
        with pytest.raises(AssertionError, match="'nothing' never came"):
            await terminal.shows("nothing", 0.1)
    text = (tmp_path / "a.svg").read_text()
    assert "coloured" in "".join(ET.fromstring(text).itertext())
    assert "fill: #010203" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", ""), "a picture fetches nothing"


def test_the_same_screen_is_the_same_picture() -> None:
    screen = Screen(("a \x1b[31mb\x1b[0m", "é 你"), 20, (3, 1))
    assert svg(screen, "t") == svg(screen, "t")


async def test_the_scripted_model_says_what_the_scene_says(scene: Scene) -> None:
    scene.say("loop", "It adds them up.")
    assert await scene.cli("ask", "what does the loop do?", "parser.py") == "It adds them up.\n"
    assert await scene.replies() == [("complete", "It adds them up.")]
    await scene.kill_daemon()
    scene.say("again", "Again.")
    assert "Again." in await scene.cli("ask", "again?")
