"""What every connected editor has open, whatever order and spelling its messages come in.

It must never raise on a message, never let an older text win over a newer one, and never hold one document under
two spellings. It is used from one thread; what it hands out are immutable snapshots.

Invariant: a document is here as long as at least one client has it open (or has sent changes of it).
Invariant: a text that may be wrong is marked ``synced=False`` until a full text or an open replaces it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from qmlx_lsp.workspace.document import Change, Document, apply, without_lone_surrogates
from qmlx_lsp.workspace.positions import Encoding
from qmlx_lsp.workspace.uris import canonical_uri, path_to_uri, uri_to_path

__all__ = ["Mirror", "canonical_uri", "path_to_uri", "uri_to_path"]


@dataclass(slots=True)
class _Copy:
    """One client's copy of one document; ``changed`` and ``opened`` are ticks of the mirror, 0 for never."""

    document: Document
    has_text: bool
    opened: int = 0
    changed: int = 0

    def rank(self) -> tuple[bool, bool, int, int]:
        """Trustworthy before doubtful, then the latest change, then the latest open.

        An open is weaker than a change: the second editor that opens a file shows the disk, and that must not
        hide what the first has typed.
        """
        return self.document.synced, self.has_text, self.changed, self.opened


class Mirror:
    """Open documents by client and URI. URIs may come in any spelling; a client is any hashable value."""

    def __init__(self) -> None:
        self._copies: dict[str, dict[Hashable, _Copy]] = {}
        self._used: dict[str, int] = {}
        self._tick = 0

    def open(self, client: Hashable, uri: str, language: str, version: int | None, text: str) -> None:
        """A client shows a document. Open twice replaces.

        An open that comes late, after a full text of a higher version, does not win: only its language is taken.
        After a ranged change of a higher version its text is taken, but is known to lack that change.
        """
        key, tick = self._use(uri)
        document = Document(uri, language, version, without_lone_surrogates(text))
        early = self._copies.get(key, {}).get(client)
        if early and not early.opened and _below(version, early.document.version):
            if early.has_text:
                early.document = early.document.named(uri, language)
                early.opened = tick
                return
            document = document.doubtful()
        self._copies.setdefault(key, {})[client] = _Copy(document, has_text=True, opened=tick)

    def change(
        self, client: Hashable, uri: str, version: int | None, changes: Sequence[Change], encoding: Encoding
    ) -> None:
        """A client's document has changed; ``changes`` apply in order.

        A version that does not increase is dropped and marks the document, for one of the two was lost. Without
        an open before it, a full text is taken, and ranges before the first full text are only remembered as missed.
        """
        key, tick = self._use(uri)
        copies = self._copies.setdefault(key, {})
        copy = copies.get(client)
        if copy is None:
            copy = copies[client] = _Copy(Document(uri, "", None, "", synced=False), has_text=False)
        if not changes and not _above(version, copy.document.version):
            return
        if not _above(version, copy.document.version):
            copy.document = copy.document.doubtful()
            return
        if not copy.has_text:
            changes = _from_full_text(changes)
            copy.has_text = bool(changes)
        copy.document = apply(copy.document, changes, version, encoding)
        if changes:
            copy.changed = tick

    def missed(self, client: Hashable, uri: str, version: int | None) -> None:
        """A client's document has changed in a way that could not be understood."""
        key, _ = self._use(uri)
        copies = self._copies.setdefault(key, {})
        copy = copies.get(client)
        if copy is None:
            copies[client] = _Copy(Document(uri, "", version, "", synced=False), has_text=False)
        else:
            late = not _above(version, copy.document.version)
            copy.document = copy.document.doubtful(None if late else version)

    def close(self, client: Hashable, uri: str) -> None:
        """A client shows the document no more; another client's text, or else the disk, is the truth again."""
        self._remove(canonical_uri(uri), client)

    def drop_client(self, client: Hashable) -> None:
        """A client is gone, and with it everything it had open."""
        for key in list(self._copies):
            self._remove(key, client)

    def touch(self, client: Hashable, uri: str) -> None:
        """The client's user looks at the document: it is the most recently used. Nothing if it is not open there."""
        if client in self._copies.get(canonical_uri(uri), {}):
            self._use(uri)

    def uris(self, client: Hashable) -> list[str]:
        """The documents that a client has open."""
        return [uri for uri, copies in self._copies.items() if client in copies]

    def copy(self, client: Hashable, uri: str) -> Document | None:
        """The text as that client has it, ``None`` if it has the document not open."""
        copy = self._copies.get(canonical_uri(uri), {}).get(client)
        return copy.document if copy else None

    def document(self, uri: str) -> Document | None:
        """The text that counts, or ``None`` if nobody has the document open.

        Where clients differ, the latest change wins; then the latest open.
        """
        copies = self._copies.get(canonical_uri(uri))
        return max(copies.values(), key=_Copy.rank).document if copies else None

    def open_uris(self) -> list[str]:
        """The open documents, the most recently used first, spelled as in their ``Document.uri``."""
        documents = (self.document(key) for key in sorted(self._copies, key=self._used.__getitem__, reverse=True))
        return [document.uri for document in documents if document]

    def _use(self, uri: str) -> tuple[str, int]:
        key = canonical_uri(uri)
        self._tick += 1
        self._used[key] = self._tick
        return key, self._tick

    def _remove(self, key: str, client: Hashable) -> None:
        copies = self._copies.get(key, {})
        copies.pop(client, None)
        if not copies:
            # Nothing is kept of a document that nobody has open, or a long day would fill the memory.
            self._copies.pop(key, None)
            self._used.pop(key, None)


def _below(version: int | None, other: int | None) -> bool:
    return version is not None and other is not None and version < other


def _above(version: int | None, other: int | None) -> bool:
    """Whether a change of ``version`` may follow ``other``; a client that does not count is believed."""
    return version is None or other is None or version > other


def _from_full_text(changes: Sequence[Change]) -> Sequence[Change]:
    """The changes from the first full text on; nothing is known of the text the ones before it applied to."""
    first = next((at for at, change in enumerate(changes) if change.range is None), len(changes))
    return changes[first:]
