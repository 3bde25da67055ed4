"""What each cache class of mlx-lm holds, behind one adapter per class.

An adapter says which arrays are rows, which belong to the snapshot, how to mark and how to put back. A ``CacheList``
is no class of its own here: ``parts`` takes it apart, and every part has its adapter. A class without an adapter
works in the model but can be neither marked nor persisted; that is said once, by name. Nothing here may guess at a
class from its attributes: what a subclass adds would be lost without a word.

Facts used (mlx-lm 0.32.2, ``models/cache.py``): ``KVCache`` and ``QuantizedKVCache`` keep head-major
``[1, H, capacity, D]`` buffers that are overwritten in place behind ``offset``. ``RotatingKVCache`` overwrites in
place inside its window, and after a pass of several rows holds more than the window, in temporal order.
``ChunkedKVCache`` forgets only when the model asks it to, at the start of a pass: then all but the last
``chunk_size`` rows. ``ArraysCache`` entries are replaced, never changed in place, so a reference is a copy.

Invariant: after ``settle`` a cache is arranged exactly as a restore would arrange it. Rows in another order would
sum in another order, and the restored model would part from the live one by rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Protocol

import mlx.core as mx
from mlx_lm.models.cache import (
    ArraysCache,
    CacheList,
    ChunkedKVCache,
    KVCache,
    QuantizedKVCache,
    RotatingKVCache,
    make_prompt_cache,
)

Arrays = dict[str, mx.array]

KV_BITS = (4, 8)
KV_GROUP = 64  # values that share a scale and a bias; the width of a key must be a multiple of it


class Adapter(Protocol):
    """How to handle one cache class. Names of arrays are local to the cache ("k", "v", "0" …) and have no dot."""

    snapshot: ClassVar[bool]  # whether the class needs a snapshot, or is rows only

    def position(self, cache: Any) -> int | None:
        """Tokens the cache says it has read, or None if it does not say or no layer has used it."""

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
        """Put restored arrays (rows and snapshot, by local name; none for a cache that has read nothing) into a
        fresh cache."""


class _Rows:
    """KVCache: everything is rows."""

    snapshot: ClassVar[bool] = False

    def position(self, cache: Any) -> int | None:
        return None if cache.keys is None else int(cache.offset)

    def window(self, cache: Any) -> int | None:
        return None

    def settle(self, cache: Any) -> None:
        return None

    def mark(self, cache: Any) -> int:
        return int(cache.offset)

    def rewind(self, cache: Any, kept: int) -> None:
        cache.offset = kept  # rows behind it are overwritten by the next pass

    def rows(self, cache: Any) -> Arrays:
        if cache.keys is None:
            return {}
        # An indexer's values may have no width; there is nothing to store of them.
        return {name: array for name, array in (("k", cache.keys), ("v", cache.values)) if array.shape[3]}

    def whole(self, cache: Any) -> Arrays:
        return {}

    def install(self, cache: Any, arrays: Mapping[str, mx.array], position: int) -> None:
        if arrays:
            keys = arrays["k"]
            values = arrays["v"] if "v" in arrays else mx.zeros((*keys.shape[:3], 0), dtype=keys.dtype)
            cache.keys, cache.values, cache.offset = keys, values, position


class _QuantizedRows(_Rows):
    """QuantizedKVCache: the same, in three arrays for the keys and three for the values."""

    NAMES = ("{}", "{}_scales", "{}_biases")

    def rows(self, cache: Any) -> Arrays:
        if cache.keys is None:
            return {}
        return {
            name.format(kind): array
            for kind, arrays in (("k", cache.keys), ("v", cache.values))
            for name, array in zip(self.NAMES, arrays, strict=True)
        }

    def install(self, cache: Any, arrays: Mapping[str, mx.array], position: int) -> None:
        if arrays:
            cache.keys, cache.values = (tuple(arrays[name.format(kind)] for name in self.NAMES) for kind in "kv")
            cache.offset = position


class _Forgetful:
    """What the two classes that forget have in common: the rows they still know go into the snapshot, whole."""

    snapshot: ClassVar[bool] = True
    counters: ClassVar[tuple[str, str]]  # the attributes that say where the cache stands

    def position(self, cache: Any) -> int | None:
        return None if cache.keys is None else int(cache.offset)

    def mark(self, cache: Any) -> Any:
        if cache.keys is None:
            return None
        # By value: the next write in place copies the buffer first. A buffer that is about to be replaced costs none.
        counters = [getattr(cache, name) for name in self.counters]
        return mx.array(cache.keys), mx.array(cache.values), counters

    def rewind(self, cache: Any, kept: Any) -> None:
        if kept is None:
            cache.keys, cache.values, counters = None, None, (0, 0)
        else:
            keys, values, counters = kept
            cache.keys, cache.values = mx.array(keys), mx.array(values)  # the mark stays good
        for name, value in zip(self.counters, counters, strict=True):
            setattr(cache, name, value)

    def rows(self, cache: Any) -> Arrays:
        return {}

    def whole(self, cache: Any) -> Arrays:
        return {} if cache.keys is None else {"k": cache.keys, "v": cache.values}


class _Window(_Forgetful):
    """RotatingKVCache: the last ``max_size`` rows, of which the first ``keep`` of all are a part."""

    counters: ClassVar[tuple[str, str]] = ("offset", "_idx")

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

    def install(self, cache: RotatingKVCache, arrays: Mapping[str, mx.array], position: int) -> None:
        if arrays:
            cache.keys, cache.values = arrays["k"], arrays["v"]
            cache.offset, cache._idx = position, cache.keys.shape[2]


class _Chunk(_Forgetful):
    """ChunkedKVCache: the last ``chunk_size`` rows, which is what the next pass would leave of them."""

    counters: ClassVar[tuple[str, str]] = ("offset", "start_position")

    def window(self, cache: ChunkedKVCache) -> int | None:
        return int(cache.chunk_size)

    def settle(self, cache: ChunkedKVCache) -> None:
        if cache.keys is None:
            return
        end = cache.offset - cache.start_position
        size = min(end, cache.chunk_size)
        for name in ("keys", "values"):
            setattr(cache, name, mx.contiguous(getattr(cache, name)[..., end - size : end, :]))
        cache.start_position = cache.offset - size

    def install(self, cache: ChunkedKVCache, arrays: Mapping[str, mx.array], position: int) -> None:
        if arrays:
            cache.keys, cache.values = arrays["k"], arrays["v"]
            cache.offset, cache.start_position = position, position - cache.keys.shape[2]


class _Recurrent:
    """ArraysCache: whole arrays, some of which may not exist yet."""

    snapshot: ClassVar[bool] = True

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
ADAPTERS: dict[type, Adapter] = {
    KVCache: _Rows(),
    QuantizedKVCache: _QuantizedRows(),
    RotatingKVCache: _Window(),
    ChunkedKVCache: _Chunk(),
    ArraysCache: _Recurrent(),
}


def make_caches(model: Any, kv_bits: int = 0) -> list[Any]:
    """Fresh caches for ``model``. ``kv_bits`` other than 0 makes every KVCache a quantised one of so many bits."""
    caches = list(make_prompt_cache(model))
    return [_quantized(cache, kv_bits) for cache in caches] if kv_bits else caches


def _quantized(cache: Any, bits: int) -> Any:
    if type(cache) is CacheList:
        return CacheList(*(_quantized(part, bits) for part in cache.caches))
    return QuantizedKVCache(KV_GROUP, bits) if type(cache) is KVCache else cache


def parts(caches: Iterable[Any]) -> dict[str, Any]:
    """Every single cache by its name: "3" is that of layer 3, "3.1" the second one in the list that layer 3 has."""
    return dict(_parts(caches, ""))


def _parts(caches: Iterable[Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for number, cache in enumerate(caches):
        name = f"{prefix}{number}"
        if type(cache) is CacheList:
            yield from _parts(cache.caches, f"{name}.")
        else:
            yield name, cache


def unknown_classes(caches: Iterable[Any]) -> list[str]:
    """Names of the cache classes without an adapter, sorted, each once."""
    return sorted({type(cache).__name__ for cache in parts(caches).values() if type(cache) not in ADAPTERS})


def adapter(cache: Any) -> Adapter:
    """The adapter of one of the ``parts``. Raises ValueError for a class that has none."""
    found = ADAPTERS.get(type(cache))
    if found is None:
        raise ValueError(f"no adapter for the cache class {type(cache).__name__}")
    return found
