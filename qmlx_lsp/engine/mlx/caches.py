"""What each cache class of mlx-lm holds, behind one adapter per class.

An adapter says which arrays are rows, which belong to the snapshot, how to mark and how to put back. A class
without an adapter works in the model but can be neither marked nor persisted; that is said once, by name.

Facts used (mlx-lm 0.32.2, ``models/cache.py``): ``KVCache`` keeps head-major ``[1, H, capacity, D]`` buffers that
are overwritten in place behind ``offset``. ``RotatingKVCache`` overwrites in place inside its window, and after a
pass of several rows holds more than the window, in temporal order. ``ArraysCache`` entries are replaced, never
changed in place, so a reference is a copy.

Invariant: after ``settle`` a cache is arranged exactly as a restore would arrange it. Rows in another order would
sum in another order, and the restored model would part from the live one by rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, KVCache, RotatingKVCache

Arrays = dict[str, mx.array]


class Adapter(Protocol):
    """How to handle one cache class. Names of arrays are local to the cache ("k", "v", "0" …)."""

    snapshot: bool  # whether the class needs a snapshot, or is rows only

    def position(self, cache: Any) -> int | None:
        """Tokens the cache says it has read, or None if it does not say."""

    def window(self, cache: Any) -> int | None:
        """The most rows the cache keeps, if it forgets."""

    def settle(self, cache: Any) -> None:
        """Arrange the cache as a restore would."""

    def mark(self, cache: Any) -> Any: ...

    def rewind(self, cache: Any, kept: Any) -> None: ...

    def rows(self, cache: Any) -> Arrays:
        """Row buffers ``[1, H, capacity, D]``; empty when the class has none or the cache has read nothing."""

    def whole(self, cache: Any) -> Arrays:
        """Arrays of the snapshot; the cache must be settled."""

    def install(self, cache: Any, arrays: Mapping[str, mx.array], position: int) -> None:
        """Put restored arrays (rows and snapshot, by local name) into a fresh cache."""


class _Rows:
    """KVCache: everything is rows."""

    snapshot = False

    def position(self, cache: KVCache) -> int | None:
        return int(cache.offset)

    def window(self, cache: KVCache) -> int | None:
        return None

    def settle(self, cache: KVCache) -> None:
        return None

    def mark(self, cache: KVCache) -> int:
        return int(cache.offset)

    def rewind(self, cache: KVCache, kept: int) -> None:
        cache.offset = kept  # rows behind it are overwritten by the next pass

    def rows(self, cache: KVCache) -> Arrays:
        return {} if cache.keys is None else {"k": cache.keys, "v": cache.values}

    def whole(self, cache: KVCache) -> Arrays:
        return {}

    def install(self, cache: KVCache, arrays: Mapping[str, mx.array], position: int) -> None:
        cache.keys, cache.values, cache.offset = arrays["k"], arrays["v"], position


class _Window:
    """RotatingKVCache: the last ``max_size`` rows (and the first ``keep``), whole."""

    snapshot = True

    def position(self, cache: RotatingKVCache) -> int | None:
        return int(cache.offset)

    def window(self, cache: RotatingKVCache) -> int | None:
        return int(cache.max_size)

    def settle(self, cache: RotatingKVCache) -> None:
        if cache.keys is None:
            return
        size = min(cache.offset, cache.max_size)
        for name in ("keys", "values"):
            ordered = cache._temporal_order(getattr(cache, name))
            surplus = ordered.shape[2] - size
            if surplus > 0:
                kept = [ordered[..., : cache.keep, :], ordered[..., cache.keep + surplus :, :]]
                ordered = mx.concatenate(kept, axis=2)
            setattr(cache, name, mx.contiguous(ordered))
        cache._idx = size

    def mark(self, cache: RotatingKVCache) -> Any:
        if cache.keys is None:
            return None
        # By value: a second array over the same memory makes the next write in place copy the (small) window first.
        return mx.array(cache.keys), mx.array(cache.values), cache.offset, cache._idx

    def rewind(self, cache: RotatingKVCache, kept: Any) -> None:
        if kept is None:
            cache.keys, cache.values, cache.offset, cache._idx = None, None, 0, 0
        else:
            keys, values, cache.offset, cache._idx = kept
            cache.keys, cache.values = mx.array(keys), mx.array(values)

    def rows(self, cache: RotatingKVCache) -> Arrays:
        return {}

    def whole(self, cache: RotatingKVCache) -> Arrays:
        return {} if cache.keys is None else {"k": cache.keys, "v": cache.values}

    def install(self, cache: RotatingKVCache, arrays: Mapping[str, mx.array], position: int) -> None:
        if arrays:
            cache.keys, cache.values = arrays["k"], arrays["v"]
            cache.offset, cache._idx = position, cache.keys.shape[2]


class _Recurrent:
    """ArraysCache: whole arrays, some of which may not exist yet."""

    snapshot = True

    def position(self, cache: ArraysCache) -> int | None:
        return None

    def window(self, cache: ArraysCache) -> int | None:
        return None

    def settle(self, cache: ArraysCache) -> None:
        # Shares memory when an array is contiguous already, which it nearly always is.
        cache.cache = [None if array is None else mx.contiguous(array) for array in cache.cache]

    def mark(self, cache: ArraysCache) -> Any:
        return list(cache.cache)

    def rewind(self, cache: ArraysCache, kept: Any) -> None:
        cache.cache = list(kept)

    def rows(self, cache: ArraysCache) -> Arrays:
        return {}

    def whole(self, cache: ArraysCache) -> Arrays:
        return {str(i): array for i, array in enumerate(cache.cache) if array is not None}

    def install(self, cache: ArraysCache, arrays: Mapping[str, mx.array], position: int) -> None:
        for name, array in arrays.items():
            cache.cache[int(name)] = array


# Exact classes: a subclass may hold more than its parent.
ADAPTERS: dict[type, Adapter] = {KVCache: _Rows(), RotatingKVCache: _Window(), ArraysCache: _Recurrent()}


def unknown_classes(caches: list[Any]) -> list[str]:
    """Names of the cache classes without an adapter, sorted, each once."""
    return sorted({type(cache).__name__ for cache in caches if type(cache) not in ADAPTERS})


def adapter(cache: Any) -> Adapter:
    """The adapter of ``cache``. Raises ValueError for a class that has none."""
    found = ADAPTERS.get(type(cache))
    if found is None:
        raise ValueError(f"no adapter for the cache class {type(cache).__name__}")
    return found
