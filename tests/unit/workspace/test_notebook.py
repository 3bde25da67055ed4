"""A notebook as a script: from cells, from JSON, and where its cells stand in it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from qmlx_lsp.workspace.notebook import OPEN_CHARS_MAX, as_script, cells_in, places, script, shown_as_text


def notebook(*cells: dict[str, Any], **metadata: Any) -> str:
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def code(source: Any, **more: Any) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "metadata": {}, "outputs": [], "execution_count": None, **more}


def prose(source: Any, kind: str = "markdown") -> dict[str, Any]:
    return {"cell_type": kind, "source": source, "metadata": {}}


@pytest.mark.parametrize(
    ("cells", "want"),
    [
        ([], ""),
        ([("python", "")], "# %%\n"),
        ([("python", "x = 1")], "# %%\nx = 1\n"),
        ([("python", "x = 1\n")], "# %%\nx = 1\n\n"),
        ([("python", "a\r\nb\rc")], "# %%\na\nb\nc\n"),
        ([("python", "s = 'a\u2028b\x0c'")], "# %%\ns = 'a\u2028b\x0c'\n"),
        ([("markdown", "# Title\n\ntext")], "# %% [markdown]\n# # Title\n#\n# text\n"),
        ([("markdown", "# %%\nimport os")], "# %% [markdown]\n# # %%\n# import os\n"),
        ([("raw", "x")], "# %% [raw]\n# x\n"),
        ([("SQL", "select 1")], "# %% [sql]\nselect 1\n"),
        ([("a\nb", "")], "# %% [a b]\n"),
        ([("", "1"), ("python", "2")], "# %%\n1\n# %%\n2\n"),
    ],
)
def test_script_of_cells(cells: list[tuple[str, str]], want: str) -> None:
    assert script(cells) == want


def test_places_are_where_the_texts_stand() -> None:
    cells = [("python", "a\nb"), ("markdown", ""), ("markdown", "T\n\nu\n"), ("python", "c")]
    lines = script(cells).split("\n")
    assert places(cells) == [(1, 2), (4, 0), (5, 4), (10, 1)]
    assert lines[1:3] == ["a", "b"]
    assert lines[5:9] == ["# T", "#", "# u", "#"]
    assert lines[10] == "c"


def test_json_gives_cells_and_nothing_else() -> None:
    secret = {"output_type": "stream", "text": ["SECRET"]}
    text = notebook(
        prose(["# T\n", "x"]),
        code(["a\n", "b"], outputs=[secret], execution_count=77, id="SECRET", metadata={"tags": ["SECRET"]}),
        code("select", metadata={"vscode": {"languageId": "sql"}}),
        prose("r", "raw"),
        kernelspec={"display_name": "SECRET", "language": "python", "name": "SECRET"},
    )
    assert as_script(text) == "# %% [markdown]\n# # T\n# x\n# %%\na\nb\n# %% [sql]\nselect\n# %% [raw]\n# r\n"
    assert as_script("\ufeff" + text) == as_script(text)


@pytest.mark.parametrize(
    ("metadata", "language"),
    [
        ({}, "python"),
        ({"language_info": {"name": "R"}, "kernelspec": {"language": "python"}}, "r"),
        ({"kernelspec": {"language": "Julia"}}, "julia"),
        ({"language_info": {"name": "C#"}}, "csharp"),
        ({"language_info": {"name": "c++17"}}, "cpp"),
        ({"language_info": None, "kernelspec": []}, "python"),
        ({"language_info": {"name": 5}}, "python"),
    ],
)
def test_language_of_code_is_the_kernels_as_editors_name_it(metadata: dict[str, Any], language: str) -> None:
    assert cells_in(notebook(code("x"), **metadata)) == [(language, "x")]


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "null", "7", '{"cells": 1}', '{"cells": {}}', '{"worksheets": []}', "[" * 100_000,
        notebook({"cell_type": "code"}), notebook(code(5)), notebook(code(["a", 5])), notebook(prose("x", "heading")),
        '{"cells": [3]}', '{"cells": [], "n": ' + "9" * 5000 + "}",
    ],
)  # fmt: skip
def test_what_is_no_notebook_is_the_text_that_it_is(text: str) -> None:
    assert as_script(text) is None
    assert shown_as_text("a.ipynb", text) == text


def test_lone_surrogates_become_characters_that_can_be_told() -> None:
    assert (
        as_script('{"cells": [{"cell_type": "code", "source": "a\\ud800b \\ud83d\\ude00"}]}') == "# %%\na\ufffdb 😀\n"
    )


def test_only_notebooks_are_read_as_such_and_only_while_they_are_small() -> None:
    text = notebook(code("x"))
    assert shown_as_text("a.json", text) == text
    assert shown_as_text("a.ipynb", text) == "# %%\nx\n"
    assert shown_as_text("a.ipynb", "# %%\nx\n") == "# %%\nx\n"
    assert shown_as_text("a.ipynb", text + " " * OPEN_CHARS_MAX) is None
