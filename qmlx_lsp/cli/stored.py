"""What the ``cache`` verbs have in common: where the store and the conversations are, if they are there at all.

It must never make either of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qmlx_lsp import paths
from qmlx_lsp.errors import QuestionError, StoreError
from qmlx_lsp.storage import upkeep
from qmlx_lsp.storage.conversations import Conversation, ConversationLog
from qmlx_lsp.storage.survey import Amount


def the_store(where: paths.Paths) -> Path:
    """The store's folder. Raises StoreError when there is none."""
    if not where.checkpoints.is_dir():
        raise StoreError(f"There are no checkpoints yet ({where.checkpoints}): ask something first.")
    return where.checkpoints


@contextmanager
def conversations(where: paths.Paths) -> Iterator[ConversationLog | None]:
    """The conversation log, read only; None when there is none yet. Raises StoreError."""
    if not where.conversations.exists():
        yield None
        return
    log = ConversationLog(where.conversations, clock=time.time, read_only=True)
    try:
        yield log
    finally:
        log.close()


def conversation_of(log: ConversationLog | None, given: str) -> Conversation:
    """The conversation of a project. Raises QuestionError when there is none."""
    root = str(paths.project(given))
    found = log.find(root) if log is not None else None
    if found is None:
        known = ", ".join(log.roots()) if log is not None else ""
        raise QuestionError(f"There is no conversation for {root}; there are ones for: {known or 'none'}.")
    return found


def all_lines(where: paths.Paths) -> list[upkeep.Line]:
    with conversations(where) as log:
        return upkeep.lines(log) if log is not None else []


def amounts(found: dict[str, Amount]) -> dict[str, Any]:
    return {name: some._asdict() for name, some in found.items()}
