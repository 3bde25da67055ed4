"""One live state of the real backend: caches, where they stand, and how they go back and forth.

Everything here is used on the engine thread, inside its stream.

Invariant: a mark that can no longer be honoured is refused. Going back to a position for good makes every mark beyond
it worthless, because the rows behind it are overwritten.
Invariant: what was lifted is laid back bit by bit as it was, or not at all.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generation_stream

from qmlx_lsp.engine.backend import Lifted, Mark
from qmlx_lsp.engine.mlx.caches import ADAPTERS, adapter, parts, unknown_classes


class Kept:
    """What a mark keeps of every part of the caches; None once the mark is worthless. ``logits`` as in ``Live``."""

    def __init__(self, position: int, caches: list[Any], logits: mx.array | None) -> None:
        self.position = position
        self.caches: list[Any] | None = caches
        self.logits = logits


@dataclass(frozen=True, slots=True)
class Taken:
    """What ``lift`` keeps: a mark of where the state stood, the marks that were there, and the rows of every part, if
    they were copied; else how many ``writes`` the state had seen."""

    end: Kept
    marks: list[Kept]
    rows: list[dict[str, mx.array]] | None
    writes: int


class Live:
    """One conversation's caches, how many tokens they have read, and the marks that can be gone back to.

    ``logits`` ``[1, V]`` are those of the next token, where they were asked for. ``writes`` counts what has written
    rows.
    """

    def __init__(self, caches: list[Any], position: int) -> None:
        self.caches = caches
        self.position = position
        self.marks: weakref.WeakSet[Kept] = weakref.WeakSet()
        self.logits: mx.array | None = None
        self.writes = 0

    def begin(self) -> None:
        """A pass is about to be made."""
        self.logits = None
        self.writes += 1

    def kept(self) -> Kept:
        """Where the caches stand now."""
        return Kept(self.position, [adapter(c).mark(c) for c in parts(self.caches).values()], self.logits)

    def back(self, kept: Kept) -> None:
        """To where the caches stood; the marks are the caller's business."""
        assert kept.caches is not None
        for cache, held in zip(parts(self.caches).values(), kept.caches, strict=True):
            adapter(cache).rewind(cache, held)
        self.position, self.logits = kept.position, kept.logits

    def forget_beyond(self, position: int) -> None:
        """The marks beyond ``position`` are worthless from now on."""
        for other in [m for m in self.marks if m.position > position]:
            self.marks.discard(other)
            other.caches = other.logits = None  # frees what it held

    @property
    def undo_bytes(self) -> float:
        """What taking back one token costs in every step: the caches that a mark keeps by value."""
        if unknown_classes(self.caches):
            return float("inf")
        kept = [cache for cache in parts(self.caches).values() if adapter(cache).window(cache) is not None]
        return sum(array.nbytes for cache in kept for array in adapter(cache).whole(cache).values())

    def noted(self) -> Callable[[], None]:
        """What puts the caches back to where they stand now, once."""
        single = parts(self.caches).values()
        kept = [adapter(cache).mark(cache) for cache in single]

        def undo() -> None:
            for cache, held in zip(single, kept, strict=True):
                adapter(cache).rewind(cache, held)

        return undo

    def evaluate(self) -> None:
        mx.eval([cache.state for cache in self.caches])

    def check(self) -> None:
        for part, cache in parts(self.caches).items():
            if type(cache) not in ADAPTERS:
                continue
            found = adapter(cache).position(cache)
            if found is not None and found != self.position:
                raise AssertionError(f"cache {part} stands at {found}, the state at {self.position}")

    def cut(self, position: int) -> bool:
        """As the backend's."""
        single = parts(self.caches).values()
        if position > self.position or unknown_classes(self.caches) or any(adapter(c).snapshot for c in single):
            return False
        for cache in single:
            adapter(cache).rewind(cache, position)
        self.position, self.logits = position, None
        self.forget_beyond(position)
        self.check()
        return True

    def lift(self, mark: Mark, *, copy: bool) -> Lifted:
        """As the backend's."""
        back, end = good(self, mark), self.kept()
        beyond = [kept for kept in self.marks if kept.position > mark.position]
        taken = Taken(end, beyond, self._rows(mark.position, end.position) if copy else None, self.writes)
        self.marks.difference_update(beyond)
        self.back(back)
        self.check()
        return Lifted(mark.position, end.position, taken)

    def _rows(self, start: int, end: int) -> list[dict[str, mx.array]]:
        """Copies. Taken, not sliced: a view that is kept over the next pass makes MLX copy the whole buffer."""
        single = parts(self.caches).values()
        with mx.stream(generation_stream):
            between = mx.arange(start, end)
            copies = [{n: mx.take(array, between, axis=2) for n, array in adapter(c).rows(c).items()} for c in single]
            mx.eval(copies)
        return copies

    def lay(self, lifted: Lifted) -> bool:
        """As the backend's."""
        taken: Taken = lifted.kept
        if self.position != lifted.start or (taken.rows is None and taken.writes != self.writes):
            return False
        self.forget_beyond(lifted.start)
        if taken.rows is not None and lifted.end > lifted.start:
            self.writes += 1
            with mx.stream(generation_stream):
                for cache, kept_rows in zip(parts(self.caches).values(), taken.rows, strict=True):
                    for name, buffer in adapter(cache).rows(cache).items():
                        buffer[..., lifted.start : lifted.end, :] = kept_rows[name]
        self.back(taken.end)
        self.marks.update(taken.marks)
        self.evaluate()
        self.check()
        return True


def good(live: Live, mark: Mark) -> Kept:
    """What ``mark`` keeps. Raises ValueError when it can no longer be honoured."""
    kept: Kept | None = mark.kept
    if kept is None:
        raise ValueError("states of this model cannot be rewound")
    if kept not in live.marks or kept.caches is None:
        raise ValueError(f"the mark at {mark.position} is of another state, or lies behind a later rewind")
    return kept
