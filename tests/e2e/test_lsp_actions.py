"""Code actions: what is offered where, in which form, and that nobody asks the model for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.applying import Applying, Style
from tests.support.bench import Bench, bench
from tests.support.commands import COMMAND, call, ended, run, span, told
from tests.support.fake_editor import CLIENT_NAMES, InMemory, edit, initialize_params

CODE = "def f(x):\n    # qmlx: make it faster\n    return x\n\n\ny = 1\n"
FOUND = {"range": span(5, 5), "message": "y is\nnot used", "severity": 2, "source": "ruff", "code": "F841"}
OURS = ["Explain", "Rewrite…", "Document", "Generate tests", "Ask…"]
AUTOMATIC, INVOKED = 2, 1


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path, replies=["Because."] * 9) as made:
        (made.project / "a.py").write_text(CODE)
        yield made


async def editor_of(b: Bench, client: str = "vscode-1.139", **changes: Any) -> Applying:
    editor = Applying(b.app, Style.HELIX if client.startswith("helix") else Style.VSCODE)
    await editor.begin_as(b.project, client, **changes)
    editor.show(b.project / "a.py", CODE)
    return editor


async def actions(editor: InMemory, uri: str, where: dict[str, Any], *found: Any, **context: Any) -> list[Any]:
    params = {"textDocument": {"uri": uri}, "range": where, "context": {"diagnostics": list(found), **context}}
    listed: list[Any] = await editor.request("textDocument/codeAction", params)
    return listed


async def titles(editor: InMemory, b: Bench, *about: Any, **context: Any) -> list[str]:
    uri = (b.project / "a.py").as_uri()
    return [action["title"] for action in await actions(editor, uri, *about, **context)]


async def test_what_is_offered_where(b: Bench) -> None:
    editor = await editor_of(b)
    assert await titles(editor, b, span(5, 5)) == OURS
    assert await titles(editor, b, span(0, 1)) == ["Explain", "Rewrite selection…", *OURS[2:]]
    assert await titles(editor, b, span(1, 1)) == ["Do: make it faster", *OURS]
    assert await titles(editor, b, span(0, 3)) == ["Do: make it faster", "Explain", "Rewrite selection…", *OURS[2:]]
    assert await titles(editor, b, span(5, 5), FOUND) == ["Fix: y is not used", *OURS]
    assert await titles(editor, b, span(5, 5), *[FOUND] * 9) == ["Fix: y is not used"] * 5 + OURS
    assert await editor.leave()


async def test_when_the_cursor_moves_only_what_belongs_there(b: Bench) -> None:
    editor = await editor_of(b)
    (b.project / ".qmlx.toml").write_text("[tools.t]\ncommand = 'true'")
    assert await titles(editor, b, span(5, 5), triggerKind=AUTOMATIC) == []
    assert await titles(editor, b, span(0, 1), triggerKind=AUTOMATIC) == []
    assert await titles(editor, b, span(1, 1), triggerKind=AUTOMATIC) == ["Do: make it faster"]
    assert await titles(editor, b, span(5, 5), FOUND, triggerKind=AUTOMATIC) == ["Fix: y is not used"]
    assert await titles(editor, b, span(5, 5), triggerKind=INVOKED) == [*OURS, "Run t and tell qmlx"]
    assert await editor.leave()


async def test_only_the_kinds_that_are_wanted(b: Bench) -> None:
    editor = await editor_of(b)
    for only, wanted in (
        (["quickfix"], ["Fix: y is not used"]),
        (["refactor.rewrite"], ["Do: make it faster", "Rewrite…", "Document"]),
        (["refactor"], ["Do: make it faster", *OURS]),
        (["refactor.rew"], []),
        (["source"], []),
        (["quickfix", "refactor.explain"], ["Fix: y is not used", "Explain"]),
        ([""], ["Fix: y is not used", "Do: make it faster", *OURS]),
        (["quickfix.qmlx"], []),
    ):
        assert await titles(editor, b, span(1, 1), FOUND, only=only) == wanted, only
    assert await editor.leave()


@pytest.mark.parametrize("client", CLIENT_NAMES)
async def test_every_client_gets_what_it_takes(b: Bench, client: str) -> None:
    editor = await editor_of(b, client)
    uri = (b.project / "a.py").as_uri()
    listed = await actions(editor, uri, span(5, 5), FOUND)
    fix = listed[0]
    argument = {"uri": uri, "range": span(5, 5), "diagnostic": FOUND}
    command = {"title": "Fix: y is not used", "command": "qmlx.fix", "arguments": [argument]}
    if client.startswith("helix"):
        assert fix == command
        assert [one["command"] for one in listed[1:]] == ["qmlx.explain", "qmlx.document", "qmlx.tests"], (
            "it cannot ask its user for the text that the others need"
        )
    else:
        wanted = {"title": "Fix: y is not used", "kind": "quickfix", "command": command, "diagnostics": [FOUND]}
        tags = {"tags": [1]} if client == "vscode-1.139" else {}
        assert fix == {**wanted, "isPreferred": True, **tags}
        assert [one["kind"] for one in listed[1:]] == [
            "refactor.explain", "refactor.rewrite", "refactor.rewrite", "refactor.tests", "refactor.ask",
        ]  # fmt: skip
        assert all("isPreferred" not in one and "data" not in one for one in listed[1:])
    assert await editor.leave()


@pytest.mark.parametrize("client", ["helix-25.01", "helix-25.07", "neovim-0.12"])
async def test_one_character_is_where_the_cursor_of_helix_stands(b: Bench, client: str) -> None:
    editor = await editor_of(b, client)
    uri = editor.show(b.project / "wide.py", "é = '😋'\r\nz\n")
    place = lambda line, character: {"line": line, "character": character}  # noqa: E731
    # In UTF-8, which Helix and Neovim speak: é has two units, the face four.
    for (start, end), is_cursor in {
        ((0, 0), (0, 2)): True, ((0, 0), (0, 3)): False, ((0, 6), (0, 10)): True, ((0, 11), (1, 0)): True,
        ((0, 10), (1, 0)): False, ((0, 0), (1, 0)): False, ((1, 0), (1, 1)): True, ((1, 1), (2, 0)): True,
        ((2, 0), (2, 0)): True,
    }.items():  # fmt: skip
        span_of = {"start": place(*start), "end": place(*end)}
        explain = next(one for one in await actions(editor, uri, span_of) if one["title"] == "Explain")
        command = explain if client.startswith("helix") else explain["command"]
        (argument,) = command["arguments"]
        wanted = {**span_of, "end": span_of["start"]} if is_cursor and client.startswith("helix") else span_of
        assert argument["range"] == wanted, (start, end)
    assert await editor.leave()


async def test_a_client_that_says_nothing_gets_commands(b: Bench) -> None:
    editor = await editor_of(b, capabilities={})
    listed = await actions(editor, (b.project / "a.py").as_uri(), span(5, 5))
    assert [one["command"] for one in listed] == [
        "qmlx.explain", "qmlx.rewrite", "qmlx.document", "qmlx.tests", "qmlx.ask",
    ]  # fmt: skip
    assert await editor.leave()


async def test_nobody_asks_the_model_and_hardly_anybody_the_disk(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    editor = await editor_of(b)
    await b.session()
    hops: list[str] = []
    real = asyncio.to_thread

    async def noted(work: Any, *args: Any, **more: Any) -> Any:
        hops.append(work.__name__)
        return await real(work, *args, **more)

    monkeypatch.setattr(asyncio, "to_thread", noted)
    calls: list[Any] = []
    monkeypatch.setattr(b.app.registry.services.worker, "call", lambda *given: calls.append(given))
    await titles(editor, b, span(1, 1), FOUND)
    # Whether the file is private; which tools there are.
    assert hops == ["private", "_read"]
    hops.clear()
    assert await titles(editor, b, span(5, 5), triggerKind=AUTOMATIC) == []
    assert hops == []
    assert calls == []
    assert b.gate.passes == []
    monkeypatch.undo()
    assert await editor.leave()


async def test_documents_that_are_not_open_or_not_certain(b: Bench) -> None:
    editor = await editor_of(b)
    assert await actions(editor, (b.project / "b.py").as_uri(), span(0, 0)) == []
    assert await actions(editor, "untitled:Untitled-1", span(0, 0)) == []
    assert await actions(editor, "git:/a.py?x", span(0, 0)) == []
    other = InMemory(b.app)
    await other.initialize(initialize_params("vscode-1.139", b.project))
    other.change(b.project / "a.py", 3, edit(0, 0, 0, "x"))
    assert await actions(other, (b.project / "a.py").as_uri(), span(0, 0)) == []
    outside = editor.show(b.project.with_name("outside.py"), "x = 1\n")
    assert await actions(editor, outside, span(0, 0)) == []
    assert await editor.leave()
    assert await other.leave()


@pytest.mark.parametrize("name", [".env", "secret.pem", "mine.py", "link.py", "excluded.py"])
async def test_private_files_get_none_and_their_commands_are_refused(b: Bench, name: str) -> None:
    (b.project / ".qmlxignore").write_text("mine.py\n")
    (b.project / "secret.pem").write_text("x")
    (b.project / "link.py").symlink_to(b.project / "secret.pem")
    editor = await editor_of(b, initializationOptions={"exclude": ["excluded.py"]})
    uri = editor.show(b.project / name, "# qmlx: say it\nx = 1\n")
    assert await actions(editor, uri, span(0, 0), FOUND) == []
    for command in ("explain", "fix", "rewrite", "document", "tests", "doComment", "ask"):
        about = {"uri": uri, "range": span(0, 0), "text": "why"}
        _, said = await editor.refused(COMMAND, call(f"qmlx.{command}", about))
        assert said.startswith(f"{name} is private (")
    assert b.entries() == []
    assert b.gate.passes == []
    assert await editor.leave()


async def test_every_action_runs_as_it_is_listed(tmp_path: Path) -> None:
    """Those that need a text of the user say so; everything else does what its title says."""
    code = "def f(x):\n    # qmlx: make it faster\n    return x\n"
    reply = "```\ndef f(x):\n    return x\n```"
    async with bench(tmp_path, replies=[f"```\n{code}```"] + [reply] * 9) as b:
        editor = await editor_of(b)
        uri = editor.show(b.project / "b.py", code)
        for number, one in enumerate(await actions(editor, uri, span(1, 1), FOUND)):
            command = one["command"]
            given = call(command["command"], *command["arguments"], workDoneToken=number)
            if one["title"] in ("Rewrite…", "Ask…"):
                _, said = await editor.refused(COMMAND, given)
                assert said.startswith("Say what ")
                assert "give {text}" in said
                continue
            await editor.request(COMMAND, given)
            await ended(editor, number)
        asked = [entry.text.split("\n")[0] for entry in b.entries() if entry.kind.value == "question"]
        assert asked == [
            "Fix lines 1-3 of b.py: line 6: y is not used (ruff F841)",
            "Change lines 1-3 of b.py: make it faster",
            "Explain lines 1-2 of b.py.",
            "Document lines 1-2 of b.py: say in the language's own form of documentation what they are for.",
            "Write tests for lines 1-2 of b.py.",
        ]
        told(editor)
        assert await editor.leave()


async def test_doing_what_a_comment_says(tmp_path: Path) -> None:
    replies = [
        "```python\n# qmlx: make it faster\ndef f(x):\n    return fast(x)\n```",
        "```python\ndef g():\n    return 2\n```",
        "```python\nz = 3\n```",
    ]
    async with bench(tmp_path, replies=replies) as b:
        editor = await editor_of(b)
        text = (
            "import os\n\n# qmlx: make it faster\n@cache\ndef f(x):\n    return x\n\n\n"
            "# qmlx: a function that gives 2\n\n\nz = 2  # qmlx: three\n"
        )
        uri = editor.show(b.project / "b.py", text)
        for line in (2, 6, 10):
            said = await run(editor, "qmlx.doComment", {"uri": uri, "range": span(line, line)}, token=line)
            assert said == "doComment: applied", line
        assert editor.text(uri) == (
            "import os\n\ndef f(x):\n    return fast(x)\n\n\ndef g():\n    return 2\n\n\nz = 3\n"
        )
        asked = [entry.text for entry in b.entries() if entry.kind.value == "question"]
        assert asked[0].startswith("Change lines 3-6 of b.py: make it faster\n```python\n@cache\ndef f(x):\n")
        assert asked[1].startswith(
            "Change line 7 of b.py: a function that gives 2\n```python\n```\nAnswer with the code"
        )
        assert asked[2].startswith("Change line 11 of b.py: three\n```python\nz = 2\n```\n")
        assert not any("qmlx:" in text for text in asked)
        assert await editor.leave()
