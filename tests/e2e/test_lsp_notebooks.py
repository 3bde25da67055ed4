"""Notebooks as VS Code sends them: cells are documents, the model is told one script, outputs are never told."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from qmlx_lsp.session import sight
from qmlx_lsp.transcript.entry import Kind
from tests.support.bench import Bench, bench
from tests.support.fake_editor import CLIENT_NAMES, InMemory, edit, initialize_params

CODE, MARKUP = 2, 1
CODE_TEXT = "x = 1\n" + "".join(f"line_{n} = {n}\n" for n in range(20))  # long enough that changes are diffs


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path) as made:
        yield made


class Notebook:
    """One notebook as VS Code speaks of it."""

    def __init__(self, editor: InMemory, file: Path, uri: str | None = None) -> None:
        self.editor = editor
        self.file = file
        self.uri = uri or file.as_uri()
        self.version = 0

    def cell(self, name: str) -> str:
        return f"vscode-notebook-cell:{self.file}#{name}"

    def item(self, name: str, text: str, language: str = "python", version: int = 1) -> dict[str, Any]:
        return {"uri": self.cell(name), "languageId": language, "version": version, "text": text}

    def entry(self, name: str, kind: int = CODE) -> dict[str, Any]:
        return {"kind": kind, "document": self.cell(name), "metadata": {"id": "SECRET"}}

    def open(self, *cells: tuple[str, int, str, str]) -> None:
        """``cells``: name, kind, language, text."""
        self.version += 1
        document = {
            "uri": self.uri, "notebookType": "jupyter-notebook", "version": self.version, "metadata": {"a": "SECRET"},
            "cells": [self.entry(name, kind) for name, kind, _, _ in cells],
        }  # fmt: skip
        items = [self.item(name, text, language) for name, _, language, text in cells]
        params = {"notebookDocument": document, "cellTextDocuments": items}
        self.editor.notify("notebookDocument/didOpen", params)

    def change(self, **cells: Any) -> None:
        self.version += 1
        document = {"uri": self.uri, "version": self.version}
        self.editor.notify("notebookDocument/didChange", {"notebookDocument": document, "change": {"cells": cells}})

    def type(self, name: str, version: int, *changes: Any) -> None:
        self.change(
            textContent=[{"document": {"uri": self.cell(name), "version": version}, "changes": list(changes)}]
        )

    def close(self, *names: str) -> None:
        cells = [{"uri": self.cell(name)} for name in names]
        params = {"notebookDocument": {"uri": self.uri}, "cellTextDocuments": cells}
        self.editor.notify("notebookDocument/didClose", params)


async def editor_of(b: Bench, client: str = "vscode-1.139") -> InMemory:
    editor = InMemory(b.app)
    await editor.initialize(initialize_params(client, b.project))
    return editor


async def held(editor: InMemory, file: str) -> Any:
    return (await editor.request("qmlx/context", {"file": file}))["text"]


def told(b: Bench) -> list[str]:
    return [entry.text for entry in b.entries() if entry.kind is Kind.CONTEXT]


def saved(*cells: tuple[str, str], output: str = "SECRET") -> str:
    outputs = [{"output_type": "stream", "name": "stdout", "text": [output]}]
    return json.dumps({
        "cells": [
            {"cell_type": kind, "id": "SECRET", "metadata": {}, "source": text.splitlines(keepends=True)}
            | ({"outputs": outputs, "execution_count": 7} if kind == "code" else {})
            for kind, text in cells
        ],
        "metadata": {"language_info": {"name": "python"}, "kernelspec": {"name": "SECRET"}},
        "nbformat": 4, "nbformat_minor": 5,
    })  # fmt: skip


@pytest.mark.parametrize("client", CLIENT_NAMES)
async def test_it_is_offered_to_who_knows_of_notebooks(b: Bench, client: str) -> None:
    editor = InMemory(b.app)
    params = initialize_params(client, b.project)
    offered = (await editor.initialize(params))["capabilities"].get("notebookDocumentSync")
    knows = "notebookDocument" in params["capabilities"]
    assert knows == (client == "vscode-1.139")
    assert offered == ({"notebookSelector": [{"notebook": "*"}], "save": True} if knows else None)
    assert await editor.leave()


async def test_opening_saving_and_closing_are_no_changes(b: Bench) -> None:
    file = b.project / "nb.ipynb"
    file.write_text(saved(("markdown", "# T\n\ntext"), ("code", CODE_TEXT)))
    await b.ask("Q", path=str(file))
    script = f"# %% [markdown]\n# # T\n#\n# text\n# %%\n{CODE_TEXT}\n"
    assert len(told(b)) == 1
    assert script in told(b)[0]
    editor = await editor_of(b)
    notebook = Notebook(editor, file)
    notebook.open(("a", MARKUP, "markdown", "# T\n\ntext"), ("b", CODE, "python", CODE_TEXT))
    assert await held(editor, "nb.ipynb") == script
    await editor.request("qmlx/ask", {"text": "Q", "textDocument": {"uri": notebook.cell("b")}})
    notebook.change(data=[notebook.entry("b") | {"executionSummary": {"executionOrder": 8, "success": True}}])
    file.write_text(saved(("markdown", "# T\n\ntext"), ("code", CODE_TEXT), output="SECRET too"))
    editor.notify("notebookDocument/didSave", {"notebookDocument": {"uri": notebook.uri}})
    await editor.request("qmlx/ask", {"text": "Q"})
    notebook.close("a", "b")
    await editor.request("qmlx/ask", {"text": "Q"})
    assert len(told(b)) == 1
    assert not any("SECRET" in entry.text for entry in b.entries())
    notebook.open(("a", MARKUP, "markdown", "# T\n\ntext"), ("b", CODE, "python", CODE_TEXT))
    notebook.type("b", 2, edit(0, 4, 5, "9"))
    await editor.request("qmlx/ask", {"text": "Q"})
    assert "-x = 1\n+x = 9\n" in told(b)[-1]
    notebook.close("a", "b")
    await editor.request("qmlx/ask", {"text": "Q"})
    assert "-x = 9\n+x = 1\n" in told(b)[-1]
    assert await editor.leave()


async def test_texts_structure_and_kinds(b: Bench) -> None:
    editor = await editor_of(b)
    notebook = Notebook(editor, b.project / "nb.ipynb")
    notebook.open(("a", CODE, "python", "😋 = 'a'"), ("b", CODE, "python", "b"))
    notebook.type("a", 2, edit(0, 2, 2, "x"), edit(0, 3, 3, "y"))
    assert await held(editor, "nb.ipynb") == "# %%\n😋xy = 'a'\n# %%\nb\n"
    array = {"start": 1, "deleteCount": 0, "cells": [notebook.entry("c", MARKUP)]}
    notebook.change(structure={"array": array, "didOpen": [notebook.item("c", "prose", "markdown")]})
    assert await held(editor, "nb.ipynb") == "# %%\n😋xy = 'a'\n# %% [markdown]\n# prose\n# %%\nb\n"
    # The last one moves to the front, and the one in the middle becomes code, of SQL.
    moved = {"start": 0, "deleteCount": 3, "cells": [notebook.entry(name) for name in ("b", "a", "c")]}
    again = [notebook.item("c", "select 1", "sql", version=2)]
    notebook.change(structure={"array": moved, "didOpen": again}, data=[notebook.entry("c")])
    assert await held(editor, "nb.ipynb") == "# %%\nb\n# %%\n😋xy = 'a'\n# %% [sql]\nselect 1\n"
    gone = {"array": {"start": 1, "deleteCount": 2}, "didClose": [{"uri": notebook.cell(name)} for name in "ac"]}
    notebook.change(structure=gone)
    assert await held(editor, "nb.ipynb") == "# %%\nb\n"
    notebook.type("b", 2, {"text": "whole"})
    assert await held(editor, "nb.ipynb") == "# %%\nwhole\n"
    assert b.app.registry.mirror.open_uris() == [notebook.cell("b")]
    assert await editor.leave()


async def test_asking_in_a_cell_is_asking_in_the_notebook(b: Bench) -> None:
    editor = await editor_of(b)
    notebook = Notebook(editor, b.project / "nb.ipynb")
    notebook.open(("a", CODE, "python", "one\ntwo"), ("b", CODE, "python", "three\nfour\nfive"), ("c", CODE, "x", ""))
    place = {"textDocument": {"uri": notebook.cell("b")}}

    async def ask(first: int, last: int) -> str:
        span = {"start": {"line": first, "character": 0}, "end": {"line": last, "character": 2}}
        await editor.request("qmlx/ask", {"text": "Q", **place, "range": span})
        return told(b)[-1]

    assert re.fullmatch("Lines 6-6 of nb.ipynb:\n```\\w*\nfour\n```\n", await ask(1, 1))
    assert "# %%\none\ntwo\n# %%\nthree\nfour\nfive\n# %% [x]\n" in told(b)[0]
    assert re.fullmatch("Lines 6-7 of nb.ipynb:\n```\\w*\nfour\nfive\n```\n", await ask(1, 2))
    assert (await ask(2, 400)).startswith("Lines 7-7 of nb.ipynb:\n")
    place = {"textDocument": {"uri": notebook.cell("c")}}
    before = len(told(b))
    await ask(0, 0)
    assert len(told(b)) == before, "an empty cell has no lines to point at"
    assert await editor.leave()


async def test_what_checkers_say_of_a_cell_is_told_by_the_scripts_lines(b: Bench) -> None:
    editor = await editor_of(b)
    notebook = Notebook(editor, b.project / "nb.ipynb")
    notebook.open(("a", CODE, "python", "one\ntwo"), ("b", CODE, "python", "three\nfour"))
    about = {"textDocument": {"uri": notebook.cell("b")}}
    place = {"start": {"line": 1, "character": 0}, "end": {"line": 1, "character": 2}}
    found = [{"range": place, "message": "four is undefined", "severity": 1}]
    await editor.request("textDocument/codeAction", {**about, "range": place, "context": {"diagnostics": found}})
    await editor.request("qmlx/ask", {"text": "Q", **about})
    assert told(b)[-1] == "Diagnostics of nb.ipynb:\n- line 6: error: four is undefined\n"
    assert "one\ntwo\n# %%\nthree\nfour\n" in told(b)[0]
    gone = {"array": {"start": 1, "deleteCount": 1}, "didClose": [{"uri": notebook.cell("b")}]}
    notebook.change(structure=gone)
    again = {"array": {"start": 1, "deleteCount": 0, "cells": [notebook.entry("b")]}}
    notebook.change(structure={**again, "didOpen": [notebook.item("b", "other")]})
    before = len(told(b))
    await editor.request("qmlx/ask", {"text": "Q", **about})
    assert not any(text.startswith("Diagnostics") and "undefined" in text for text in told(b)[before:])
    assert await editor.leave()


async def test_notebooks_without_a_file(b: Bench) -> None:
    editor = await editor_of(b)
    notebook = Notebook(editor, Path("Untitled-1.ipynb"), "untitled:Untitled-1.ipynb?jupyter-notebook")
    notebook.open(("a", CODE, "python", "new = 1"))
    await editor.request("qmlx/ask", {"text": "Q", "textDocument": {"uri": notebook.cell("a")}})
    assert "# %%\nnew = 1\n" in told(b)[-1]
    assert await editor.leave()


async def test_nonsense_marks_the_notebook_and_the_disk_is_told(b: Bench) -> None:
    file = b.project / "nb.ipynb"
    file.write_text(saved(("code", "disk")))
    editor = await editor_of(b)
    notebook = Notebook(editor, file)

    def fresh() -> None:
        notebook.open(("a", CODE, "python", "open"))

    for wrong in (
        {"structure": {"array": {"start": 5, "deleteCount": 0, "cells": []}}},
        {"structure": {"array": {"start": 0, "deleteCount": 9}}},
        {"structure": {"array": None}}, {"structure": 5}, {"structure": {}},
        {"structure": {"array": {"start": 0, "deleteCount": 0, "cells": [5]}}},
        {"structure": {"array": {"start": 0, "deleteCount": 0, "cells": [notebook.entry("never opened")]}}},
        {"structure": {"array": {"start": 0, "deleteCount": 1.5}}},
        {"data": [notebook.entry("unknown")]}, {"data": 5},
        {"textContent": [{"document": {"uri": notebook.cell("a"), "version": 2}, "changes": 5}]},
        {"textContent": [{"document": {"uri": notebook.cell("a"), "version": 2}, "changes": [{"range": 1}]}]},
        {"textContent": [{"document": {"uri": notebook.cell("a"), "version": 1}, "changes": [{"text": ""}]}]},
        {"textContent": [{"changes": [{"text": ""}]}]},
    ):  # fmt: skip
        fresh()
        assert await held(editor, "nb.ipynb") == "# %%\nopen\n"
        notebook.change(**wrong)
        assert await held(editor, "nb.ipynb") == "# %%\ndisk\n", wrong
    for method in ("didOpen", "didChange", "didSave", "didClose"):
        for params in (None, 5, [], {}, {"notebookDocument": 5}, {"notebookDocument": {"uri": 5}}):
            editor.notify(f"notebookDocument/{method}", params)
    other = Notebook(editor, b.project / "other.ipynb")
    other.change(structure={"array": {"start": 0, "deleteCount": 0, "cells": [other.entry("x")]}})
    other.type("x", 2, {"text": "x"})
    other.close()
    other.close("x")
    fresh()
    assert await held(editor, "nb.ipynb") == "# %%\nopen\n"
    assert b.app.registry.mirror.open_uris() == [notebook.cell("a")]
    assert await editor.leave()
    assert b.app.registry.mirror.open_uris() == []


async def test_outputs_count_for_nothing_and_limits_hold(b: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    file = b.project / "nb.ipynb"
    large = saved(("code", "x = 1"), output="S" * (b.settings.context.max_file_kb * 1024 + 1))
    file.write_text(large)
    editor = await editor_of(b)
    assert await held(editor, "nb.ipynb") == "# %%\nx = 1\n"
    monkeypatch.setattr(sight, "NOTEBOOK_BYTES_MAX", len(large) - 1)
    assert "0.5 MB" in (await editor.refused("qmlx/context", {"file": "nb.ipynb"}))[1]
    file.write_text(saved(("code", "y" * (b.settings.context.max_file_kb * 1024))))
    assert "0.5 MB" in (await editor.refused("qmlx/context", {"file": "nb.ipynb"}))[1]
    for text in ("{not json", '{"cells": [{"cell_type": "code"}]}', ""):
        file.write_text(text)
        assert await held(editor, "nb.ipynb") == text
    assert await editor.leave()


async def test_an_editor_that_shows_the_json(b: Bench) -> None:
    """Neovim knows no notebooks: what it shows is told as what the disk has, and so are its edits."""
    file = b.project / "nb.ipynb"
    text = saved(("code", CODE_TEXT))
    file.write_text(text)
    await b.ask("Q", path=str(file))
    editor = await editor_of(b, "neovim-0.12")
    editor.open(file, text)
    span = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 9}}
    await editor.request("qmlx/ask", {"text": "Q", "textDocument": {"uri": file.as_uri()}, "range": span})
    assert len(told(b)) == 1
    at = text.index("x = 1")
    editor.change(file, 2, edit(0, at, at + 1, "z"))
    await editor.request("qmlx/ask", {"text": "Q"})
    assert "-x = 1\n+z = 1\n" in told(b)[-1]
    assert await editor.leave()
