"""Edits of the model in documents, with editors that apply them, refuse them, throw them away, or say nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from qmlx_lsp.lsp import apply
from tests.support.applying import Applying, Style
from tests.support.bench import Bench, bench, quick
from tests.support.commands import COMMAND, call, ended, run, span, told
from tests.support.waiting import until

WARNING = 2
CODE = "import os\n\n\ndef f(x):\n    return x\n\n\ndef g(x):\n    return x\n"
NEW = "```python\ndef f(x):\n    return x + 1\n```\n"
DONE = CODE.replace("return x\n", "return x + 1\n", 1)
FOUND = {"range": span(4, 4), "message": "no such\nname", "source": "ruff", "code": "F821"}
KEPT = (Style.VSCODE, Style.HELIX, Style.NEOVIM)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for an editor that does nothing."""
    monkeypatch.setattr(apply, "FOLLOW_S", 0.3)
    monkeypatch.setattr(apply, "APPLY_S", 0.6)


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path, replies=[NEW] * 8) as made:
        (made.project / "a.py").write_text(CODE)
        yield made


async def editor_of(b: Bench, style: Style = Style.VSCODE, **more: Any) -> Applying:
    editor = Applying(b.app, style, more.pop("encoding", None))
    await editor.begin_as(b.project, **more)
    return editor


def at(uri: str, first: int = 3, last: int = 5, **more: Any) -> dict[str, Any]:
    return {"uri": uri, "range": span(first, last), "instruction": "add one", **more}


async def begun(b: Bench, editor: Applying, *arguments: Any, token: Any = "t") -> None:
    """Begin a rewrite, and return while the model writes."""
    b.gate.hold("decode", 3)
    await editor.request(COMMAND, call("qmlx.rewrite", *arguments, workDoneToken=token))
    await b.gate.reached()


# --- applied -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", [*KEPT, Style.SILENT])
async def test_only_the_line_that_differs_is_changed(b: Bench, style: Style) -> None:
    editor = await editor_of(b, style)
    uri = editor.show(b.project / "a.py", CODE)
    assert await run(editor, "qmlx.rewrite", at(uri)) == "rewrite: applied"
    assert editor.text(uri) == DONE
    *_, sent = editor.edits
    assert len(editor.edits) == (2 if style is Style.NEOVIM else 1)
    assert sent["label"] == "qmlx: rewrite"
    (change,) = sent["edit"]["documentChanges"]
    assert change["textDocument"] == {"uri": uri, "version": editor.buffers[uri][0] - 1}
    assert [(one["range"], one["newText"]) for one in change["edits"]] == [(span(4, 5), "    return x + 1\n")]
    assert told(editor) == []
    question = b.entries()[-2].text
    assert question.startswith("Change lines 4-5 of a.py: add one\n```python\ndef f(x):\n    return x\n```\n")
    assert b.entries()[-1].text == NEW
    await b.check()
    assert await editor.leave()


@pytest.mark.parametrize(
    ("command", "argument", "reply", "new"),
    [
        ("qmlx.document", {}, '```\ndef f(x):\n    """Gives it back."""\n    return x\n```',
         CODE.replace("f(x):\n", 'f(x):\n    """Gives it back."""\n')),
        ("qmlx.fix", {"diagnostic": FOUND}, NEW, DONE),
        ("qmlx.rewrite", {"text": "add one"}, "<<<<<<< SEARCH\ndef f(x):\nreturn x\n=======\n>>>>>>> REPLACE",
         None),
        ("qmlx.rewrite", {"text": "add one"},
         "a.py\n```\n<<<<<<< SEARCH\ndef g(x):\n    return x\n=======\ndef g(y):\n    return y\n>>>>>>> REPLACE\n```",
         CODE.replace("def g(x):\n    return x", "def g(y):\n    return y")),
        ("qmlx.rewrite", {"text": "add one"}, "def f(x):\n    return x + 1\n", None),
        ("qmlx.rewrite", {"text": "add one"}, NEW + NEW.replace("1", "2"), None),
        ("qmlx.rewrite", {"text": "add one"}, NEW + "So:\n```python\nprint(f(1))\n```\n", DONE),
        ("qmlx.rewrite", {"text": "add one"}, "```python\ndef f(x):\n", None),
        ("qmlx.rewrite", {"text": "add one"}, "<think>\n```\nno\n```\n</think>\n\n" + NEW, DONE),
        ("qmlx.rewrite", {"text": "add one"}, "```python\ndef f(x):\n    return x\n```\n", None),
    ],
)  # fmt: skip
async def test_every_kind_of_edit_and_of_answer(
    tmp_path: Path, command: str, argument: dict[str, Any], reply: str, new: str | None
) -> None:
    async with bench(tmp_path, replies=[reply]) as b:
        editor = await editor_of(b)
        uri = editor.show(b.project / "a.py", CODE)
        about = {"textDocument": {"uri": uri}, "range": span(3, 3), **argument}
        said = await run(editor, command, about)
        name = command.removeprefix("qmlx.")
        if new is None:
            assert said.startswith(f"{name}: not applied: ")
            assert editor.edits == []
            assert editor.text(uri) == CODE
            assert told(editor) == [(WARNING, said)]
            shown = Path(editor.shown[0].removeprefix("file://")).read_text()
            assert "Not applied: " in shown
            assert reply.rpartition("</think>")[2].strip() in shown
        else:
            assert said == f"{name}: applied"
            assert editor.text(uri) == new
            assert editor.shown == []
        if command == "qmlx.fix":
            assert b.entries()[-2].text.startswith("Fix lines 4-5 of a.py: line 5: no such name (ruff F821)\n```")
        assert await editor.leave()


