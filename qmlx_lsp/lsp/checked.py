"""What checkers say of an editor's documents, as far as the editor lets us see it: with every look for code actions
it sends the diagnostics at that place.

Invariant: what was said of one version of a document is not said of another.
Invariant: what was not seen is not known: no diagnostics at one place do not mean that there are none.
"""

from __future__ import annotations

from collections.abc import Sequence

from lsprotocol import types

from qmlx_lsp.workspace.diagnostics import Diagnostic
from qmlx_lsp.workspace.mirror import canonical_uri


class Checked:
    """By document; ``version`` is the one that the editor shows, as the mirror knows it."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int | None, dict[Diagnostic, None]]] = {}

    def see(self, uri: str, version: int | None, found: Sequence[types.Diagnostic]) -> None:
        """An editor has shown us these."""
        key = canonical_uri(uri)
        known, seen = self._seen.get(key, (version, {}))
        if known != version:
            seen = {}
        seen |= dict.fromkeys(_diagnostic(one) for one in found)
        if seen:
            self._seen[key] = version, seen
        else:
            self._seen.pop(key, None)

    def of(self, uri: str, version: int | None) -> tuple[Diagnostic, ...] | None:
        """What is known of the document as it is; None for nothing."""
        known, seen = self._seen.get(canonical_uri(uri), (None, {}))
        return tuple(seen) if seen and known == version else None

    def forget(self, uri: str) -> None:
        """The document is closed."""
        self._seen.pop(canonical_uri(uri), None)


def _diagnostic(one: types.Diagnostic) -> Diagnostic:
    source = " ".join(str(part) for part in (one.source, one.code) if part not in (None, ""))
    message = str(getattr(one.message, "value", one.message))
    return Diagnostic(one.range.start.line + 1, int(one.severity or 1), message, source)
