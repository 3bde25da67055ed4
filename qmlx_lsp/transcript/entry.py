"""One thing the conversation was told, frozen together with the token ids it became.

Invariant: an entry is never edited. A changed file, a withdrawn question, an interrupted reply are new entries
or the final form of the newest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The closed set of things a conversation can be told."""

    SYSTEM = "system"
    CONTEXT = "context"
    QUESTION = "question"
    ASSISTANT = "assistant"


class Finish(StrEnum):
    """How a reply ended. ``OPEN`` is only ever seen on disk: a reply that is being streamed (or was, at a crash)."""

    OPEN = "open"
    COMPLETE = "complete"
    CANCELLED = "cancelled"
    LENGTH = "length"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Entry:
    """``ids``, a tuple or ``PackedIds``, occupy ``[start, end)`` of the token log.

    For a reply, ``ids`` begin with the template's reply header and go on with exactly the generated ids; ``text``
    is what a person reads. ``path`` is the file a context entry is about, relative to the root. ``tool`` is the tool
    whose call a context entry answers, when it stands in the template's tool role.
    """

    kind: Kind
    text: str
    ids: Sequence[int]
    start: int
    finish: Finish | None = None
    path: str | None = None
    tool: str | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.ids)