@pytest.mark.parametrize("client", ["helix-25.01", "neovim-0.11", "vscode-1.139", "emacs-28-eglot-1.9"])
async def test_what_is_sent_is_what_the_editor_says_that_it_takes(b: Bench, client: str) -> None:
    editor = await editor_of(b, client=client)
    uri = editor.show(b.project / "a.py", CODE)
    assert await run(editor, "qmlx.rewrite", at(uri)) == "rewrite: applied"
    (sent,) = editor.edits
    annotated = client == "vscode-1.139"
    assert ("changeAnnotations" in sent["edit"]) is annotated
    assert ("metadata" in sent) is annotated
    (edit,) = sent["edit"]["documentChanges"][0]["edits"]
    assert ("annotationId" in edit) is annotated
    if annotated:
        assert sent["edit"]["changeAnnotations"] == {"qmlx": {"label": "qmlx: rewrite", "needsConfirmation": False}}
        assert edit["annotationId"] == "qmlx"
    assert await editor.leave()


async def test_an_editor_that_takes_no_versions(b: Bench) -> None:
    editor = await editor_of(b, capabilities={"window": {"workDoneProgress": True}})
    uri = editor.show(b.project / "a.py", CODE)
    assert await run(editor, "qmlx.rewrite", at(uri)) == "rewrite: applied"
    assert editor.edits == [
        {
            "label": "qmlx: rewrite",
            "edit": {"changes": {uri: [{"range": span(4, 5), "newText": "    return x + 1\n"}]}},
        }
    ]
    assert editor.text(uri) == DONE
    assert await editor.leave()


@pytest.mark.parametrize("end", ["\r\n", "\r", "mixed"])
async def test_line_ends_stay_what_they_are(b: Bench, end: str) -> None:
    text = CODE.replace("\n", end)
    new = DONE.replace("\n", end)
    if end == "mixed":
        text = CODE.replace("def f(x):\n", "def f(x):\r\n").replace("return x\n", "return x\r\n", 1)
        new = text.replace("return x\r\n", "return x + 1\r\n", 1)
    editor = await editor_of(b)
    uri = editor.show(b.project / "a.py", text)
    assert await run(editor, "qmlx.rewrite", at(uri)) == "rewrite: applied"
    assert editor.text(uri) == new
    assert await editor.leave()


async def test_a_last_line_without_an_end_stays_one(b: Bench) -> None:
    editor = await editor_of(b)
    uri = editor.show(b.project / "a.py", "def f(x):\r\n    return x")
    assert await run(editor, "qmlx.rewrite", at(uri, 0, 2)) == "rewrite: applied"
    assert editor.text(uri) == "def f(x):\r\n    return x + 1"
    assert await editor.leave()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-32"])
