"""Inline completions over the protocol: what comes back, and where nothing does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from qmlx_lsp.transcript.entry import Finish
from tests.support.bench import Bench, bench
from tests.support.completions import (
    AUTOMATIC,
    CODE,
    INLINE,
    INVOKED,
    LIST,
    at,
    editor_of,
    items,
    opened,
    ready,
    said,
    texts,
)
from tests.support.fake_editor import edit
from tests.support.waiting import until


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path) as made:
        yield made


async def test_item_has_the_whole_word_its_range_and_what_filters_it(b):
    editor, file = await opened(b, CODE)
    said(b, "um(items)\n\n\ndef other():\n")
    assert await items(editor, at(file, 1, 12)) == [
        {
            "insertText": "sum(items)",
            "filterText": "sum(items)",
            "range": {"start": {"line": 1, "character": 11}, "end": {"line": 1, "character": 12}},
        }
    ]
    assert await editor.leave()


async def test_no_trace_is_left_in_log_and_live_state(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, CODE)
    await b.ask("What is this?")
    session = await b.app.registry.session(b.project)
    entries, position = session.transcript.entries, session.live_position
    said(b, "um(items)\n")
    assert await texts(editor, at(file, 1, 12)) == ["sum(items)"]
    assert (session.transcript.entries, session.live_position) == (entries, position)
    assert b.backend.ids(session.live) == session.transcript.log.ids(0)
    assert (await b.ask("And now?")).usage.live == position
    assert await editor.leave()


async def test_the_prompt_is_what_follows_and_then_what_comes_before_behind_all_that_was_told(b):
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, CODE)
    await b.ask("What is this?")
    session = await b.app.registry.session(b.project)
    told = session.transcript.log.ids(0)
    read = []
    decode = b.backend.decode
    b.backend.decode = lambda state, *more, **options: (
        read.append(b.backend.ids(state)) or decode(state, *more, **options)
    )
    said(b, "um(items)\n")
    await texts(editor, at(file, 1, 12))
    (ids,) = read
    assert ids[: len(told)] == told
    prompt = session.model.renderer.codec.decode(ids[len(told) :])
    assert prompt == (
        "<|im_end|>\n<|im_start|>user\nGo on with a.py at the cursor. Behind the cursor's line stands:\n"
        "```python\n\n\nprint(total([]))\n```\n\n"
        "Answer with the code alone, from before the cursor on.<|im_end|>\n<|im_start|>assistant\n"
        "```python\ndef total(items):\n    return"
    ).removeprefix("<|im_end|>" * (ids[len(told) - 1] == session.model.renderer.codec.control("<|im_end|>")))
    assert await editor.leave()


async def test_keystrokes_read_what_was_typed_and_typing_through_reads_nothing(b):
    editor, file = await opened(b, CODE)
    said(b, "um(items)\n")
    assert await texts(editor, at(file, 1, 12)) == ["sum(items)"]
    rows, asked = b.backend.passes.rows, len("um(items)")
    for version, typed in enumerate("um(it", 2):
        editor.change(file, version, edit(1, 10 + version, 10 + version, typed))
        left = "um(items)"[version - 1 :]
        found = await items(editor, at(file, 1, 11 + version))
        assert found[0]["insertText"].endswith(left)
        assert found[0]["insertText"] in ("sum(items)", "items)")  # the word at the cursor is in it
    assert b.backend.passes.rows == rows
    said(b, "x\n")
    editor.change(file, 7, edit(1, 17, 17, "."))  # not what was shown
    await texts(editor, at(file, 1, 18))
    assert b.backend.passes.rows - rows < asked + len("sum(it.x\n")  # the prompt's end, and what was written
    assert b.app.registry.inline.counts["typed_through"] == 5
    assert await editor.leave()


async def test_deleting_back_shows_what_was_shown(b):
    editor, file = await opened(b, CODE)
    said(b, "um(items)\n")
    await texts(editor, at(file, 1, 12))
    editor.change(file, 2, edit(1, 12, 12, "um"))
    editor.change(file, 3, edit(1, 13, 14, ""))
    rows = b.backend.passes.rows
    assert await texts(editor, at(file, 1, 13)) == ["sum(items)"]
    assert b.backend.passes.rows == rows
    assert await editor.leave()


async def test_brackets_that_the_editor_closes_are_not_closed_again(b):
    editor, file = await opened(b, CODE)
    said(b, "um(items)\n")
    await texts(editor, at(file, 1, 12))
    editor.change(file, 2, edit(1, 12, 12, "um()"))
    assert await texts(editor, at(file, 1, 15)) == ["items"]
    said(b, "items)\n")
    other = b.project / "b.py"
    editor.open(other, "print(total())\n")
    assert await texts(editor, at(other, 0, 12)) == ["items"]
    assert await editor.leave()


async def test_selected_item_of_the_menu_is_where_it_goes_on(b):
    editor, file = await opened(b, "import os\nos.pa\n")
    said(b, ".join(a, pa\n")  # what it replaces does not stand behind it
    info = {"range": {"start": {"line": 1, "character": 3}, "end": {"line": 1, "character": 5}}, "text": "path"}
    (found,) = await items(editor, at(file, 1, 5, selectedCompletionInfo=info))
    assert (found["insertText"], found["range"]) == ("path.join(a, pa", info["range"])
    assert await editor.leave()


@pytest.mark.parametrize("client", ["neovim-0.12", "vscode-1.139", "emacs-30-eglot-1.17"])
async def test_ranges_count_in_the_editors_columns(b, client):
    editor = await editor_of(b, client)
    encoding = editor.messages[0]["result"]["capabilities"]["positionEncoding"]
    file = b.project / "a.py"
    before = "s = '😀é' + na"
    editor.open(file, before + "\n")
    await ready(b, editor)

    def width(text):
        return {"utf-8": len(text.encode()), "utf-16": len(text.encode("utf-16-le")) // 2, "utf-32": len(text)}[
            encoding
        ]

    said(b, "me\n")
    (found,) = await items(editor, at(file, 0, width(before)))
    assert found["insertText"] == "name"
    assert found["range"]["start"]["character"] == width(before[:-2])
    assert found["range"]["end"]["character"] == width(before)
    assert await editor.leave()


async def test_blocks_have_the_documents_line_ends_and_end_where_the_block_does(b):
    editor, file = await opened(b, "def f(x):\r\n    \r\n\r\ndef g():\r\n    pass\r\n")
    said(b, "if x:\n        return 1\n    return 2\n\ndef g():\n    pass\n")
    assert await texts(editor, at(file, 1, 4)) == ["if x:\r\n        return 1\r\n    return 2"]
    assert await editor.leave()


async def test_max_lines_and_the_switch_of_the_editor(b):
    editor, file = await opened(b, "def f(x):\n    \n", initializationOptions={"inline": {"maxLines": 2}})
    said(b, "a = 1\n    b = 2\n    c = 3\n    d = 4\n")
    assert await texts(editor, at(file, 1, 4)) == ["a = 1\n    b = 2"]
    editor.results["workspace/configuration"] = [{"inline": {"enable": False}}]
    editor.notify("workspace/didChangeConfiguration", {"settings": {"qmlx": {"inline": {"enable": False}}}})
    assert await texts(editor, at(file, 1, 4)) == []
    editor.notify("workspace/didChangeConfiguration", {"settings": {"qmlx": {"inline": {"maxLines": "no"}}}})
    await until(lambda: editor.of("window/showMessage"))
    shown = editor.of("window/showMessage")[0]["message"]
    assert shown == "qmlx.inline.maxLines is 'no', but must be a whole number from 1 to 1,000."
    assert await editor.leave()


# --- B33, B35: for the right text, or nothing ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [INVOKED, AUTOMATIC])
async def test_answer_for_a_text_that_has_changed_meanwhile_is_empty(b, kind):
    editor, file = await opened(b, "foo\n")
    said(b, "bar\n")
    number = editor.begin(INLINE, at(file, 0, 3, kind))
    editor.change(file, 2, edit(0, 0, 0, "import os\n"))
    assert await editor.result(number) == {"items": []}
    assert await editor.leave()


async def test_request_that_overtakes_its_change_is_empty(b):
    editor, file = await opened(b, "foo\n")
    number = editor.begin(INLINE, at(file, 3, 7))
    other = editor.begin(INLINE, at(file, 0, 4))
    editor.change(file, 2, edit(0, 3, 3, "\n\n\n1234567"))
    assert await editor.result(number) == {"items": []}
    assert await editor.result(other) == {"items": []}
    assert await editor.leave()


@pytest.mark.parametrize("kind", [INVOKED, AUTOMATIC])
@pytest.mark.parametrize(("text", "line", "column"), [("", 0, 0), ("a = ", 0, 4), ("x\n", 1, 0), ("x\n\n\n", 2, 0)])
async def test_every_item_has_a_range_in_its_line(b, kind, text, line, column):
    editor, file = await opened(b, text)
    said(b, "value(1)\n")
    (found,) = await items(editor, at(file, line, column, kind))
    here = {"line": line, "character": column}
    assert (found["insertText"], found["range"]) == ("value(1)", {"start": here, "end": here})
    assert await editor.leave()


async def test_lines_removed_after_the_request(b):
    editor, file = await opened(b, "one\ntwo\nthree\n")
    b.gate.hold("decode")
    number = editor.begin(INLINE, at(file, 2, 5))
    await b.gate.reached()
    places = {"start": {"line": 1, "character": 0}, "end": {"line": 3, "character": 0}}
    editor.change(file, 2, {"range": places, "text": ""})
    b.gate.open()
    assert await editor.result(number) == {"items": []}
    assert await editor.leave()


# --- where there is nothing to offer -------------------------------------------------------------------------------


async def test_private_and_foreign_files_and_unknown_documents_get_nothing(b):
    (b.project / ".qmlxignore").write_text("private/\n")
    editor = await editor_of(b)
    said_before = len(b.gate.passes)
    await ready(b, editor)
    for name in (".env", "private/a.py", "id_rsa"):
        editor.open(b.project / name, "KEY=")
        assert await texts(editor, at(b.project / name, 0, 4)) == []
    outside = b.project.parent / "other.py"
    editor.open(outside, "KEY=")
    assert await texts(editor, at(outside, 0, 4)) == []
    assert await texts(editor, at(b.project / "not-open.py", 0, 0)) == []
    assert len(b.gate.passes) == said_before
    assert await editor.leave()


async def test_what_becomes_private_is_private_at_the_next_keystroke(b):
    editor, file = await opened(b, "foo\n")
    rules = b.project / ".qmlxignore"
    for version, (text, shown) in enumerate(
        [("", 1), ("a.py\n", 0), ("b.py\n", 1), ("a.*\n", 0), (None, 1)], start=2
    ):
        if text is None:
            rules.unlink()
        elif text:
            rules.write_text(text)
        said(b, "bar\n")
        assert len(await texts(editor, at(file, 0, version + 1))) == shown, text
        editor.change(file, version, edit(0, version + 1, version + 1, "z"))
    assert await editor.leave()


@pytest.mark.parametrize("written", ["", "\n\n", "```\nThat is all.", "   \n", "print(total([]))\n"])
async def test_nonsense_is_nothing(b, written):
    editor, file = await opened(b, "x = 1\n\nprint(total([]))\n")
    said(b, written)
    assert await texts(editor, at(file, 1, 0)) == []
    assert await editor.leave()


async def test_an_error_of_the_model_is_nothing_and_the_next_one_works(b):
    editor, file = await opened(b, "foo\n")
    for kind, after in (("prefill", 0), ("prefill", 1), ("decode", 0), ("decode", 4)):
        said(b, "bar\n")
        b.gate.fail(kind, after)
        assert await texts(editor, at(file, 0, 3)) == []
    said(b, "bar\n")
    assert await texts(editor, at(file, 0, 3)) == ["foobar"]
    assert (await b.ask("Well?")).finish is Finish.COMPLETE
    assert await editor.leave()


async def test_lines_that_are_too_long_get_nothing(b):
    editor = await editor_of(b)
    file = b.project / "a.min.js"
    editor.open(file, "x" * 100_000)
    await ready(b, editor)
    assert await texts(editor, at(file, 0, 100_000)) == []
    assert await editor.leave()


# --- editors without inline completions ----------------------------------------------------------------------------


@pytest.mark.parametrize("client", ["helix-25.07", "neovim-0.11"])
async def test_one_item_in_the_list_of_those_that_do_not_know_it(b, client):
    editor = await editor_of(b, client)
    capabilities = editor.messages[0]["result"]["capabilities"]
    assert capabilities["completionProvider"] is not None
    file = b.project / "a.py"
    editor.open(file, CODE)
    await ready(b, editor)
    said(b, "um(items)\n")
    where = {"textDocument": {"uri": file.as_uri()}, "position": {"line": 1, "character": 12}}
    found = await editor.request(LIST, {**where, "context": {"triggerKind": 1}})
    (item,) = found["items"]
    assert found["isIncomplete"] is True
    assert item["label"] == "sum(items)"
    assert item["preselect"] is False
    assert item["textEdit"] == {
        "newText": "sum(items)",
        "range": {"start": {"line": 1, "character": 11}, "end": {"line": 1, "character": 12}},
    }
    assert await editor.leave()


async def test_those_that_know_it_get_no_list_and_the_list_can_be_switched_off(b):
    editor = await editor_of(b)
    capabilities = editor.messages[0]["result"]["capabilities"]
    assert capabilities.get("completionProvider") is None
    assert capabilities["inlineCompletionProvider"] is not None
    assert await editor.leave()
    helix = await editor_of(b, "helix-25.07", initializationOptions={"completion": {"list": False}})
    file = b.project / "a.py"
    helix.open(file, CODE)
    where = {"textDocument": {"uri": file.as_uri()}, "position": {"line": 1, "character": 12}}
    assert (await helix.request(LIST, where))["items"] == []
    assert await helix.leave()
