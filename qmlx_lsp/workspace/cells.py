"""The notebooks that editors show: which cells they have, in which order, and how the whole reads.

The texts of the cells are documents of the mirror; here are their names and kinds. It must never raise on what a
client sends: what lies outside a notebook is clamped, and the notebook is marked.

Invariant: a notebook whose cells may be others than the editor's is marked ``synced=False`` until it is opened again.
Invariant: ``documents`` are all cells that its messages ever named, so that none stays when the notebook is closed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from qmlx_lsp.workspace.mirror import Mirror
from qmlx_lsp.workspace.notebook import MARKDOWN, Cells, places, script
from qmlx_lsp.workspace.uris import canonical_uri


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: the key of its document, and whether it is prose, whatever language that document has."""

    key: str
    prose: bool

    @classmethod
    def of(cls, uri: str, *, prose: bool) -> Cell:
        return cls(canonical_uri(uri), prose)


@dataclass(slots=True)
class Notebook:
    """One client's notebook. ``changed`` and ``opened`` are ticks, 0 for never."""

    client: Hashable
    uri: str
    version: int | None
    cells: list[Cell]
    synced: bool
    documents: set[str] = field(default_factory=set)
    changed: int = 0
    opened: int = 0

    def name(self, uri: str) -> None:
        """A message of the notebook has named that cell."""
        self.documents.add(canonical_uri(uri))


class Notebooks:
    """Open notebooks by client and URI, beside the mirror that holds the texts of their cells."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._held: dict[str, dict[Hashable, Notebook]] = {}
        self._tick = 0

    def open(self, client: Hashable, uri: str, version: int | None, cells: Sequence[Cell] | None) -> Notebook:
        """A client shows a notebook. Open twice replaces. ``cells`` is None when they are not known.

        An open that comes late, after a change of a higher version, lacks that change.
        """
        notebooks = self._held.setdefault(canonical_uri(uri), {})
        before = notebooks.get(client)
        late = before is not None and not before.opened and _older(version, before.version)
        fresh = Notebook(client, uri, version, list(cells or ()), cells is not None and not late)
        fresh.documents = {cell.key for cell in fresh.cells}
        fresh.opened = self._next()
        notebooks[client] = fresh
        for document in before.documents - fresh.documents if before else ():
            self._mirror.close(client, document)
        return fresh

    def change(self, client: Hashable, uri: str, version: int | None) -> Notebook | None:
        """The notebook that a change is for. None, and marked, when the change is older than what is held.

        A version may come twice: editors count a cell's text and the notebook's cells apart. Without an open before
        it, the cells are not known.
        """
        notebooks = self._held.setdefault(canonical_uri(uri), {})
        notebook = notebooks.get(client)
        if notebook is None:
            notebook = notebooks[client] = Notebook(client, uri, None, [], synced=False)
        if _older(version, notebook.version):
            notebook.synced = False
            return None
        notebook.version = version
        notebook.changed = self._next()
        return notebook

    def close(self, client: Hashable, uri: str) -> None:
        """A client shows the notebook no more, nor any of its cells."""
        key = canonical_uri(uri)
        notebooks = self._held.get(key, {})
        closed = notebooks.pop(client, None)
        if not notebooks:
            self._held.pop(key, None)
        for document in closed.documents if closed else ():
            self._mirror.close(client, document)

    def drop_client(self, client: Hashable) -> None:
        """A client is gone."""
        for key in list(self._held):
            self.close(client, key)

    # --- what can be read ---------------------------------------------------------------------------------------

    def texts(self) -> Iterator[tuple[str, str]]:
        """URI and text of everything that is open and known for certain, the most recently used first; of a
        notebook its script, in the place of its cells."""
        cells = {cell: key for key, held in self._held.items() for one in held.values() for cell in one.documents}
        keys: dict[str, None] = {}
        for uri in self._mirror.open_uris():
            key = cells.get(canonical_uri(uri))
            if key is None:
                document = self._mirror.document(uri)
                if document is not None and document.synced:
                    yield uri, document.text
            elif key not in keys:
                keys[key] = None
                yield from self._script(key)
        for key in self._held:
            if key not in keys:
                yield from self._script(key)

    def known(self, uri: str) -> bool:
        """Whether the notebook is open and all of it known."""
        return self._best(canonical_uri(uri)) is not None

    def of_cell(self, client: Hashable, uri: str) -> Notebook | None:
        """The client's notebook that has that cell."""
        key = canonical_uri(uri)
        mine = (held[client] for held in self._held.values() if client in held)
        return next((notebook for notebook in mine if key in notebook.documents), None)

    def lines(self, notebook: Notebook, uri: str) -> tuple[int, int] | None:
        """Where a cell's text stands in the notebook's script: the line before it, and how many lines it has. None
        when the script is not this client's, or has not got the cell."""
        key = canonical_uri(uri)
        best = self._best(canonical_uri(notebook.uri))
        place = next((at for at, cell in enumerate(notebook.cells) if cell.key == key), None)
        return places(best[1])[place] if best is not None and best[0] is notebook and place is not None else None

    def _script(self, key: str) -> Iterator[tuple[str, str]]:
        best = self._best(key)
        if best is not None:
            yield best[0].uri, script(best[1])

    def _best(self, key: str) -> tuple[Notebook, Cells] | None:
        """Where clients differ: the latest change, then the latest open, of those that are known for certain."""
        known = [(one, cells) for one in self._held.get(key, {}).values() if (cells := self._cells(one)) is not None]
        return max(known, key=lambda pair: (pair[0].changed, pair[0].opened), default=None)

    def _cells(self, notebook: Notebook) -> Cells | None:
        """Languages and texts of its cells; None when they are not known for certain."""
        cells = []
        for cell in notebook.cells if notebook.synced else ():
            document = self._mirror.copy(notebook.client, cell.key)
            if document is None or not document.synced:
                return None
            cells.append((MARKDOWN if cell.prose else document.language, document.text))
        return cells if notebook.synced else None

    def _next(self) -> int:
        self._tick += 1
        return self._tick


def _older(version: int | None, other: int | None) -> bool:
    return version is not None and other is not None and version < other


def splice(notebook: Notebook, start: int | None, delete: int | None, cells: Sequence[Cell] | None) -> None:
    """Puts ``cells`` in the place of ``delete`` cells from ``start`` on. What makes no sense marks the notebook."""
    if start is None or delete is None or cells is None:
        notebook.synced = False
        return
    total = len(notebook.cells)
    if start < 0 or delete < 0 or start + delete > total:
        notebook.synced = False
    first = min(max(start, 0), total)
    last = min(max(first + delete, first), total)
    notebook.cells[first:last] = cells
    notebook.documents.update(cell.key for cell in cells)


def recast(notebook: Notebook, cells: Sequence[Cell] | None) -> None:
    """Cells have become others of their kind (code has become prose). One that is not there marks the notebook."""
    if cells is None:
        notebook.synced = False
        return
    for cell in cells:
        if all(one.key != cell.key for one in notebook.cells):
            notebook.synced = False
        notebook.cells[:] = [cell if one.key == cell.key else one for one in notebook.cells]
