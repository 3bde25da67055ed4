"""The embedded model behind a real connector: an answer as a document, and what it proposes as an edit or an answer,
never as anything in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from qmlx_lsp.engine.mlx import embedded
from tests.support import corpus, fake_editor
from tests.support.commands import COMMAND, MESSAGE, call, ended, span, told
from tests.support.processes import Editor, home

CODE = "def add(a, b):\n    return a - b\n\n\nprint(add(1, 2))\n"
pytestmark = pytest.mark.model


@pytest.mark.timeout(400)
async def test_the_embedded_model_explains_and_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_editor, "WAIT_S", 300.0)
    embedded.ensure(corpus.models(), lambda *_report: None, lambda: False)
    async with home() as h:
        models = h.paths.models
        models.parent.mkdir(parents=True)
        models.symlink_to(corpus.models())
        h.environ |= {"QMLX_MODEL": "embedded", "QMLX_MAX_TOKENS": "30"}
        editor = await h.connect()
        editor.results["window/showDocument"] = {"success": True}
        editor.results["workspace/applyEdit"] = {"applied": False}
        file = h.project / "a.py"
        file.write_text(CODE)
        editor.open(file, CODE)
        about = {"uri": file.as_uri(), "range": span(0, 2)}
        await editor.request(COMMAND, call("qmlx.explain", about, workDoneToken="explain"))
        assert (await ended(editor, "explain")).startswith(("explain: answered", "explain: cut off"))
        wanted = {**about, "text": "It must add, not subtract."}
        await editor.request(COMMAND, call("qmlx.rewrite", wanted, workDoneToken="rewrite"))
        said = await ended(editor, "rewrite")
        assert said.startswith(("rewrite: not applied: ", "rewrite: cut off")), "this editor applies nothing"
        await editor.until(lambda m: m.get("method") == MESSAGE and m["params"]["message"] == said)
        assert len(list((h.paths.cache / "answers").glob("*/*.md"))) == 2
        assert told(editor)
        assert file.read_text() == CODE
        await types_in(editor, file)
        assert await editor.leave() == 0


async def types_in(editor: Editor, file: Path) -> None:
    """Completions know the conversation, read what was typed, and leave no trace."""
    turns = (await editor.request("qmlx/conversation", {}))["totals"]["turns"]
    read = []
    for column, typed in enumerate(("", " ", "a", "+"), 10):
        if typed:
            editor.change(file, column, fake_editor.edit(1, column - 1, column - 1, typed))
        where = {"textDocument": {"uri": file.as_uri()}, "position": {"line": 1, "character": column}}
        found = await editor.request("textDocument/inlineCompletion", {**where, "context": {"triggerKind": 2}})
        for item in found["items"]:
            assert item["range"]["end"] == where["position"]
            assert item["insertText"].strip()
        read.append((await editor.request("qmlx/status"))["inline"]["last"]["prefilled"])
    assert read[0] > 50, "the window around the cursor"
    assert max(read[1:]) <= 8
    assert (await editor.request("qmlx/conversation", {}))["totals"]["turns"] == turns