async def test_columns_are_counted_as_the_editor_counts(tmp_path: Path, encoding: str) -> None:
    text = "a = '👩\u200d💻'\nb = '소\u2028\x0c'"
    reply = "```\na = '👩\u200d💻'\nb = '소\u2028\x0c😋'\n```"
    async with bench(tmp_path, replies=[reply, "```\na = 1\n```"]) as b:
        editor = await editor_of(b, encoding=encoding)
        uri = editor.show(b.project / "a.py", text)
        assert await run(editor, "qmlx.rewrite", at(uri, 0, 2)) == "rewrite: applied"
        assert editor.text(uri) == "a = '👩\u200d💻'\nb = '소\u2028\x0c😋'"
        assert len(editor.edits[0]["edit"]["documentChanges"][0]["edits"]) == 1
        # The last line goes, and the end of the one before it with it.
        assert await run(editor, "qmlx.rewrite", at(uri, 0, 2), token=2) == "rewrite: applied"
        assert editor.text(uri) == "a = 1"
        assert await editor.leave()


async def test_a_cell_of_a_notebook(b: Bench) -> None:
    editor = await editor_of(b)
    cell = "vscode-notebook-cell:/n.ipynb#1"
    file = b.project / "n.ipynb"
    document = {
        "uri": file.as_uri(), "notebookType": "jupyter-notebook", "version": 1,
        "cells": [{"kind": 2, "document": cell}],
    }  # fmt: skip
    item = {"uri": cell, "languageId": "python", "version": 1, "text": "def f(x):\n    return x"}
    editor.buffers[cell] = 1, "def f(x):\n    return x"
    params = {"notebookDocument": document, "cellTextDocuments": [item]}
    editor.notify("notebookDocument/didOpen", params)
    assert await run(editor, "qmlx.rewrite", at(cell, 0, 0)) == "rewrite: applied"
    assert editor.text(cell) == "def f(x):\n    return x + 1"
    assert b.entries()[-2].text.startswith("Change lines 1-2 of a cell of n.ipynb: add one\n```python\ndef f(x):")
    assert await editor.leave()


# --- the text changes meanwhile ------------------------------------------------------------------------------------


@pytest.mark.parametrize("style", KEPT)
@pytest.mark.parametrize("typed", ["above", "below", "both"])
async def test_lines_that_have_moved_are_found(b: Bench, style: Style, typed: str) -> None:
    editor = await editor_of(b, style)
    uri = editor.show(b.project / "a.py", CODE)
    await begun(b, editor, at(uri))
    new = DONE
    if typed != "below":
        editor.type(uri, 0, 0, 0, "# one\n# two\n")
        new = "# one\n# two\n" + new
    if typed != "above":
        line = editor.text(uri).count("\n")
        editor.type(uri, line, 0, 0, "return x\n")
        new += "return x\n"
    b.gate.open()
    assert await ended(editor, "t") == "rewrite: applied"
    assert editor.text(uri) == new
    assert await editor.leave()


@pytest.mark.parametrize("style", KEPT)
async def test_lines_that_were_touched_are_left_alone(b: Bench, style: Style) -> None:
    editor = await editor_of(b, style)
    uri = editor.show(b.project / "a.py", CODE)
    await begun(b, editor, at(uri))
    editor.type(uri, 4, 11, 12, "y")
    b.gate.open()
    said = await ended(editor, "t")
    assert said == "rewrite: not applied: the lines have changed meanwhile"
    assert told(editor) == [(WARNING, said)]
    assert editor.edits == []
    assert "return x + 1" in Path(editor.shown[0].removeprefix("file://")).read_text()
    assert await editor.leave()


@pytest.mark.parametrize("style", KEPT)
async def test_b36_a_change_that_was_on_its_way(b: Bench, style: Style) -> None:
    """The editor has a newer text than the server when the edit comes: the edit is made anew for that."""
    editor = await editor_of(b, style)
    uri = editor.show(b.project / "a.py", CODE, version=4)

    def typed() -> None:
        editor.before_edit = None
        editor.type(uri, 0, 0, 0, "\n")

    editor.before_edit = typed
    assert await run(editor, "qmlx.rewrite", at(uri)) == "rewrite: applied"
    assert editor.text(uri) == "\n" + DONE
    assert [sent["edit"]["documentChanges"][0]["textDocument"]["version"] for sent in editor.edits] == [4, 5]
    assert told(editor) == []
    assert await editor.leave()


async def test_b36_as_it_was_reported(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["```\nXXXXX\n```"]) as b:
        editor = await editor_of(b)
        uri = editor.show(b.project / "fruit.txt", "apple\nbanana")
        editor.before_edit = lambda: (setattr(editor, "before_edit", None), editor.type(uri, 0, 0, 0, "\n"))[0]
        assert await run(editor, "qmlx.rewrite", at(uri, 0, 1)) == "rewrite: applied"
        assert editor.text(uri) == "\nXXXXX\nbanana"
        assert await editor.leave()


