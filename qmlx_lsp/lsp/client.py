"""What an editor can do, read once from its ``initialize``.

Invariant: what an editor does not say it can is not asked of it. The one exception is named: Helix 25.01 shows
documents and does not say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lsprotocol import types

HELIX = "helix"
NEOVIM = "neovim"


@dataclass(frozen=True, slots=True)
class Client:
    """``literals``: takes code actions that are more than commands. ``versions``: takes edits with a version;
    ``creates``: files as a part of them; ``unchecked_zero``: looks at every version but 0. ``panel``: shows what is
    streamed to it, so that no document is wanted. ``asks``:
    may ask its user for a text when an action needs one. ``block_cursor``: a range of one character is where its
    cursor stands. ``silent``: writes errors of commands to its log only."""

    name: str = ""
    literals: bool = False
    prefers: bool = False
    tags: bool = False
    versions: bool = False
    creates: bool = False
    annotates: bool = False
    refactors: bool = False
    unchecked_zero: bool = False
    shows_documents: bool = False
    panel: bool = False
    asks: bool = True
    block_cursor: bool = False
    silent: bool = False

    @classmethod
    def of(cls, params: types.InitializeParams) -> Client:
        """Nothing that is missing or odd makes this fail."""
        name = (params.client_info.name if params.client_info else "").lower()
        has = params.capabilities
        edit = has.workspace.workspace_edit if has.workspace else None
        action = has.text_document.code_action if has.text_document else None
        show = has.window.show_document if has.window else None
        operations = (edit.resource_operations if edit else None) or ()
        tags = (action.tag_support.value_set if action and action.tag_support else None) or ()
        return cls(
            name=name,
            # Helix asks for what is missing in an action and stands still until it has it; it needs a command only.
            literals=bool(action and action.code_action_literal_support) and name != HELIX,
            prefers=bool(action and action.is_preferred_support),
            tags=types.CodeActionTag.LlmGenerated in tags,
            # Neovim names the operations only, which cannot come without versions.
            versions=bool(edit and (edit.document_changes or operations)),
            creates=types.ResourceOperationKind.Create in operations,
            annotates=bool(edit and edit.change_annotation_support),
            refactors=bool(edit and edit.metadata_support),
            unchecked_zero=name == NEOVIM,
            shows_documents=bool(show and show.support) or name == HELIX,
            asks=name != HELIX,
            block_cursor=name == HELIX,
            silent=name == HELIX,
            panel=_own(has.experimental).get("panel") is True,
        )


def _own(experimental: Any) -> Mapping[str, Any]:
    """What an editor says of our own methods."""
    ours = experimental.get("qmlx") if isinstance(experimental, Mapping) else getattr(experimental, "qmlx", None)
    if isinstance(ours, Mapping):
        return ours
    return {"panel": getattr(ours, "panel", None)}
