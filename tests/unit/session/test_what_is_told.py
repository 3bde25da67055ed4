"""What a question tells of the workspace: parts, files it names, new names, diagnostics; and what is private."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from qmlx_lsp.errors import QuestionError
from qmlx_lsp.session.event import Ask
from qmlx_lsp.session.sight import SETTLE_S, Workspace, look
from qmlx_lsp.transcript.entry import Kind
from qmlx_lsp.workspace.diagnostics import Diagnostic
from tests.support.bench import Bench, bench, quick
from tests.support.fake_editor import InMemory, edit, initialize_params

TEXT = "".join(f"line number {n}\n" for n in range(30))
FUNCTIONS = "\n".join(f"def function_{n}(value):\n    first = value\n    return first + {n}\n" for n in range(400))
REQUEST_FAILED = -32803


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path) as made:
        yield made


async def editor_of(b: Bench, client: str = "vscode-1.139", root: Path | None = None) -> InMemory:
    editor = InMemory(b.app)
    await editor.initialize(initialize_params(client, root or b.project))
    return editor


def told(b: Bench) -> list[str]:
    return [entry.text for entry in b.entries() if entry.kind is Kind.CONTEXT]


def write(b: Bench, name: str, text: str = TEXT) -> Path:
    file = b.project / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


# --- parts -------------------------------------------------------------------------------------------------------


async def test_of_a_large_file_what_matters_is_shown_and_later_what_changes(tmp_path: Path) -> None:
    async with bench(tmp_path, quick(context={"max_tokens": 8_000, "file_share": 0.1})) as b:
        file = write(b, "big.py", FUNCTIONS)
        await b.ask("What does function_377 do?", path=str(file))
        (shown,) = told(b)
        assert shown.startswith("Lines ")
        assert "def function_377(" in shown
        assert len(shown) <= 800
        await b.ask("And function_377 again?", path=str(file))
        assert len(told(b)) == 1
        await b.ask("And function_201?", path=str(file))
        assert "def function_201(" in told(b)[1]
        assert "function_377" not in told(b)[1]
        write(b, "big.py", FUNCTIONS.replace("return first + 250\n", "return 0\n"))
        await b.ask("Now?")
        assert told(b)[2].startswith("Change in big.py:\n```diff\n")
        assert "-    return first + 250\n+    return 0\n" in told(b)[2]
        await b.check()


async def test_a_large_file_written_anew_is_out_of_date_until_it_is_asked_about(tmp_path: Path) -> None:
    async with bench(tmp_path, quick(context={"max_tokens": 60_000, "file_share": 0.05})) as b:
        file = write(b, "big.py", FUNCTIONS)
        await b.ask("What does function_377 do?", path=str(file))
        write(b, "big.py", FUNCTIONS.replace("function", "procedure").replace("first", "second"))
        await b.ask("Now?")
        assert told(b)[1:] == ["Files that you were shown and that have changed, which is not shown here: big.py.\n"]
        await b.ask("And now?")
        assert len(told(b)) == 2
        await b.ask("What does procedure_377 do?", path=str(file))
        assert "def procedure_377(" in told(b)[-1]
        assert len(told(b)[-1]) <= 3_000
        await b.check()


async def test_the_cursor_says_which_part_of_a_large_file_is_meant(tmp_path: Path) -> None:
    async with bench(tmp_path, quick(context={"max_tokens": 8_000, "file_share": 0.1})) as b:
        file = write(b, "big.py", FUNCTIONS)
        editor = await editor_of(b)
        line = FUNCTIONS.splitlines().index("def function_123(value):") + 1
        cursor = {"start": {"line": line, "character": 2}, "end": {"line": line, "character": 2}}
        await editor.request("qmlx/ask", {"text": "Why?", "textDocument": {"uri": file.as_uri()}, "range": cursor})
        (shown,) = told(b)
        assert "def function_123(" in shown
        assert await editor.leave()


async def test_a_large_file_that_is_merely_open_waits_until_it_is_asked_about(tmp_path: Path) -> None:
    async with bench(tmp_path, quick(context={"max_tokens": 8_000, "file_share": 0.1})) as b:
        file = write(b, "big.py", FUNCTIONS)
        editor = await editor_of(b)
        editor.open(file, FUNCTIONS)
        await editor.request("qmlx/ask", {"text": "Hello?"})
        assert told(b) == []
        await editor.request("qmlx/ask", {"text": "Hello @big.py?"})
        assert told(b)[0].startswith("Lines 1-")
        assert await editor.leave()


# --- files that the question names ---------------------------------------------------------------------------------


async def test_files_that_a_question_names_are_told(b: Bench) -> None:
    write(b, "src/a.py")
    write(b, "src/b c.md")
    await b.ask('Compare @src/a.py with @"src/b c.md", @property and me@example.com.')
    assert told(b) == [f"File src/b c.md:\n```md\n{TEXT}```\n", f"File src/a.py:\n```python\n{TEXT}```\n"]
    await b.ask("And @src/a.py again?")
    assert len(told(b)) == 2


async def test_lines_of_a_file_are_told_alone(b: Bench) -> None:
    write(b, "src/a.py")
    await b.ask("What of @src/a.py:3-4?")
    assert told(b) == ["Lines 3-4 of src/a.py, which has 30:\n```python\nline number 2\nline number 3\n```\n"]
    await b.ask("And @src/a.py:4-5?")
    assert told(b)[1:] == ["Lines 5-5 of src/a.py, which has 30:\n```python\nline number 4\n```\n"]
    write(b, "src/a.py", TEXT.replace("number 20", "number twenty"))
    await b.ask("And now?")
    assert "+line number twenty\n" in told(b)[-1]
    await b.ask("Of @src/a.py:99?")
    assert told(b)[-1].startswith("Lines 30-30 of src/a.py")
    await b.check()


async def test_lines_of_a_file_that_is_known_are_pointed_at(b: Bench) -> None:
    file = write(b, "a.py")
    await b.ask("Q", path=str(file))
    await b.ask("What of @a.py:3?")
    assert told(b)[-1] == "Lines 3-3 of a.py:\n```python\nline number 2\n```\n"


async def test_a_name_is_looked_for_beside_the_file_too_and_the_editor_wins(b: Bench) -> None:
    here, other = write(b, "src/a.py"), write(b, "src/b.py")
    editor = await editor_of(b)
    editor.open(other, "unsaved\n")
    await editor.request("qmlx/ask", {"text": "And @b.py?", "textDocument": {"uri": here.as_uri()}})
    assert "File src/b.py:\n```python\nunsaved\n```\n" in told(b)
    assert await editor.leave()


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("@.env", ".env is private (secret)"),
        ("@sub/../.env:1-2", ".env is private (secret)"),
        ("@nosuch.py:3", "There is no file nosuch.py"),
        ("@bin.py", "is not text in UTF-8"),
        ("@big.py", "big.py has 1.0 MB"),
    ],
)
async def test_what_cannot_be_named_is_one_line_and_nothing_is_recorded(b: Bench, question: str, said: str) -> None:
    write(b, ".env", "TOKEN=canary")
    (b.project / "bin.py").write_bytes(b"a\0b")
    write(b, "big.py", "x" * 1_000_000)
    with pytest.raises(QuestionError, match=said.replace("(", r"\(").replace(")", r"\)")):
        await b.ask(question)
    assert b.entries() == []


async def test_what_is_outside_or_no_file_stays_a_text(b: Bench) -> None:
    (b.project.parent / "outside.py").write_text("canary")
    (b.project / "folder").mkdir()
    await b.ask("@../outside.py @/etc/hostname @folder @angular/core @nosuch.py")
    assert told(b) == []


# --- new names -----------------------------------------------------------------------------------------------------


async def test_a_rename_is_one_line(b: Bench) -> None:
    file = write(b, "a.py")
    await b.ask("Q", path=str(file))
    file.rename(b.project / "b.py")
    (row,) = (await b.app.registry.context(b.project, None))["files"]
    assert (row["path"], row["state"]) == ("a.py", "renamed")
    assert row["pending"] == "File a.py was renamed to b.py.\n"
    await b.ask("Now?")
    assert told(b)[1:] == ["File a.py was renamed to b.py.\n"]
    write(b, "b.py", TEXT.replace("number 7", "number seven"))
    await b.ask("And now?")
    assert told(b)[2].startswith("Change in b.py:")
    (b.project / "b.py").unlink()
    await b.ask("And now?")
    assert told(b)[3:] == ["File b.py was deleted.\n"]
    await b.check()


async def test_a_rename_seen_in_the_editor_is_one_line_too(b: Bench) -> None:
    file = write(b, "src/a.py")
    editor = await editor_of(b)
    editor.open(file, TEXT)
    await editor.request("qmlx/ask", {"text": "Q"})
    new = b.project / "lib" / "a.py"
    new.parent.mkdir()
    file.rename(new)
    editor.close_file(file)
    editor.open(new, TEXT)
    editor.change(new, 2, edit(0, 0, 4, "LINE"))
    await editor.request("qmlx/ask", {"text": "Q"})
    assert len(told(b)) == 2
    assert told(b)[1].startswith("File src/a.py was renamed to lib/a.py.\nChange in lib/a.py:\n```diff\n")
    assert await editor.leave()


async def test_files_that_moved_out_of_a_folder_are_one_line_with_their_names(b: Bench) -> None:
    for name in "abcd":
        write(b, f"src/{name}.py", TEXT.replace("line", f"row {name}"))
        await b.ask(f"@src/{name}.py")
    (b.project / "lib").mkdir()
    editor = await editor_of(b)
    for name in "abc":
        (b.project / "src" / f"{name}.py").rename(b.project / "lib" / f"{name}.py")
        editor.open(b.project / "lib" / f"{name}.py", TEXT.replace("line", f"row {name}"))
    await editor.request("qmlx/ask", {"text": "Now?"})
    assert told(b)[4:] == ["Files were moved from src to lib: a.py, b.py, c.py.\n"]
    assert await editor.leave()


async def test_a_folder_that_was_renamed_is_one_line(b: Bench) -> None:
    names = ["a.py", "b.py", "sub/c.py"]
    for number, name in enumerate(names):
        write(b, f"old/{name}", TEXT.replace("line", f"row {number}"))
        await b.ask(f"@old/{name}")
    (b.project / "old").rename(b.project / "new")
    editor = await editor_of(b)
    for number, name in enumerate(names):
        editor.open(b.project / "new" / name, TEXT.replace("line", f"row {number}"))
    await editor.request("qmlx/ask", {"text": "Now?"})
    assert told(b)[3:] == ["Folder old was renamed to new (3 files).\n"]
    assert await editor.leave()


async def test_a_file_that_is_back_a_moment_later_was_never_gone(b: Bench) -> None:
    file = write(b, "a.py")
    file.unlink()
    waited: list[float] = []

    def settle(seconds: float) -> None:
        waited.append(seconds)
        file.write_text(TEXT)

    rules = b.app.registry.project(b.project).rules()
    sights = look(Workspace(b.project, rules, {}, 1_000_000, ["a.py"], settle=settle), Ask("Q"))
    assert [(sight.path, sight.text) for sight in sights] == [("a.py", TEXT)]
    assert waited == [SETTLE_S]


async def test_a_document_without_a_file_is_told_once_it_is_asked_about(b: Bench) -> None:
    editor = await editor_of(b)
    uri = "untitled:Untitled-1"
    document = {"uri": uri, "languageId": "python", "version": 1, "text": TEXT}
    editor.notify("textDocument/didOpen", {"textDocument": document})
    await editor.request("qmlx/ask", {"text": "Q"})
    assert told(b) == []
    await editor.request("qmlx/ask", {"text": "Q", "textDocument": {"uri": uri}})
    assert told(b) == [f"File untitled:Untitled-1:\n```\n{TEXT}```\n"]
    changed = {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [edit(0, 0, 4, "LINE")]}
    editor.notify("textDocument/didChange", changed)
    await editor.request("qmlx/ask", {"text": "Q"})
    assert told(b)[1].startswith("Change in untitled:Untitled-1:")
    editor.notify("textDocument/didClose", {"textDocument": {"uri": uri}})
    saved = write(b, "saved.py", TEXT.replace("line number 0", "LINE number 0"))
    editor.open(saved, saved.read_text())
    await editor.request("qmlx/ask", {"text": "Q"})
    assert told(b)[2:] == ["File untitled:Untitled-1 was renamed to saved.py.\n"]
    code, message = await editor.refused("qmlx/ask", {"text": "Q", "textDocument": {"uri": "git:/a.py"}})
    assert (code, "git:/a.py is not a file on disk" in message) == (REQUEST_FAILED, True)
    assert await editor.leave()


# --- too many changes ----------------------------------------------------------------------------------------------


async def test_more_changes_than_can_be_told_are_marked_and_told_when_asked_about(tmp_path: Path) -> None:
    async with bench(tmp_path, quick(context={"changes_max": 3})) as b:
        for number in range(8):
            write(b, f"f{number}.py", TEXT)
            await b.ask(f"@f{number}.py")
        for number in range(8):
            write(b, f"f{number}.py", TEXT.replace("number 7", "number seven"))
        await b.ask("Now?")
        changes = [text for text in told(b) if text.startswith("Change in ")]
        assert len(changes) == 3
        session = await b.session()
        stale = [path for path, text in session.told.items() if text == "\0changed"]
        assert len(stale) == 5
        await b.ask("And now?")
        assert len([text for text in told(b) if text.startswith("Change in ")]) == 3
        await b.ask(f"What of @{stale[0]}?")
        assert told(b)[-1].startswith(f"File {stale[0]} (new text):")
        await b.check()


async def test_what_is_out_of_date_is_said_once_and_what_is_gone_by_name(tmp_path: Path) -> None:
    async with bench(tmp_path, quick(context={"changes_max": 1})) as b:
        for name in ("a.py", "b.py", "c.py", "d.py"):
            write(b, name, TEXT + name)
            await b.ask(f"@{name}")
        write(b, "big.json", "x" * 600_000)
        editor = await editor_of(b)
        session = await b.session()
        session.told["big.json"] = "\0too large"  # named, when it was open
        for name in ("a.py", "b.py"):
            write(b, name, "new\n" + TEXT + name)
        for name in ("c.py", "d.py"):
            (b.project / name).unlink()
        await b.ask("Now?")
        news = told(b)[4:]
        assert len(news) == 2
        assert news[0].startswith("Files that you were shown and that have changed, which is not shown here: ")
        assert "Files that you were shown and that have been deleted: " in news[0]
        assert "big.json" not in news[0]
        assert session.told["big.json"] == "\0too large"
        await b.ask("And now?")
        assert told(b)[6:] == []
        assert await editor.leave()


async def test_a_question_says_which_file_it_is_about_where_that_is_not_plain(b: Bench) -> None:
    one, other = write(b, "a.py"), write(b, "b.py", TEXT + "b\n")
    await b.ask("Q", path=str(one))
    await b.ask("Q", path=str(other))
    await b.ask("Q", path=str(other))
    assert len(told(b)) == 2
    await b.ask("Explain this.", path=str(one))
    assert told(b)[2:] == ["The question is about a.py.\n"]
    await b.cancelled("And this?", "prefill", path=str(one))
    await b.ask("And this?", path=str(other))
    assert told(b)[3:] == ["The question is about b.py.\n"]
    questions = [(entry.text, entry.path) for entry in b.entries() if entry.kind is Kind.QUESTION]
    assert questions[-2:] == [("And this?", "a.py"), ("And this?", "b.py")]
    await b.check()


# --- diagnostics ---------------------------------------------------------------------------------------------------


async def test_diagnostics_of_the_file_come_along_once(b: Bench) -> None:
    file = write(b, "a.py")
    editor = await editor_of(b)
    place = {"start": {"line": 4, "character": 0}, "end": {"line": 4, "character": 3}}
    found = [{"range": place, "message": "undefined name", "severity": 1, "source": "pyflakes", "code": "F821"}]
    params: dict[str, Any] = {"text": "Fix?", "textDocument": {"uri": file.as_uri()}, "diagnostics": found}
    await editor.request("qmlx/ask", params)
    block = "Diagnostics of a.py:\n- line 5: error: undefined name (pyflakes F821)\n"
    assert told(b)[1:] == [block]
    await editor.request("qmlx/ask", params)
    assert told(b)[1:] == [block]
    await editor.request("qmlx/ask", {**params, "diagnostics": []})
    assert told(b)[2:] == ["Diagnostics of a.py: none any more.\n"]
    await editor.request("qmlx/ask", {**params, "diagnostics": []})
    assert len(told(b)) == 3
    for nonsense in ({}, 3, [3], [{"message": "m"}], [{"range": place}]):
        _, message = await editor.refused("qmlx/ask", {**params, "diagnostics": nonsense})
        assert message == "diagnostics must be a list of {range, message, severity?, source?, code?}."
    assert await editor.leave()


async def test_diagnostics_that_came_with_code_actions_come_along(b: Bench) -> None:
    file = write(b, "a.py")
    editor = await editor_of(b)
    editor.open(file, TEXT)

    async def look_at(line: int, *messages: str) -> None:
        place = {"start": {"line": line, "character": 0}, "end": {"line": line, "character": 3}}
        found = [{"range": place, "message": message, "severity": 2} for message in messages]
        document = {"uri": file.as_uri()}
        params = {"textDocument": document, "range": place, "context": {"diagnostics": found, "triggerKind": 2}}
        await editor.request("textDocument/codeAction", params)

    about = {"text": "Q", "textDocument": {"uri": file.as_uri()}}
    await look_at(3, "one")
    await look_at(9)
    await look_at(7, "two")
    await editor.request("qmlx/ask", about)
    assert told(b)[1:] == ["Diagnostics of a.py:\n- line 4: warning: one\n- line 8: warning: two\n"]
    editor.change(file, 2, edit(0, 0, 0, "x"))
    await editor.request("qmlx/ask", about)
    assert [text.split("\n")[0] for text in told(b)[2:]] == ["Change in a.py:"]
    await look_at(3, "three")
    await editor.request("qmlx/ask", about)
    assert told(b)[-1] == "Diagnostics of a.py:\n- line 4: warning: three\n"
    editor.close_file(file)
    await editor.request("qmlx/ask", about)
    assert "three" not in told(b)[-1]
    assert await editor.leave()


async def test_a_file_replaced_by_one_of_the_same_size_and_time_is_noticed(b: Bench) -> None:
    file = write(b, "a.py")
    await b.ask("Q", path=str(file))
    before = file.stat()
    write(b, "a.py", TEXT.replace("number 7", "NUMBER 7"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    await b.ask("Now?")
    assert "-line number 7\n+line NUMBER 7\n" in told(b)[-1]


async def test_no_diagnostics_of_a_clean_file_are_nothing(b: Bench) -> None:
    await b.ask("Q", path=str(write(b, "a.py")), diagnostics=())
    assert len(told(b)) == 1
    await b.ask("Q", path=str(b.project / "a.py"), diagnostics=(Diagnostic(1, 2, "w"),))
    assert len(told(b)) == 2


# --- what is private -----------------------------------------------------------------------------------------------


async def test_a_link_is_as_private_as_what_it_leads_to(b: Bench) -> None:
    write(b, ".gitignore", "hidden/\n*.log\n")
    write(b, ".env", "canary")
    write(b, "hidden/x.py", "canary")
    write(b, "out.log", "canary")
    outside = b.project.parent / ".ssh" / "id_rsa"
    outside.parent.mkdir()
    outside.write_text("canary")
    shared = b.project.parent / "shared.py"
    shared.write_text("fine\n")
    links = {"env.py": ".env", "h.py": "hidden/x.py", "log.py": "out.log", "key.py": str(outside)}
    for name, target in links.items():
        (b.project / name).symlink_to(target)
    (b.project / "folder").symlink_to("hidden", target_is_directory=True)
    (b.project / "shared.py").symlink_to(shared)
    editor = await editor_of(b)
    for name in [*links, "folder/x.py"]:
        with pytest.raises(QuestionError, match="private"):
            await b.ask("Q", path=str(b.project / name))
        with pytest.raises(QuestionError, match="private"):
            await b.ask(f"@{name}")
        editor.open(b.project / name, "canary")
    await editor.request("qmlx/ask", {"text": "Q"})
    await b.pause()
    assert "canary" not in "".join(entry.text for entry in b.entries())
    await b.ask("Q", path=str(b.project / "shared.py"))
    assert told(b) == ["File shared.py:\n```python\nfine\n```\n"]
    assert await editor.leave()


async def test_what_becomes_private_is_told_no_more(b: Bench) -> None:
    file = write(b, "a.py", "public\n")
    await b.ask("Q", path=str(file))
    write(b, ".qmlxignore", "a.py\n")
    write(b, "a.py", "canary\n")
    await b.ask("Now?")
    assert "canary" not in "".join(entry.text for entry in b.entries())
    (b.project / ".qmlxignore").unlink()
    await b.ask("Now?")
    assert "canary" in told(b)[-1]