@pytest.mark.parametrize("style", KEPT)
async def test_a_change_of_the_lines_themselves_that_was_on_its_way(b: Bench, style: Style) -> None:
    editor = await editor_of(b, style)
    uri = editor.show(b.project / "a.py", CODE, version=4)
    editor.before_edit = lambda: editor.type(uri, 4, 4, 4, "await ")
    said = await run(editor, "qmlx.rewrite", at(uri))
    assert said == "rewrite: not applied: the lines have changed meanwhile"
    assert editor.text(uri) == CODE.replace("    return", "    await return", 1)
    assert told(editor) == [(WARNING, said)]
    assert await editor.leave()


async def test_somebody_who_never_stops_typing(b: Bench) -> None:
    editor = await editor_of(b)
    uri = editor.show(b.project / "a.py", CODE)
    editor.before_edit = lambda: editor.type(uri, 0, 0, 0, "#\n")
    said = await run(editor, "qmlx.rewrite", at(uri))
    assert said == "rewrite: not applied: the editor did not apply it"
    assert len(editor.edits) == apply.ATTEMPTS_MAX
    assert editor.text(uri) == "#\n" * apply.ATTEMPTS_MAX + CODE
    assert told(editor) == [(WARNING, said)]
    assert await editor.leave()


@pytest.mark.parametrize("typed", ["nothing", "before the first edit", "before the second", "into the lines"])
async def test_neovims_version_0_is_not_checked_so_it_is_made_to_count(b: Bench, typed: str) -> None:
    """What is done to a text that nobody has touched is not refused when somebody touches it just then, and what they
    have typed may not have been sent yet: Neovim waits for a pause."""
    editor = await editor_of(b, Style.NEOVIM)
    uri = editor.show(b.project / "a.py", CODE, version=0)
    come = 0

    def comes() -> None:
        nonlocal come
        come += 1
        if come == {"before the first edit": 1, "into the lines": 1, "before the second": 2}.get(typed):
            editor.holds_back = True
            line = 4 if typed == "into the lines" else 0
            editor.type(uri, line, 0, 0, "#\n")
            asyncio.get_running_loop().call_soon(editor.flush)

    editor.before_edit = comes
    said = await run(editor, "qmlx.rewrite", at(uri))
    first, *others = editor.edits
    nothing = {"range": span(0, 0), "newText": "", "annotationId": "qmlx"}
    assert first["edit"]["documentChanges"][0]["edits"] == [nothing]
    assert all(one["edit"]["documentChanges"][0]["textDocument"]["version"] > 0 for one in others)
    if typed == "into the lines":
        assert said == "rewrite: not applied: the lines have changed meanwhile"
        assert editor.text(uri) == CODE.replace("    return", "#\n    return", 1)
        assert told(editor) == [(WARNING, said)]
    else:
        assert said == "rewrite: applied"
        assert editor.text(uri) == ("" if typed == "nothing" else "#\n") + DONE
    assert await editor.leave()


async def test_a_change_in_the_wrong_place_is_seen(b: Bench) -> None:
    """An editor that checks nothing at all."""
    editor = await editor_of(b, client="emacs-28-eglot-1.9")
    editor._fits = lambda _edit: True  # type: ignore[method-assign]
    uri = editor.show(b.project / "a.py", CODE)
    editor.before_edit = lambda: editor.type(uri, 0, 0, 0, "\n")
    said = await run(editor, "qmlx.rewrite", at(uri))
    assert said.startswith(f"rewrite: not applied: {apply.UNCLEAR}; the answer is in ")
    assert told(editor) == [(WARNING, said)]
    assert len(editor.edits) == 1
    assert await editor.leave()


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("style", "why"),
    [
        (Style.DEAF, apply.UNANSWERED),
        (Style.READ_ONLY, "the editor did not apply it"),
        (Style.BROKEN, "the editor did not apply it (autocmd failed)"),
    ],
)
async def test_an_editor_that_does_not_apply_it(b: Bench, style: Style, why: str) -> None:
    editor = await editor_of(b, style)
    uri = editor.show(b.project / "a.py", CODE)
    said = await run(editor, "qmlx.rewrite", at(uri))
    assert said == f"rewrite: not applied: {why}"
    assert told(editor) == [(WARNING, said)]
    assert editor.text(uri) == CODE
    assert await run(editor, "qmlx.ask", {"text": "And now?"}, token=2) == "ask: answered"
    assert await editor.leave()


