"""What a question tells of files: parts of large ones, those it names, what checkers say, which one it is about."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from qmlx_lsp.errors import QuestionError
from qmlx_lsp.workspace.diagnostics import Diagnostic
from tests.support.bench import Bench, bench, quick
from tests.support.fake_editor import edit
from tests.support.telling import FUNCTIONS, TEXT, editor_of, told, write


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
