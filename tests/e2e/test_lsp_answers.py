"""Answers: streamed, shown as documents where there is no panel; new files; every command by plain texts as Helix
sends them."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from qmlx_lsp.lsp import answers, apply, create
from qmlx_lsp.storage.answers import ANSWERS_MAX, Answers
from tests.support.applying import Applying, Style
from tests.support.bench import Bench, bench, quick
from tests.support.commands import CANCEL, COMMAND, call, ended, run, span, told
from tests.support.fake_editor import InMemory, initialize_params

ERROR, WARNING, INFO = 1, 2, 3
CODE = "def f(x):\n    return x\n\n\ny = 1\n"
REPLY = "It gives back `x`.\n"
TESTS = "```python\nfrom a import f\n\n\ndef test_f():\n    assert f(1) == 1\n```\n"


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path, replies=[REPLY] * 20) as made:
        (made.project / "a.py").write_text(CODE)
        yield made


async def editor_of(b: Bench, style: Style = Style.VSCODE, **more: Any) -> Applying:
    editor = Applying(b.app, style)
    await editor.begin_as(b.project, **more)
    return editor


def kept(b: Bench) -> list[Path]:
    return sorted(b.paths.answers.glob("*/*.md"))


def questions(b: Bench) -> list[str]:
    return [entry.text for entry in b.entries() if entry.kind.value == "question"]


# --- where answers are read ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "client", ["vscode-1.139", "neovim-0.11", "helix-25.07", "helix-25.01", "emacs-30-eglot-1.17"]
)
async def test_an_answer_is_a_document(b: Bench, client: str) -> None:
    editor = await editor_of(b, client=client)
    uri = editor.show(b.project / "a.py", CODE)
    assert await run(editor, "qmlx.explain", {"uri": uri, "range": span(1, 1)}) == "explain: answered"
    (file,) = kept(b)
    assert editor.shown == [file.as_uri()]
    assert file.read_text() == f"# Explanation of lines 1-2 of a.py\n\n{REPLY}"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == stat.S_IMODE(b.paths.answers.stat().st_mode) == 0o700
    assert told(editor) == []
    assert await editor.leave()


async def test_where_no_documents_are_shown_one_line_says_where_it_is(b: Bench) -> None:
    editor = await editor_of(b, capabilities={})
    uri = editor.show(b.project / "a.py", CODE)
    await editor.request(COMMAND, call("qmlx.explain", {"uri": uri, "range": span(0, 2)}))
    await editor.until(lambda m: m.get("method") == "window/showMessage")
    (file,) = kept(b)
    assert told(editor) == [(INFO, f"explain: answered; the answer is in {file}")]
    assert editor.shown == []
    assert await editor.leave()


@pytest.mark.parametrize("how", ["an error", "false", "nothing", "null"])
async def test_nothing_depends_on_the_editor_showing_it(b: Bench, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "SHOW_S", 0.2)
    editor = await editor_of(b)

    def reply(message: Any, _result: Any) -> None:
        if how == "an error":
            error = {"code": -32603, "message": "no treesitter parser"}
            editor.send({"jsonrpc": "2.0", "id": message["id"], "error": error})
        elif how != "nothing":
            result = {"success": False} if how == "false" else None
            editor.send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    editor._answer = reply  # type: ignore[method-assign]
    said = await run(editor, "qmlx.ask", {"text": "Why?"})
    (file,) = kept(b)
    assert said == f"ask: answered; the answer is in {file}"
    assert told(editor) == [(INFO, said)]
    assert await editor.leave()


async def test_an_editor_with_a_panel_gets_the_stream_alone(b: Bench) -> None:
    params = initialize_params("vscode-1.139", b.project)
    capabilities = {**params["capabilities"], "experimental": {"qmlx": {"panel": True}}}
    editor = await editor_of(b, capabilities=capabilities)
    job = (await editor.request(COMMAND, call("qmlx.ask", {"text": "Why?"}, workDoneToken="t")))["jobId"]
    assert await ended(editor, "t") == "ask: answered"
    parts = [part for part in editor.of("qmlx/stream") if part["jobId"] == job]
    assert "".join(part["delta"] for part in parts) == REPLY
    assert [part["done"] for part in parts][-1] is True
    assert kept(b) == []
    assert editor.shown == []
    assert await editor.leave()


async def test_a_folder_that_cannot_be_written_is_one_line(b: Bench) -> None:
    b.paths.answers.write_text("in the way")
    editor = await editor_of(b)
    said = await run(editor, "qmlx.ask", {"text": "Why?"})
    assert said.startswith("ask: answered; The answer cannot be written to ")
    assert told(editor) == [(INFO, said)]
    assert b.entries()[-1].text == REPLY
    assert await editor.leave()


async def test_a_cancelled_answer_is_shown_as_far_as_it_goes(b: Bench) -> None:
    editor = await editor_of(b)
    b.gate.hold("decode", 5)
    await editor.request(COMMAND, call("qmlx.ask", {"text": "Why?"}, workDoneToken="t"))
    await b.gate.reached()
    await editor.request(COMMAND, call(CANCEL))
    b.gate.open()
    assert await ended(editor, "t") == "ask: cancelled"
    partial = b.entries()[-1].text
    assert REPLY.startswith(partial)
    (file,) = kept(b)
    assert file.read_text() == f"# Answer\n\n*Cancelled.*\n\n{partial.strip()}\n"
    assert told(editor) == []
    assert await editor.leave()


async def test_only_the_newest_are_kept_and_forgetting_forgets_them(b: Bench) -> None:
    files = Answers(b.paths.answers)
    other = b.project.with_name("other")
    made = [files.write(b.project, "explain", str(n), 0) for n in range(ANSWERS_MAX + 3)]
    files.write(other, "ask", "x", 0)
    left = [file for file in kept(b) if file.parent == made[0].parent]
    assert left == made[3:]
    assert [file.read_text() for file in left] == [str(n) for n in range(3, ANSWERS_MAX + 3)]
    assert files.write(b.project, "ask", "y", 0).name == f"{ANSWERS_MAX + 4:04}-ask.md"
    editor = await editor_of(b)
    assert await run(editor, "qmlx.ask", {"text": "Why?"}) == "ask: answered"
    assert await editor.request(COMMAND, call("qmlx.showConversation"))
    await editor.request(COMMAND, call("qmlx.forgetConversation", str(b.project)))
    assert [file.read_text() for file in kept(b)] == ["x"]
    files.forget(b.project)
    assert await editor.leave()


async def test_what_was_begun_before_it_was_forgotten_is_not_kept_behind_it(b: Bench) -> None:
    editor = InMemory(b.app, answers=False)
    params = initialize_params("vscode-1.139", b.project)
    params["capabilities"]["workspace"]["configuration"] = False
    await editor.initialize(params)
    file = b.project / "a.py"
    editor.open(file, CODE)
    await b.session()
    b.backend._replies[:] = ["```python\ndef f(x):\n    return 7\n```\n"]
    where = {"uri": file.as_uri(), "range": span(0, 2), "text": "seven"}
    await editor.request(COMMAND, call("qmlx.rewrite", where, workDoneToken="t"))
    asked = await editor.until(lambda m: m.get("method") == "workspace/applyEdit")
    await editor.request(COMMAND, call("qmlx.forgetConversation", str(b.project)))
    editor.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"applied": False, "failureReason": "no"}})
    said = "not applied: the editor did not apply it (no); the conversation has been forgotten meanwhile"
    assert await ended(editor, "t") == f"rewrite: {said}"
    assert kept(b) == []
    assert editor.of("window/showMessage") == [{"type": WARNING, "message": f"rewrite: {said}"}]
    assert await editor.leave()


async def test_the_conversation_as_a_document(b: Bench) -> None:
    editor = await editor_of(b)
    where = await editor.request(COMMAND, call("qmlx.showConversation"))
    assert Path(where["file"]).read_text().endswith("Nothing has been asked yet.\n")
    await run(editor, "qmlx.ask", {"text": "Why @x?\nAnd?"})
    where = await editor.request(COMMAND, call("qmlx.showConversation", {"root": str(b.project)}))
    text = Path(where["file"]).read_text()
    assert text == f"# The conversation about project\n\n## Why @x?\n\nWhy @x?\nAnd?\n\n---\n\n{REPLY}\n"
    assert editor.shown[0] == editor.shown[-1] == Path(where["file"]).as_uri()
    assert await editor.leave()
    silent = await editor_of(b, capabilities={})
    where = await silent.request(COMMAND, call("qmlx.showConversation"))
    assert told(silent) == [(INFO, f"The conversation is in {where['file']}")]
    assert await silent.leave()


async def test_the_status_is_a_line_as_well(b: Bench) -> None:
    editor = await editor_of(b)
    await b.session()
    found = await editor.request(COMMAND, call("qmlx.status"))
    assert found["model"]["name"] == "scripted"
    assert told(editor) == [(INFO, "scripted is ready")]
    usage = (await editor.request("qmlx/ask", {"text": "Q"}))["usage"]
    await editor.request(COMMAND, call("qmlx.status"))
    last = f"last turn: {usage['prefilled']:,} tokens read, 0 kept; {len(b.ids()):,} tokens of conversation"
    assert told(editor)[-1] == (INFO, f"scripted is ready; {last}")
    assert await editor.leave()


@pytest.mark.parametrize("style", [Style.HELIX, Style.VSCODE])
async def test_an_editor_that_hides_errors_of_commands_is_told_in_a_line(b: Bench, style: Style) -> None:
    editor = await editor_of(b, style)
    wrong = [("qmlx.ask", ""), ("qmlx.explain",), ("qmlx.explain", "/etc/hostname", 1), ("qmlx.nothing",)]
    errors = [(await editor.refused(COMMAND, call(*one)))[1] for one in wrong]
    assert told(editor) == ([(ERROR, error) for error in errors] if style is Style.HELIX else [])
    assert await editor.leave()


async def test_a_question_in_an_answer_goes_on_in_its_conversation(b: Bench, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    editor = await editor_of(b, Style.HELIX, workspaceFolders=[
        {"uri": other.as_uri(), "name": "o"}, {"uri": b.project.as_uri(), "name": "p"},
    ])  # fmt: skip
    await run(editor, "qmlx.ask", "Why?", str(b.project / "a.py"), 1)
    (file,) = kept(b)
    before = len(b.entries())
    await run(editor, "qmlx.ask", "And then?", str(file), 3)
    await editor.request("qmlx/ask", {"text": "At last?", "textDocument": {"uri": file.as_uri()}})
    assert questions(b) == ["Why?", "And then?", "At last?"]
    assert [entry.kind.value for entry in b.entries()[before:]] == ["question", "assistant"] * 2
    assert (await editor.refused(COMMAND, call("qmlx.explain", str(file), 1)))[1].startswith(f"{file} is outside")
    assert told(editor)
    assert await editor.leave()


# --- plain texts ---------------------------------------------------------------------------------------------------


async def test_every_command_by_plain_texts(b: Bench) -> None:
    editor = await editor_of(b, Style.HELIX)
    uri = editor.show(b.project / "a.py", CODE)
    file = str(b.project / "a.py")
    section, line = "lines 1-2 of a.py", "line 5 of a.py"
    ways: list[tuple[str, tuple[Any, ...], str]] = [
        ("qmlx.ask", ("Why?",), "Why?"),
        ("qmlx.ask", ("Why?", file), "Why?"),
        ("qmlx.ask", ("Why?", file, 2, {"sel": [1, 2]}), "Why?"),
        ("qmlx.explain", (file, 2), f"Explain {section}."),
        ("qmlx.explain", (file, "2", {"sel": [2, 2]}), f"Explain {section}."),
        ("qmlx.explain", (uri, 5), f"Explain {line}."),
        ("qmlx.explain", (file, {"sel": [2, 5]}), "Explain lines 2-5 of a.py."),
        ("qmlx.explain", (file,), "Explain lines 1-5 of a.py."),
        ("qmlx.rewrite", ("shorter", file, 2, {"sel": [5, 1]}), "Change lines 1-5 of a.py: shorter"),
        ("qmlx.rewrite", ("shorter", file, 2), f"Change {section}: shorter"),
        ("qmlx.fix", (file, 5), f"Fix {line}."),
        ("qmlx.document", (file, 1), f"Document {section}: say in the language's own form"),
        ("qmlx.tests", (file, 1), f"Write tests for {section}."),
    ]
    for token, (command, arguments, asked) in enumerate(ways):
        await run(editor, command, *arguments, token=token)
        assert questions(b)[-1].startswith(asked), (command, arguments)
    assert editor.edits == []
    told(editor)
    assert await editor.leave()


async def test_a_path_below_the_folder_that_the_editor_was_started_in(
    b: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, other = b.project / "deep" / "er", tmp_path / "other"
    for folder in (inner, other):
        folder.mkdir(parents=True)
        (folder / "m.py").write_text(CODE)
    monkeypatch.setenv("HOME", str(tmp_path))
    roots = [{"uri": root.as_uri(), "name": root.name} for root in (b.project, other)]
    editor = await editor_of(b, Style.HELIX, workspaceFolders=roots)
    await run(editor, "qmlx.explain", "m.py", 1, token="elsewhere")
    assert questions(b) == [], "the other folder has the only one"
    editor.show(b.project / "a.py", CODE)
    editor.show(inner / "m.py", CODE)
    for place, shown in (
        ("a.py", "a.py"),
        ("~/project/a.py", "a.py"),
        ("er/m.py", "deep/er/m.py"),
        ("m.py", "deep/er/m.py"),
    ):
        await run(editor, "qmlx.explain", place, 5, token=place)
        assert questions(b)[-1].startswith(f"Explain line 5 of {shown}.")
    editor.show(other / "m.py", CODE)
    assert (await editor.refused(COMMAND, call("qmlx.explain", "m.py", 5)))[1] == (
        f"'m.py' may be {other / 'm.py'} or {inner / 'm.py'}: give an absolute path."
    )
    told(editor)
    assert await editor.leave()


async def test_of_two_files_of_one_name_it_is_that_below_the_folder_of_the_editor(b: Bench) -> None:
    """Every package has its `__init__.py`, and Helix names the outer one by nothing else."""
    outer, inner = b.project / "__init__.py", b.project / "deep" / "__init__.py"
    inner.parent.mkdir()
    editor = Applying(b.app, Style.HELIX, folder=str(b.project))
    await editor.begin_as(b.project)
    for file in (outer, inner):
        file.write_text(CODE)
        editor.show(file, CODE)
    for place, shown in (("__init__.py", "__init__.py"), ("deep/__init__.py", "deep/__init__.py")):
        await run(editor, "qmlx.explain", place, 5, token=place)
        assert questions(b)[-1].startswith(f"Explain line 5 of {shown}.")
    assert await editor.leave()


async def test_what_makes_no_sense_is_one_clear_line(b: Bench) -> None:
    editor = await editor_of(b)
    uri = editor.show(b.project / "a.py", CODE)
    file = str(b.project / "a.py")
    for params, said in (
        (call("qmlx.ask"), "Say what you want to know: give {text}, or a text as the first argument, as in qmlx.ask"),
        (call("qmlx.ask", ""), "Say what you want to know"),
        (call("qmlx.ask", {"text": 7}), "text is 7, but must be a text."),
        (call("qmlx.ask", 7), "7 is not what is wanted, which must be a text."),
        (call("qmlx.ask", "q", "relative/a.py"), "There is no 'relative/a.py' here: give an absolute path"),
        (call("qmlx.ask", "q", "[scratch]"), "There is no '[scratch]' here"),
        (call("qmlx.explain", "", 1), "There is no '' here"),
        (call("qmlx.explain", "\x00/a.py", 1), "There is no "),
        (call("qmlx.ask", "q", file, "x"), "'x' is no line"),
        (call("qmlx.ask", "q", file, 0), "0 is no line"),
        (call("qmlx.ask", "q", file, True), "True is no line"),
        (call("qmlx.ask", "q", file, 1, {"sel": [1]}), "is no selection"),
        (call("qmlx.ask", "q", file, 1, {"sel": [1, 2]}, 5), "5 is too much"),
        (call("qmlx.explain"), "Say which lines qmlx.explain is about: give {uri, range}, or a path and a line."),
        (call("qmlx.explain", {}), "Say which lines"),
        (call("qmlx.explain", {"uri": 7}), "uri is 7"),
        (call("qmlx.explain", {"uri": uri, "range": 7}), "range must be"),
        (call("qmlx.explain", {"uri": uri, "workDoneToken": []}), "workDoneToken is []"),
        (call("qmlx.explain", {"textDocument": 7}), "textDocument must be an object."),
        (call("qmlx.explain", {"uri": "http://example.org/a.py"}), "is not a file on disk"),
        (call("qmlx.explain", "/none/such.py", 1), "is outside every workspace folder"),
        (call("qmlx.rewrite", {"uri": uri}), "Say what is to be changed: give {text}"),
        (call("qmlx.rewrite", "   ", file, 1), "Say what is to be changed"),
        (call("qmlx.fix", {"uri": uri, "diagnostic": 7}), "diagnostics must be a list"),
        (call("qmlx.doComment", {"uri": uri, "range": span(0, 0)}), "None of what line 1 says begins with `qmlx:`"),
        (call("qmlx.doComment", {"uri": uri, "range": span(0, 2)}), "None of what lines 1-2 say begins"),
        (call("qmlx.doComment", str(b.project / "b.py"), 1), "b.py is not open here"),
        (call("qmlx.status", "x", "y"), None),
    ):
        if said is not None:
            assert said in (await editor.refused(COMMAND, params))[1], params
    assert b.entries() == []
    assert await editor.leave()


async def test_what_only_the_turn_can_refuse_is_one_message(b: Bench) -> None:
    editor = await editor_of(b)
    said = await run(editor, "qmlx.explain", str(b.project / "gone.py"), 1)
    assert said == "explain: not run: There is no file gone.py: check the name, or ask without it."
    assert told(editor) == [(ERROR, said)]
    assert b.entries() == []
    assert await editor.leave()


async def test_a_file_that_is_not_open_is_answered_and_not_edited(b: Bench) -> None:
    editor = await editor_of(b)
    said = await run(editor, "qmlx.rewrite", "shorter", str(b.project / "a.py"), 2, {"sel": [1, 2]})
    assert said == f"rewrite: not applied: {apply.GONE}"
    (asked,) = questions(b)
    assert asked == (
        "Change lines 1-2 of a.py: shorter\n"
        "Answer with the whole new text of these lines in one fenced block and nothing else."
    )
    assert "Lines 1-2 of a.py:\n```python\ndef f(x):\n    return x\n```\n" in "".join(e.text for e in b.entries())
    assert told(editor) == [(WARNING, said)]
    assert editor.edits == []
    assert len(editor.shown) == 1
    assert await editor.leave()


async def test_a_question_goes_with_its_selection(b: Bench) -> None:
    editor = await editor_of(b)
    uri = editor.show(b.project / "a.py", CODE)
    await run(editor, "qmlx.ask", {"text": "Why?", "textDocument": {"uri": uri}, "range": span(0, 2)})
    assert [entry.text for entry in b.entries()][-3:] == [
        "Lines 1-2 of a.py:\n```python\ndef f(x):\n    return x\n```\n", "Why?", REPLY,
    ]  # fmt: skip
    assert await editor.leave()


# --- new files -----------------------------------------------------------------------------------------------------


@pytest.fixture
async def t(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path, replies=[TESTS] * 9) as made:
        (made.project / "a.py").write_text(CODE)
        yield made


@pytest.mark.parametrize("style", [Style.VSCODE, Style.HELIX, Style.NEOVIM])
async def test_tests_are_a_new_document(t: Bench, style: Style) -> None:
    editor = await editor_of(t, style)
    uri = editor.show(t.project / "a.py", CODE)
    (t.project / "tests").mkdir()
    assert await run(editor, "qmlx.tests", {"uri": uri, "range": span(0, 0)}) == "tests: tests/test_a.py made"
    made = t.project / "tests" / "test_a.py"
    assert editor.created == [made]
    assert editor.text(made.as_uri()) == TESTS.removeprefix("```python\n").removesuffix("```\n")
    create, _ = editor.edits[0]["edit"]["documentChanges"]
    assert create["kind"] == "create"
    assert ("annotationId" in create) is (style is not Style.HELIX)
    assert editor.shown == [made.as_uri()]
    assert kept(t) == []
    assert told(editor) == []
    assert await editor.leave()


async def test_never_over_anything_that_is_there(t: Bench) -> None:
    editor = await editor_of(t)
    uri = editor.show(t.project / "a.py", CODE)
    (t.project / "test_a.py").write_text("mine\n")
    (t.project / "test_a_2.py").symlink_to("nowhere")
    editor.show(t.project / "test_a_3.py", "not saved yet\n")
    other = InMemory(t.app)
    await other.initialize(initialize_params("vscode-1.139", t.project))
    other.open(t.project / "test_a_4.py", "another editor's\n")
    await other.request("qmlx/status")
    assert await run(editor, "qmlx.tests", {"uri": uri}) == "tests: test_a_5.py made"
    assert (t.project / "test_a.py").read_text() == "mine\n"
    assert (t.project / "test_a_2.py").readlink() == Path("nowhere")
    assert editor.text((t.project / "test_a_3.py").as_uri()) == "not saved yet\n"
    assert await editor.leave()
    assert await other.leave()


@pytest.mark.parametrize(
    ("style", "client", "why"),
    [
        (Style.READ_ONLY, None, "the editor did not apply it"),
        (Style.DEAF, None, apply.UNANSWERED),
        (Style.VSCODE, "emacs-30-eglot-1.17", "this editor makes no files for others"),
    ],
)
async def test_a_file_that_is_not_made_is_an_answer(
    t: Bench, style: Style, client: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply, "APPLY_S", 0.3)
    monkeypatch.setattr(apply, "FOLLOW_S", 0.3)
    editor = await editor_of(t, style, client=client)
    uri = editor.show(t.project / "a.py", CODE)
    said = await run(editor, "qmlx.tests", {"uri": uri})
    assert said == f"tests: no file made: {why}"
    assert told(editor) == [(WARNING, said)]
    assert sorted(file.name for file in t.project.iterdir()) == ["a.py"]
    assert TESTS.strip() in kept(t)[0].read_text()
    assert await editor.leave()


async def test_one_that_says_true_and_makes_nothing(t: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "FOLLOW_S", 0.3)
    editor = await editor_of(t, Style.NEOVIM)
    uri = editor.show(t.project / "a.py", CODE)
    editor._do = lambda _edit: None  # type: ignore[method-assign]
    said = await run(editor, "qmlx.tests", {"uri": uri})
    assert said == f"tests: no file made: {create.UNSEEN}"
    assert told(editor) == [(WARNING, said)]
    assert await editor.leave()


@pytest.mark.parametrize("reply", ["Write tests yourself.", TESTS + TESTS, TESTS.removesuffix("```\n")])
async def test_an_answer_that_is_no_file(tmp_path: Path, reply: str) -> None:
    async with bench(tmp_path, replies=[reply]) as b:
        editor = await editor_of(b)
        uri = editor.show(b.project / "a.py", CODE)
        said = await run(editor, "qmlx.tests", {"uri": uri})
        assert said == "tests: no file made: the answer is not one block of code"
        assert told(editor) == [(WARNING, said)]
        assert editor.edits == []
        assert await editor.leave()


async def test_what_was_cut_off_makes_no_file(tmp_path: Path) -> None:
    async with bench(tmp_path, quick(model={"max_tokens": len(TESTS) - 2}), replies=[TESTS]) as b:
        editor = await editor_of(b)
        uri = editor.show(b.project / "a.py", CODE)
        said = await run(editor, "qmlx.tests", {"uri": uri})
        assert said == "tests: cut off at the longest reply that is allowed, nothing was changed"
        told(editor)
        assert editor.edits == []
        assert await editor.leave()


# --- nothing private in what is written ----------------------------------------------------------------------------


async def test_nothing_that_is_said_is_logged(b: Bench, caplog: pytest.LogCaptureFixture) -> None:
    editor = await editor_of(b, Style.READ_ONLY)
    uri = editor.show(b.project / "a.py", f"{CODE}# kanarienvogel\n")
    with caplog.at_level("DEBUG", logger="qmlx_lsp"):
        await run(editor, "qmlx.explain", {"uri": uri})
        await run(editor, "qmlx.rewrite", {"uri": uri, "text": "kanarienvogel"}, token=2)
    assert "kanarienvogel" not in caplog.text
    told(editor)
    assert await editor.leave()