@pytest.mark.usefixtures("soon")
async def test_one_that_says_true_and_does_nothing(b: Bench) -> None:
    editor = await editor_of(b, Style.NEOVIM)
    uri = editor.show(b.project / "a.py", CODE, version=3)
    editor.buffers[uri] = 9, CODE  # its own count has gone on
    said = await run(editor, "qmlx.rewrite", at(uri))
    assert said == f"rewrite: not applied: {apply.UNSEEN}"
    assert told(editor) == [(WARNING, said)]
    assert await editor.leave()


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("when", ["while it is written", "when the edit comes"])
async def test_a_document_that_is_closed_meanwhile(b: Bench, when: str) -> None:
    editor = await editor_of(b, Style.DEAF)
    uri = editor.show(b.project / "a.py", CODE)
    if when == "when the edit comes":
        editor.before_edit = lambda: editor.hide(uri)
        said = await run(editor, "qmlx.rewrite", at(uri))
    else:
        await begun(b, editor, at(uri))
        editor.hide(uri)
        b.gate.open()
        said = await ended(editor, "t")
    assert said == f"rewrite: not applied: {apply.GONE}"
    assert told(editor) == [(WARNING, said)]
    assert (b.project / "a.py").read_text() == CODE
    assert await editor.leave()


async def test_b33_a_change_that_follows_the_command_at_once(b: Bench) -> None:
    """The range counts in the text that was shown when the command was sent, whatever is sent behind it."""
    editor = await editor_of(b)
    uri = editor.show(b.project / "a.py", CODE)
    number = editor.begin(COMMAND, call("qmlx.rewrite", at(uri), workDoneToken="t"))
    editor.type(uri, 0, 0, 0, "import re\n")
    await editor.result(number)
    assert await ended(editor, "t") == "rewrite: applied"
    assert editor.text(uri) == "import re\n" + DONE
    assert await editor.leave()


async def test_b35_ranges_outside_of_the_text(b: Bench) -> None:
    editor = await editor_of(b)
    uri = editor.show(b.project / "a.py", CODE)
    for token, (first, last) in enumerate(((7, 900), (900, 950), (900, 900))):
        await run(editor, "qmlx.rewrite", at(uri, first, last), token=token)
        assert editor.text(uri).startswith(CODE[: CODE.index("def g")])
    empty = editor.show(b.project / "empty.py", "")
    assert await run(editor, "qmlx.rewrite", at(empty, 0, 0), token="e") == "rewrite: applied"
    assert editor.text(empty) == "def f(x):\n    return x + 1\n"
    told(editor)
    assert await editor.leave()


@pytest.mark.usefixtures("soon")
async def test_b38_a_file_that_changed_on_the_disk_is_not_written(b: Bench) -> None:
    """The edit goes into what the editor shows, which is told as it is; the disk is the editor's to write."""
    editor = await editor_of(b)
    uri = editor.show(b.project / "a.py", CODE)
    await begun(b, editor, at(uri))
    (b.project / "a.py").write_text("another program's\n")
    b.gate.open()
    assert await ended(editor, "t") == "rewrite: applied"
    assert editor.text(uri) == DONE
    assert (b.project / "a.py").read_text() == "another program's\n"
    # What was not applied is not told as done.
    editor.style = Style.READ_ONLY
    await run(editor, "qmlx.rewrite", at(uri), token=2)
    await run(editor, "qmlx.ask", {"text": "Q", "uri": uri}, token=3)
    assert not any("x + 1 + 1" in entry.text for entry in b.entries())
    told(editor)
    assert await editor.leave()


# --- several at once -----------------------------------------------------------------------------------------------


async def test_two_edits_of_one_document(tmp_path: Path) -> None:
    replies = [NEW, "```\ndef g(x):\n    return x + 2\n```"]
    async with bench(tmp_path, replies=replies) as b:
        editor = await editor_of(b)
        uri = editor.show(b.project / "a.py", CODE)
        await begun(b, editor, at(uri), token=1)
        await editor.request(COMMAND, call("qmlx.rewrite", at(uri, 7, 9), workDoneToken=2))
        b.gate.open()
        assert await ended(editor, 1) == "rewrite: applied"
        assert await ended(editor, 2) == "rewrite: applied"
        assert editor.text(uri) == DONE.replace("def g(x):\n    return x\n", "def g(x):\n    return x + 2\n")
        assert await editor.leave()


