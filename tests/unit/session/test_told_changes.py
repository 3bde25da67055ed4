"""What a question tells of files that are elsewhere now, or have changed more than can be told."""

from __future__ import annotations

from pathlib import Path

from qmlx_lsp.session.event import Ask
from qmlx_lsp.session.sight import SETTLE_S, Workspace, look
from qmlx_lsp.transcript.entry import Kind
from tests.support.bench import Bench, bench, long, quick
from tests.support.fake_editor import edit
from tests.support.telling import REQUEST_FAILED, TEXT, editor_of, told, write


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
    question = long("And this?")
    await b.cancelled(question, "prefill", path=str(one))
    await b.ask(question, path=str(other))
    assert told(b)[3:] == ["The question is about b.py.\n"]
    questions = [(entry.text, entry.path) for entry in b.entries() if entry.kind is Kind.QUESTION]
    assert questions[-2:] == [(question, "a.py"), (question, "b.py")]
    await b.check()
