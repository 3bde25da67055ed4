"""A notebook as one script, whether an editor shows its cells or the disk has its JSON. Pure.

The script is in the percent format, which models know from many repositories: ``# %%`` begins a cell of code,
``# %% [markdown]`` one of prose, whose lines are comments. They are comments so that the whole is a script, and so
that a line of prose can pass neither for code nor for the head of a cell. The sign is ``#`` in every language: what
the kernel speaks is not known of an open notebook, and must not make a difference. ``# %% [sql]`` begins code in
another language than Python.

What a notebook holds besides its cells' texts is never told: outputs, execution counts, metadata, ids.

Invariant: an editor's cells and the JSON it saves of them give the same script, so that opening, saving and closing
are no changes.
Invariant: nothing raises; JSON that is no notebook is the text that it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from qmlx_lsp.workspace.document import without_lone_surrogates
from qmlx_lsp.workspace.positions import all_lines, to_lf

SUFFIX = ".ipynb"
NOTEBOOK_BYTES_MAX = 16 << 20
"""Bytes of a notebook's JSON that are read at most; most of a large one are outputs."""

OPEN_CHARS_MAX = 1 << 20
"""Characters of a notebook's JSON that are read at most while an editor shows it as a text."""

HEAD = "# %%"
MARKDOWN, RAW, PYTHON = "markdown", "raw", "python"
_PROSE = (MARKDOWN, RAW)
_SHARP = re.compile(r"([a-z])#")
_CPP = re.compile(r"c\+\+\d*")

Cells = Sequence[tuple[str, str]]
"""Language and text of each cell."""


def is_notebook(path: str) -> bool:
    """Whether a file of that name is one."""
    return path.endswith(SUFFIX)


def script(cells: Iterable[tuple[str, str]]) -> str:
    """The script of cells of these languages and texts."""
    return "".join(_cell(language, text) for language, text in cells)


def places(cells: Cells) -> list[tuple[int, int]]:
    """Of each cell: the line of the script, from 1, of its head, behind which its text stands, and how many lines
    that has."""
    found, line = [], 1
    for language, text in cells:
        total = _cell(language, text).count("\n")
        found.append((line, total - 1))
        line += total
    return found


def _cell(language: str, text: str) -> str:
    language = language.lower()
    head = f"{HEAD}\n" if language in (PYTHON, "") else f"{HEAD} [{' '.join(language.split())}]\n"
    if not text:
        return head
    lines = all_lines(to_lf(text) + "\n")[:-1]
    if language in _PROSE:
        lines = ["#\n" if line == "\n" else f"# {line}" for line in lines]
    return head + "".join(lines)


def as_script(text: str) -> str | None:
    """The script of a notebook's JSON; None when ``text`` is no notebook."""
    cells = cells_in(text)
    return None if cells is None else script(cells)


@lru_cache(maxsize=4)
def _remembered(text: str) -> str | None:
    return as_script(text)


def shown_as_text(path: str, text: str) -> str | None:
    """What is told of a file that an editor shows as ``text``: the script of a notebook's JSON, or else the text.
    None where that takes too long to find out, for it is asked again and again."""
    if not is_notebook(path) or text.startswith(HEAD):
        return text
    if len(text) > OPEN_CHARS_MAX:
        return None
    found = _remembered(text)
    return text if found is None else found


def cells_in(text: str) -> Cells | None:
    """Languages and texts of the cells of a notebook's JSON (nbformat 4); None when it is none."""
    try:
        data = json.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not isinstance(data.get("cells"), list):
        return None
    language = _kernel_language(data.get("metadata"))
    cells = [_read(cell, language) for cell in data["cells"]]
    whole = [cell for cell in cells if cell is not None]
    return whole if len(whole) == len(cells) else None


def _read(cell: Any, kernel: str) -> tuple[str, str] | None:
    if not isinstance(cell, dict):
        return None
    kind, source = cell.get("cell_type"), cell.get("source")
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        source = "".join(source)
    if not isinstance(source, str):
        return None
    source = without_lone_surrogates(source)
    if kind in _PROSE:
        return kind, source
    own = _text(_object(_object(cell.get("metadata")).get("vscode")).get("languageId"))
    return (own or kernel, source) if kind == "code" else None


def _kernel_language(metadata: Any) -> str:
    """The language of code cells, by the name that editors give it."""
    about = _object(metadata)
    name = _text(_object(about.get("language_info")).get("name"))
    name = (name or _text(_object(about.get("kernelspec")).get("language")) or PYTHON).lower()
    if _CPP.fullmatch(name):
        return "cpp"
    return "python" if name in ("python2", "python3", "ipython") else _SHARP.sub(r"\1sharp", name)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return without_lone_surrogates(value) if isinstance(value, str) else ""
