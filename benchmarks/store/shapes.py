"""Random states in the shapes of real models, through the product's own code: mlx-lm's caches, ``rows``, the store.

What a state holds is noise, and all layers of a kind share the same noise: copying, hashing, writing and reading
cost the same whatever the numbers are.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, KVCache, RotatingKVCache

from qmlx_lsp.engine.mlx import rows
from qmlx_lsp.state import StateCopy
from qmlx_lsp.storage.checkpoints import CheckpointStore, Key
from qmlx_lsp.storage.files import FileSystem
from qmlx_lsp.transcript.tokens import TokenLog

VOCAB = 150_000
TURN_TOKENS = 1_310  # a hundred of these make 131k


@dataclass(frozen=True)
class Shape:
    """``full`` layers of attention with ``heads`` × ``width``, ``windows`` more with the last ``window`` rows only,
    ``recurrent`` ones with two whole arrays of ``state`` (float32) and ``conv``."""

    name: str
    full: int
    heads: int
    width: int
    windows: int = 0
    window: int = 128
    recurrent: int = 0
    state: tuple[int, ...] = (1, 64, 128, 128)
    conv: tuple[int, ...] = (1, 3, 12_288)

    @property
    def fingerprint(self) -> bytes:
        return blake2b(self.name.encode(), digest_size=16).digest()

    @property
    def needs_snapshot(self) -> bool:
        return bool(self.windows or self.recurrent)

    @property
    def row_bytes(self) -> int:
        """Bytes of one token's rows."""
        return 2 * self.full * self.heads * self.width * 2

    def caches(self) -> list[Any]:
        """Fresh caches, as ``make_prompt_cache`` makes them for such a model."""
        return [
            *(KVCache() for _ in range(self.full)),
            *(RotatingKVCache(self.window) for _ in range(self.windows)),
            *(ArraysCache(2) for _ in range(self.recurrent)),
        ]


SHAPES = {
    "122b": Shape("Qwen3.5-122B-A10B", full=12, heads=2, width=256, recurrent=36),
    "oss": Shape("gpt-oss-20b", full=12, heads=8, width=64, windows=12),
    "7b": Shape("Qwen2.5-Coder-7B", full=28, heads=4, width=128),
}


class State:
    """Caches of ``shape`` that can stand at any position up to ``tokens``."""

    def __init__(self, shape: Shape, tokens: int) -> None:
        mx.random.seed(tokens)
        self.shape = shape
        self._rows = _noise((1, shape.heads, tokens, shape.width), mx.bfloat16)
        self._window = _noise((1, shape.heads, shape.window, shape.width), mx.bfloat16)
        self._whole = [_noise(shape.state, mx.float32), _noise(shape.conv, mx.bfloat16)]
        self.caches = shape.caches()

    def copy(self, start: int, end: int, *, snapshot: bool) -> StateCopy:
        """What the engine would hand over at ``end``, its rows from ``start`` on."""
        for cache in self.caches:
            if isinstance(cache, KVCache):
                cache.keys, cache.values, cache.offset = self._rows, self._rows, end
            elif isinstance(cache, RotatingKVCache):
                kept = min(end, self.shape.window)
                cache.keys = cache.values = self._window[..., :kept, :]
                cache.offset, cache._idx = end, kept
            else:
                cache.cache = list(self._whole)
        return rows.copy_state(self.caches, start, end, with_snapshot=snapshot and self.shape.needs_snapshot)

    def layout(self) -> rows.Layout:
        self.copy(1, 1, snapshot=False)
        return rows.layout(self.caches)


def _noise(shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    made = mx.random.uniform(shape=shape, dtype=dtype)
    mx.eval(made)
    return made


def layout(shape: Shape) -> rows.Layout:
    """What a restore expects of a checkpoint of ``shape``."""
    return State(shape, shape.window).layout()


def log_of(tokens: int, seed: int = 0) -> TokenLog:
    return TokenLog(random.Random(seed).choices(range(VOCAB), k=tokens))


def open_store(folder: Path, files: FileSystem | None = None) -> CheckpointStore:
    return CheckpointStore(folder, files=files, quota_bytes=1 << 40, free_floor_bytes=0, clock=time.time)


class Talk:
    """A conversation that is saved turn by turn, as a session saves it: only what is new, and what lies in too many
    small segments put into one at the next turn."""

    def __init__(self, store: CheckpointStore, shape: Shape, log: TokenLog) -> None:
        self._store = store
        self._state = State(shape, len(log))
        self._key = Key(shape.fingerprint, log, shape.needs_snapshot)
        self._end = 0
        self._merge: tuple[int, int] | None = None

    def save(self, end: int, *, snapshot: bool = True) -> int:
        """Save up to ``end``; returns the bytes written."""
        copy = self._state.copy(self._end, end, snapshot=snapshot)
        merged = self._state.copy(*self._merge, snapshot=False) if self._merge else None
        saved = self._store.save(self._key, copy, owner="me")
        self._end, self._merge = end, None
        if merged is not None:
            return saved.written + self._store.merge(self._key, merged, owner="me")
        self._merge = saved.merge
        return saved.written


def save_once(store: CheckpointStore, shape: Shape, log: TokenLog, copy: StateCopy) -> int:
    """Save a copy of a whole conversation; returns the bytes written."""
    return store.save(Key(shape.fingerprint, log, shape.needs_snapshot), copy).written


def save_all(
    store: CheckpointStore,
    shape: Shape,
    log: TokenLog,
    ends: Iterable[int],
    *,
    every_snapshot: bool,
    report: Callable[[int], None] = lambda _end: None,
) -> int:
    """Save at each of ``ends`` in turn; the snapshot at each, or at the last alone."""
    talk = Talk(store, shape, log)
    written = 0
    for end in ends:
        written += talk.save(end, snapshot=every_snapshot or end == len(log))
        report(end)
    return written


def restore(store: CheckpointStore, shape: Shape, log: TokenLog, wanted: rows.Layout) -> list[Any]:
    """Find, open, read and verify the longest checkpoint into fresh caches, as the engine does."""
    found = store.find(shape.fingerprint, log, needs_snapshot=shape.needs_snapshot, limit=len(log))[0]
    assert found.position == len(log), "the checkpoint at the end is there"
    caches = shape.caches()
    with store.open(found) as stored:
        rows.load_state(caches, stored, wanted)
    return caches
