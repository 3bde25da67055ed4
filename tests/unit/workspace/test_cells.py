"""Which cells open notebooks have, whatever clients send of them."""

from __future__ import annotations

import pytest

from qmlx_lsp.workspace.cells import Cell, Notebooks, recast, splice
from qmlx_lsp.workspace.document import Change
from qmlx_lsp.workspace.mirror import Mirror
from qmlx_lsp.workspace.positions import Encoding

NB = "file:///p/nb.ipynb"


class Held:
    """A mirror with notebooks; cells are named by letters, their texts are their names."""

    def __init__(self) -> None:
        self.mirror = Mirror()
        self.notebooks = Notebooks(self.mirror)

    def open(self, names: str, client: str = "one", version: int | None = 1, uri: str = NB) -> None:
        notebook = self.notebooks.open(client, uri, version, [cell(name) for name in names])
        for name in names:
            self.write(name, name, client)
            notebook.name(key(name))

    def write(self, name: str, text: str, client: str = "one", language: str = "python") -> None:
        self.mirror.open(client, key(name), language, 1, text)

    @property
    def texts(self) -> dict[str, str]:
        return dict(self.notebooks.texts())


def key(name: str) -> str:
    return f"vscode-notebook-cell:/p/nb.ipynb#{name}"


def cell(name: str, *, prose: bool = False) -> Cell:
    return Cell.of(key(name), prose=prose)


def code(*texts: str) -> str:
    return "".join(f"# %%\n{text}\n" for text in texts)


@pytest.fixture
def h() -> Held:
    return Held()


def test_cells_are_one_text_under_the_notebooks_name(h: Held) -> None:
    h.mirror.open("one", "file:///p/a.py", "python", 1, "a")
    h.open("xyz")
    assert h.texts == {NB: code("x", "y", "z"), "file:///p/a.py": "a"}
    assert list(h.texts) == [NB, "file:///p/a.py"]
    h.mirror.touch("one", "file:///p/a.py")
    assert list(h.texts) == ["file:///p/a.py", NB]
    h.mirror.touch("one", key("y"))
    assert list(h.texts) == [NB, "file:///p/a.py"]
    h.open("", uri="file:///p/empty.ipynb")
    assert h.texts["file:///p/empty.ipynb"] == ""


@pytest.mark.parametrize(
    ("start", "delete", "put", "want"),
    [
        (0, 0, "n", "nxyz"), (3, 0, "n", "xyzn"), (1, 1, "", "xz"), (1, 1, "nm", "xnmz"), (0, 3, "", ""),
        (1, 2, "zy", "xzy"), (0, 3, "zyx", "zyx"),
    ],
)  # fmt: skip
def test_cells_come_go_and_move(h: Held, start: int, delete: int, put: str, want: str) -> None:
    h.open("xyz")
    notebook = h.notebooks.change("one", NB, 2)
    assert notebook is not None
    splice(notebook, start, delete, [cell(name) for name in put])
    for name in set(put) - set("xyz"):
        h.write(name, name)
    assert h.texts == {NB: code(*want)}


@pytest.mark.parametrize(
    ("start", "delete", "put"),
    [(4, 0, "x"), (0, 4, ""), (-1, 1, ""), (0, -1, ""), (2**70, 2**70, ""), (None, 0, ""), (0, None, "")],
)
def test_what_lies_outside_marks_the_notebook_until_it_is_opened_again(
    h: Held, start: int | None, delete: int | None, put: str
) -> None:
    h.open("xyz")
    notebook = h.notebooks.change("one", NB, 2)
    assert notebook is not None
    splice(notebook, start, delete, [cell(name) for name in put])
    assert h.texts == {}
    assert not h.notebooks.known(NB)
    h.open("xy", version=3)
    assert h.texts == {NB: code("x", "y")}


def test_kinds_change(h: Held) -> None:
    h.open("xy")
    notebook = h.notebooks.change("one", NB, 2)
    assert notebook is not None
    recast(notebook, [cell("y", prose=True)])
    assert h.texts == {NB: "# %%\nx\n# %% [markdown]\n# y\n"}
    recast(notebook, [cell("q")])
    assert h.texts == {}


def test_a_cell_without_a_certain_text_hides_the_notebook(h: Held) -> None:
    h.open("xy")
    h.mirror.missed("one", key("y"), 2)
    assert h.texts == {}
    h.mirror.change("one", key("y"), 3, [Change("new")], Encoding.UTF16)
    assert h.texts == {NB: code("x", "new")}
    h.mirror.close("one", key("x"))
    assert h.texts == {}


def test_change_before_open_and_late_opens(h: Held) -> None:
    notebook = h.notebooks.change("one", NB, 5)
    assert notebook is not None
    notebook.name(key("x"))
    h.write("x", "x")
    assert h.texts == {}, "nobody has said which cells there are"
    h.open("x", version=4)
    assert h.texts == {}, "the change of version 5 was missed"
    h.open("x", version=6)
    assert h.texts == {NB: code("x")}


def test_versions_may_stand_but_not_go_back(h: Held) -> None:
    h.open("xy", version=5)
    assert h.notebooks.change("one", NB, 5) is not None
    assert h.texts == {NB: code("x", "y")}
    assert h.notebooks.change("one", NB, 4) is None
    assert h.texts == {}


def test_nothing_stays_of_closed_notebooks(h: Held) -> None:
    h.open("xyz")
    notebook = h.notebooks.change("one", NB, 2)
    assert notebook is not None
    splice(notebook, 0, 3, [])
    h.open("q", version=3)
    assert [uri[-1] for uri in h.mirror.open_uris()] == ["q"]
    h.notebooks.close("one", NB)
    h.notebooks.close("one", NB)
    assert h.mirror.open_uris() == []
    assert h.texts == {}
    h.open("xyz")
    h.notebooks.drop_client("one")
    assert h.mirror.open_uris() == []


def test_two_clients_with_cells_of_the_same_names(h: Held) -> None:
    h.open("xy", "one")
    h.open("yx", "two")
    assert h.texts == {NB: code("y", "x")}, "the latest open, where nobody has changed anything"
    h.notebooks.change("one", NB, 2)
    h.mirror.change("one", key("x"), 2, [Change("mine")], Encoding.UTF16)
    assert h.texts == {NB: code("mine", "y")}
    h.notebooks.drop_client("one")
    assert h.texts == {NB: code("y", "x")}


def test_lines_of_a_cell_in_the_script(h: Held) -> None:
    h.open("xyz")
    h.write("y", "1\n2\n3")
    notebook = h.notebooks.of_cell("one", key("y"))
    assert notebook is not None
    assert h.notebooks.lines(notebook, key("y")) == (3, 3)
    assert h.notebooks.lines(notebook, key("z")) == (7, 1)
    assert h.notebooks.lines(notebook, key("q")) is None
    assert h.notebooks.of_cell("two", key("y")) is None
    h.open("x", "two")
    assert h.notebooks.lines(notebook, key("y")) is None, "what is told is the other's"