async def test_two_edits_of_the_same_lines(b: Bench) -> None:
    editor = await editor_of(b)
    uri = editor.show(b.project / "a.py", CODE)
    await begun(b, editor, at(uri), token=1)
    await editor.request(COMMAND, call("qmlx.rewrite", at(uri), workDoneToken=2))
    b.gate.open()
    assert await ended(editor, 1) == "rewrite: applied"
    said = await ended(editor, 2)
    assert said == "rewrite: not applied: the lines have changed meanwhile"
    assert editor.text(uri) == DONE
    assert told(editor) == [(WARNING, said)]
    assert await editor.leave()


async def test_two_editors_with_different_texts_of_one_document(b: Bench) -> None:
    first, second = await editor_of(b), await editor_of(b, Style.NEOVIM)
    uri = first.show(b.project / "a.py", CODE)
    other = "# mine\n" + CODE
    second.show(b.project / "a.py", other, version=2)
    second.type(uri, 0, 0, 0, "# ")
    assert await run(first, "qmlx.rewrite", at(uri)) == "rewrite: applied"
    assert first.text(uri) == DONE
    assert second.edits == []
    assert await run(second, "qmlx.rewrite", at(uri, 4, 6)) == "rewrite: applied"
    assert second.text(uri) == "# # mine\n" + DONE
    assert len(first.edits) == 1
    assert await first.leave()
    assert await second.leave()


# --- cut off -------------------------------------------------------------------------------------------------------


async def test_a_cancelled_edit_changes_nothing_and_is_a_partial_turn(b: Bench) -> None:
    editor = await editor_of(b)
    uri = editor.show(b.project / "a.py", CODE)
    await begun(b, editor, at(uri))
    await editor.request(COMMAND, call("qmlx.cancel"))
    b.gate.open()
    assert await ended(editor, "t") == "rewrite: cancelled, nothing was changed"
    assert editor.edits == []
    assert b.entries()[-1].text == NEW[: len(b.entries()[-1].text)] != NEW
    assert told(editor) == []
    assert await run(editor, "qmlx.rewrite", at(uri), token=2) == "rewrite: applied"
    assert editor.text(uri) == DONE
    assert await editor.leave()


async def test_a_reply_that_is_too_long_changes_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path, quick(model={"max_tokens": len(NEW) - 4}), replies=[NEW]) as b:
        editor = await editor_of(b)
        uri = editor.show(b.project / "a.py", CODE)
        said = await run(editor, "qmlx.rewrite", at(uri))
        assert said == "rewrite: cut off at the longest reply that is allowed, nothing was changed"
        assert editor.edits == []
        assert told(editor) == [(WARNING, said)]
        assert len(editor.shown) == 1
        assert await editor.leave()


async def test_a_model_that_fails_changes_nothing(b: Bench) -> None:
    editor = await editor_of(b)
    uri = editor.show(b.project / "a.py", CODE)
    b.gate.fail("decode", 5)
    said = await run(editor, "qmlx.rewrite", at(uri))
    assert said.startswith("rewrite: broken off by an error (")
    assert said.endswith("), nothing was changed")
    assert editor.edits == []
    assert told(editor) == [(WARNING, said)]
    assert await run(editor, "qmlx.rewrite", at(uri), token=2) == "rewrite: applied"
    assert await editor.leave()


@pytest.mark.usefixtures("soon")
async def test_an_edit_that_was_sent_cannot_be_cancelled(b: Bench) -> None:
    editor = await editor_of(b, Style.DEAF)
    uri = editor.show(b.project / "a.py", CODE)
    await editor.request(COMMAND, call("qmlx.rewrite", at(uri), workDoneToken="t"))
    await until(lambda: editor.edits)
    assert await editor.request(COMMAND, call("qmlx.cancel")) == {"cancelled": []}
    assert await ended(editor, "t") == f"rewrite: not applied: {apply.UNANSWERED}"
    told(editor)
    assert await editor.leave()


async def test_a_connection_that_breaks_while_an_edit_is_out(b: Bench) -> None:
    editor = await editor_of(b, Style.DEAF)
    uri = editor.show(b.project / "a.py", CODE)
    await editor.request(COMMAND, call("qmlx.rewrite", at(uri)))
    await until(lambda: editor.edits)
    await asyncio.wait_for(editor.drop(), 20)
    assert b.entries()[-1].text == NEW
