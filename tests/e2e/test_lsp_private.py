"""What is private stays so, by whatever way it is said and whatever an editor does: a canary reaches no prompt, no
store, no log file, no progress and no error."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bench import Bench, bench, quick
from tests.support.fake_editor import CLIENT_NAMES, InMemory, Message, edit, initialize_params

CANARY = "kanarienvogel"
IGNORED = {
    ".gitignore": "*.log\nbuild/\n!build/keep.py\nsub/*.gen\n!sub/shown.gen\n",
    "sub/.gitignore": "deep.txt\n!never.log\n",
    ".qmlxignore": "mine.py\nprivate/\n!out.log\n",
    ".git/info/exclude": "local.py\n",
    ".git/HEAD": "ref: refs/heads/main\n",
}
PRIVATE = [
    ".env", ".env.local", ".env-prod", ".envs/x", "prod.env", "id_rsa", "server.pem", "sub/credentials.json",
    ".npmrc", "secrets.yaml",
    ".aws/config", ".env~", "key.pem.bak", "a.log", "build/x.py", "build/keep.py", "sub/a.gen", "sub/deep.txt",
    "mine.py", "private/deep/x.md", "local.py", "node_modules/a/index.js", ".venv/lib/x.py", "excluded.py",
    "data/x.csv", "binary.dat", "latin.txt", "huge.py",
]  # fmt: skip
SHOWN = [".env.example", "sub/shown.gen", "out.log", "a.py", "sub/never.log"]


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path) as made:
        for name, text in IGNORED.items():
            write(made, name, text.encode())
        for name in PRIVATE:
            write(made, name, f"{CANARY} in {name}\n".encode())
        write(made, "binary.dat", f"{CANARY}\0".encode())
        write(made, "latin.txt", f"{CANARY} \xe9".encode("latin-1"))
        write(made, "huge.py", f"{CANARY} ".encode() * 100_000)
        for name in SHOWN:
            write(made, name, f"shown in {name}, and long enough\n".encode())
        yield made


def write(b: Bench, name: str, data: bytes) -> None:
    file = b.project / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


async def editor_of(b: Bench, client: str, **options: Any) -> InMemory:
    editor = InMemory(b.app)
    editor.results["workspace/configuration"] = options.pop("answer", None)
    await editor.initialize(initialize_params(client, b.project, **options))
    return editor


def nowhere(b: Bench, editor: InMemory, logged: str) -> None:
    """The canary is in no file that we write, in nothing that the editor was sent and in nothing that was logged."""
    home = b.project.parent / "home"
    for file in (f for f in home.rglob("*") if f.is_file()):
        assert CANARY.encode() not in file.read_bytes(), file
    assert CANARY.encode() not in editor.raw
    assert CANARY not in logged
    assert CANARY not in " ".join(b.notices)
    told = bytes(token for token in b.ids() if token < 256)
    assert CANARY.encode() not in told


IN_A_HURRY = {"vscode-1.139", "neovim-0.12"}
EVERY_CLIENT = [pytest.param(name, marks=[] if name in IN_A_HURRY else pytest.mark.slow) for name in CLIENT_NAMES]


@pytest.mark.parametrize("client", EVERY_CLIENT)
async def test_a_canary_in_every_kind_of_private_file_gets_nowhere(
    b: Bench, client: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    exclude = ["excluded.py", "/data/"]
    editor = await editor_of(b, client, initializationOptions={"exclude": exclude})
    for name in PRIVATE:
        file = b.project / name
        if "huge" not in name:
            editor.open(file, f"{CANARY} unsaved in {name}\n" if name != "binary.dat" else f"{CANARY}\0")
            editor.change(file, 2, edit(0, 0, 0, f"{CANARY} "))
    for name in SHOWN:
        editor.open(b.project / name, (b.project / name).read_text())
    for name in ("binary.dat", "latin.txt"):
        editor.close_file(b.project / name)
    await b.pause()  # reading ahead
    await editor.request("qmlx/ask", {"text": "Q"})
    for name in PRIVATE:
        uri = (b.project / name).as_uri()
        place = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 9}}
        params: Message = {"text": "Q", "textDocument": {"uri": uri}, "range": place, "workDoneToken": name}
        _, message = await editor.refused("qmlx/ask", params)
        assert Path(name).name in message or "outside" in message, (name, message)
        _, message = await editor.refused("qmlx/ask", {"text": f"What of @{name}:1-2?"})
        assert CANARY not in message
        await editor.refused("qmlx/context", {"file": str(b.project / name)})
    rows = (await editor.request("qmlx/context", {}))["files"]
    told = {row["path"] for row in rows if row["told"] is not None}
    assert told == set(SHOWN)
    nowhere(b, editor, caplog.text)
    await editor.request("workspace/executeCommand", {"command": "qmlx.newConversation"})
    await editor.request("qmlx/ask", {"text": "Q", "textDocument": {"uri": (b.project / "a.py").as_uri()}})
    assert await editor.leave()
    await b.restart()
    nowhere(b, editor, caplog.text)


async def test_links_and_other_spellings_lead_no_way_in(b: Bench, caplog: pytest.LogCaptureFixture) -> None:
    editor = await editor_of(b, "vscode-1.139")
    for number, name in enumerate([".env", "private/deep/x.md", "a.log"]):
        (b.project / f"link{number}.py").symlink_to(b.project / name)
    (b.project / "linked").symlink_to(b.project / "private", target_is_directory=True)
    root = b.project.as_uri()
    for uri in (
        f"{root}/link0.py", f"{root}/link1.py", f"{root}/link2.py", f"{root}/linked/deep/x.md", f"{root}/%2eenv",
        f"{root}/sub/../.env", f"{root}//.env", f"{root}/./.env", f"{root}/.ENV", f"{root}/sub/%2e%2e/.env",
        f"file://localhost{b.project}/.env", f"FILE://{b.project}/.env",
    ):  # fmt: skip
        document = {"uri": uri, "languageId": "python", "version": 1, "text": CANARY}
        editor.notify("textDocument/didOpen", {"textDocument": document})
        await editor.refused("qmlx/ask", {"text": "Q", "textDocument": {"uri": uri}})
    await b.pause()
    await editor.request("qmlx/ask", {"text": "Q"})
    nowhere(b, editor, caplog.text)
    assert await editor.leave()


# --- how an editor says what is private -----------------------------------------------------------------------------


async def shown(b: Bench, editor: InMemory) -> bool:
    """Whether excluded.py is shown when it is open."""
    await editor.request("qmlx/ask", {"text": "Q"})
    session = await b.session()
    return "excluded.py" in session.told


@pytest.mark.parametrize(
    "said",
    [
        {"initializationOptions": {"exclude": ["excluded.py"]}},
        {"initializationOptions": {"qmlx": {"exclude": ["excluded.*"]}}},
        {"answer": [{"exclude": ["/excluded.py"]}]},
    ],
)
async def test_what_a_setting_excludes_is_private(b: Bench, said: dict[str, Any]) -> None:
    editor = await editor_of(b, "neovim-0.12", **said)
    editor.open(b.project / "excluded.py", "x\n")
    assert not await shown(b, editor)
    editor.results["workspace/configuration"] = [{"exclude": []}]
    editor.notify("workspace/didChangeConfiguration", {"settings": {"qmlx": {"exclude": []}}})
    await editor.request("qmlx/status")
    assert await shown(b, editor)
    assert await editor.leave()


async def test_settings_that_are_pushed_hold_for_folders_that_come_later(b: Bench) -> None:
    editor = await editor_of(b, "helix-25.07")
    editor.notify("workspace/didChangeConfiguration", {"settings": {"qmlx": {"exclude": ["excluded.py"]}}})
    folder = b.project.parent / "second"
    folder.mkdir()
    (folder / "excluded.py").write_text("x\n")
    event = {"added": [{"uri": folder.as_uri(), "name": "second"}], "removed": []}
    editor.notify("workspace/didChangeWorkspaceFolders", {"event": event})
    uri = (folder / "excluded.py").as_uri()
    _, message = await editor.refused("qmlx/ask", {"text": "Q", "textDocument": {"uri": uri}})
    assert "private (exclude)" in message
    assert await editor.leave()


async def test_nothing_is_told_before_the_editor_has_said_what_is_private(b: Bench) -> None:
    editor = InMemory(b.app, answers=False)
    await editor.initialize(initialize_params("vscode-1.139", b.project))
    asked = await editor.until(lambda m: m.get("method") == "workspace/configuration")
    assert [item["section"] for item in asked["params"]["items"]] == ["qmlx"]
    editor.open(b.project / "excluded.py", f"{CANARY}\n")
    await b.pauses.passes()  # reading ahead waits, too
    number = editor.begin("qmlx/ask", {"text": "Q"})
    assert (await editor.request("qmlx/status"))["queue"]["running"] == 1
    assert b.entries() == []
    editor.send({"jsonrpc": "2.0", "id": asked["id"], "result": [{"exclude": ["excluded.py"]}]})
    await editor.result(number)
    assert CANARY not in "".join(entry.text for entry in b.entries())
    assert await editor.leave()


async def _before_the_settings(b: Bench) -> tuple[InMemory, Message]:
    """An editor that has opened a file and has not said yet that it is private; and what it was asked."""
    editor = InMemory(b.app, answers=False)
    await editor.initialize(initialize_params("vscode-1.139", b.project))
    asked = await editor.until(lambda m: m.get("method") == "workspace/configuration")
    editor.open(b.project / "excluded.py", f"{CANARY}\n")
    await b.app.registry.loader.ready()
    return editor, asked


@pytest.mark.parametrize("second", ["", "small"])
async def test_nothing_is_completed_before_the_editor_has_said_what_is_private(tmp_path: Path, second: str) -> None:
    async with bench(tmp_path, quick(inline={"model": second})) as b:
        editor, asked = await _before_the_settings(b)
        place = {"line": 0, "character": len(CANARY)}
        about = {"textDocument": {"uri": (b.project / "excluded.py").as_uri()}, "position": place}
        number = editor.begin("textDocument/inlineCompletion", {**about, "context": {"triggerKind": 1}})
        await editor.request("qmlx/status")
        editor.send({"jsonrpc": "2.0", "id": asked["id"], "result": [{"exclude": ["excluded.py"]}]})
        assert await editor.result(number) == {"items": []}
        assert b.gate.passes == []
        assert CANARY not in "".join(entry.text for entry in b.entries())
        assert await editor.leave()


@pytest.mark.parametrize("command", ["explain", "document", "tests", "rewrite"])
async def test_no_lines_are_asked_about_before_the_editor_has_said_what_is_private(b: Bench, command: str) -> None:
    editor, asked = await _before_the_settings(b)
    about = {"uri": (b.project / "excluded.py").as_uri(), "text": "make it short"}
    number = editor.begin("workspace/executeCommand", {"command": f"qmlx.{command}", "arguments": [about]})
    await editor.request("qmlx/status")
    editor.send({"jsonrpc": "2.0", "id": asked["id"], "result": [{"exclude": ["excluded.py"]}]})
    assert "private (exclude)" in (await editor.response(number))["error"]["message"]
    assert CANARY not in "".join(entry.text for entry in b.entries())
    assert await editor.leave()


@pytest.mark.parametrize("answer", ["silence", "error", "nonsense", "null"])
async def test_an_editor_that_does_not_answer_holds_nobody_up(
    b: Bench, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qmlx_lsp.lsp.configuration.CONFIGURATION_S", 0.05 if answer == "silence" else 10_000.0)
    editor = InMemory(b.app, answers=False)
    await editor.initialize(initialize_params("vscode-1.139", b.project))
    asked = await editor.until(lambda m: m.get("method") == "workspace/configuration")
    if answer == "error":
        editor.send({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "no"}})
    elif answer == "nonsense":
        editor.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"a": 3}})
    elif answer == "null":
        editor.send({"jsonrpc": "2.0", "id": asked["id"], "result": None})
    assert (await editor.request("qmlx/ask", {"text": "Q"}))["finish"] == "complete"
    assert await editor.leave()


@pytest.mark.parametrize("nonsense", ["excluded.py", {"a": 1}, [1], 3, True])
async def test_patterns_that_are_none_are_said_in_one_line(b: Bench, nonsense: Any) -> None:
    editor = await editor_of(b, "neovim-0.12", initializationOptions={"exclude": ["excluded.py"]})
    editor.notify("workspace/didChangeConfiguration", {"settings": {"qmlx": {"exclude": nonsense}}})
    await editor.until(lambda m: m.get("method") == "window/showMessage")
    (message,) = editor.of("window/showMessage")
    assert message["message"].startswith("qmlx.exclude is ")
    editor.open(b.project / "excluded.py", "x\n")
    assert not await shown(b, editor)
    for settings in (None, [], {}, {"qmlx": None}, {"qmlx": 3}):
        editor.notify("workspace/didChangeConfiguration", {"settings": settings})
    assert await editor.leave()


async def test_one_editors_exclusions_hold_for_all_until_another_one_says_otherwise(b: Bench) -> None:
    first = await editor_of(b, "vscode-1.139", initializationOptions={"exclude": ["excluded.py"]})
    second = await editor_of(b, "neovim-0.12")
    second.open(b.project / "excluded.py", "x\n")
    assert not await shown(b, second)
    assert await first.leave()
    assert not await shown(b, second), "whoever asks from a terminal next does not know what is private"
    second.notify("workspace/didChangeConfiguration", {"settings": {"qmlx": {"exclude": []}}})
    await second.request("qmlx/status")
    assert await shown(b, second)
    assert await second.leave()


async def test_what_is_private_is_so_in_folders_inside_and_elsewhere(b: Bench) -> None:
    (b.project / "sub").mkdir(exist_ok=True)
    elsewhere = b.project.parent / "elsewhere"
    elsewhere.mkdir()
    for folder in (b.project / "sub", elsewhere):
        (folder / "notes.txt").write_text(CANARY)
    editor = await editor_of(b, "vscode-1.139", initializationOptions={"exclude": ["notes.txt", "/sub/x.py"]})
    (b.project / "sub" / "x.py").write_text(CANARY)
    for root, name in [(b.project / "sub", "notes.txt"), (b.project / "sub", "x.py"), (elsewhere, "notes.txt")]:
        _, message = await editor.refused("qmlx/ask", {"text": f"@{name}", "root": str(root)})
        assert "private (exclude)" in message
    other = await editor_of(b, "neovim-0.12", rootUri=None, workspaceFolders=None, rootPath=None)
    _, message = await other.refused("qmlx/ask", {"text": "@notes.txt", "root": str(b.project / "sub")})
    assert "private (exclude)" in message
    assert await other.leave()
    assert await editor.leave()


async def test_a_new_document_that_is_to_become_a_secret_is_one(b: Bench) -> None:
    editor = await editor_of(b, "vscode-1.139")
    for uri in (
        f"untitled:{b.project}/.env",
        "untitled:.env",
        f"untitled:{b.project}/private/x.md",
        "untitled:id_rsa",
    ):
        document = {"uri": uri, "languageId": "x", "version": 1, "text": CANARY}
        editor.notify("textDocument/didOpen", {"textDocument": document})
        _, message = await editor.refused("qmlx/ask", {"text": "Q", "textDocument": {"uri": uri}})
        assert "private" in message
    assert await editor.leave()


async def test_settings_take_trust_away_and_never_give_it(b: Bench) -> None:
    write(b, ".qmlx.toml", b"[tools.t]\ncommand = 'touch ran'\n")
    call = {"command": "qmlx.runTool", "arguments": ["t"]}
    editor = await editor_of(b, "vscode-1.139", initializationOptions={"trusted": False}, answer=[{"trusted": True}])
    editor.notify("workspace/didChangeConfiguration", {"settings": {"qmlx": {"trusted": True}}})
    _, message = await editor.refused("workspace/executeCommand", call)
    assert "not trusted" in message
    assert await editor.leave()
    other = await editor_of(b, "neovim-0.12")
    other.notify("workspace/didChangeConfiguration", {"settings": {"qmlx": {"trusted": False}}})
    _, message = await other.refused("workspace/executeCommand", call)
    assert "not trusted" in message
    assert not (b.project / "ran").exists()
    assert await other.leave()
