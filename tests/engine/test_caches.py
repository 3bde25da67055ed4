"""Single cache classes: what of them goes into rows and snapshot, and what happens to a class that nobody knows.

Whole models with these caches are in ``test_restore`` and ``test_marks``.
"""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import ArraysCache, CacheList, ConcatenateKVCache, KVCache, QuantizedKVCache, RotatingKVCache

from qmlx_lsp.engine.backend import Sampling
from qmlx_lsp.engine.mlx import rows
from qmlx_lsp.engine.mlx.caches import parts, unknown_classes
from qmlx_lsp.errors import CheckpointRejected
from tests.support import tiny_models
from tests.support.memory_stored import MemoryStored
from tests.support.tiny_models import WINDOW, Nested, ids

GREEDY = Sampling()


class KeepsASecret(KVCache):
    """A class that the adapters do not know."""


def numbered(first: int, count: int, width: int = 4) -> mx.array:
    """Rows that say which they are, for two heads."""
    return mx.broadcast_to(
        mx.arange(first, first + count, dtype=mx.float32)[None, None, :, None], (1, 2, count, width)
    )


def fill(cache, count: int, chunk: int = 5) -> None:
    for at in range(0, count, chunk):
        size = min(chunk, count - at)
        cache.update_and_fetch(numbered(at, size), numbered(at, size))


def round_trip(caches, fresh, position: int) -> None:
    copy = rows.copy_state(caches, 0, position, with_snapshot=True)
    rows.load_state(fresh, MemoryStored([copy]), rows.layout(caches))


def test_parts_are_named_by_their_way_down():
    a, b, c, d = KVCache(), RotatingKVCache(8), KVCache(), ArraysCache(1)
    assert parts([a, CacheList(b, CacheList(c)), d]) == {"0": a, "1.0": b, "1.1.0": c, "2": d}


def test_unknown_classes_are_named_wherever_they_are():
    caches = [KVCache(), CacheList(KVCache(), CacheList(KeepsASecret())), ConcatenateKVCache(), KeepsASecret()]
    assert unknown_classes(caches) == ["ConcatenateKVCache", "KeepsASecret"]


def test_subclass_of_a_list_is_no_list():
    class Special(CacheList):
        pass

    assert unknown_classes([Special(KVCache())]) == ["Special"]


@pytest.mark.parametrize("count", [2, 8, 9, 20, 21])
@pytest.mark.parametrize("chunk", [1, 5])
def test_first_rows_that_a_window_keeps_survive(count, chunk):
    cache, fresh = RotatingKVCache(8, keep=3), RotatingKVCache(8, keep=3)
    fill(cache, count, chunk)
    round_trip([cache], [fresh], count)
    kept = list(range(count)) if count <= 8 else [0, 1, 2, *range(count - 5, count)]
    for part in (cache.keys, cache.values, fresh.keys, fresh.values):
        assert part[0, 1, :, 0].tolist() == kept
    assert fresh.offset == cache.offset == count
    # The next one takes the place of the oldest that is not kept.
    fresh.update_and_fetch(numbered(count, 1), numbered(count, 1))
    assert max(fresh.keys_and_values()[0][0, 0, :, 0].tolist()) == count
    assert fresh.keys_and_values()[0][0, 0, : min(3, count), 0].tolist() == [0, 1, 2][:count]


def test_values_without_width_come_back():
    cache, fresh = KVCache(), KVCache()
    cache.update_and_fetch(numbered(0, 5), mx.zeros((1, 2, 5, 0)))
    copy = rows.copy_state([cache], 0, 5, with_snapshot=False)
    assert [tensor.spec.name for tensor in copy.rows] == ["0.k"]
    round_trip([cache], [fresh], 5)
    keys, values = fresh.update_and_fetch(numbered(5, 2), mx.zeros((1, 2, 2, 0)))
    assert keys[0, 0, :, 0].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert values.shape == (1, 2, 7, 0)


def made_of_everything() -> list:
    return [
        KVCache(), QuantizedKVCache(64, 8), RotatingKVCache(8), ArraysCache(3), CacheList(ArraysCache(2), KVCache()),
    ]  # fmt: skip


def test_parts_that_were_never_filled_stay_empty():
    caches, fresh = made_of_everything(), made_of_everything()
    fill(caches[0], 6)
    caches[3][1] = mx.arange(4.0)
    round_trip(caches, fresh, 6)
    assert fresh[0].offset == 6
    assert (fresh[1].keys, fresh[1].offset, fresh[2].keys, fresh[2].offset) == (None, 0, None, 0)
    assert [None if array is None else array.tolist() for array in fresh[3].cache] == [None, [0, 1, 2, 3], None]
    assert (fresh[4][0].cache, fresh[4][1].keys) == ([None, None], None)


def test_size_of_a_state_counts_parts_behind_an_empty_one():
    backend = tiny_models.backend("nested")
    state = backend.new_state()
    assert backend.nbytes(state) == 0
    backend.prefill(state, ids(5))
    before = backend.nbytes(state)
    backend._states[state].caches[1][1][1] = mx.zeros((7,))
    assert backend.nbytes(state) == before + 28


def test_window_of_a_nested_cache_is_known_by_its_name():
    backend = tiny_models.backend("nested")
    state = backend.new_state()
    backend.prefill(state, ids(5))
    backend.restore(MemoryStored([backend.copy_state(state, 0)]))
    assert backend._layout.windows == {"1.0": WINDOW}
    assert {row.name for row in backend._layout.rows} == {"0.0.1.k", "0.0.1.v"}
    assert Nested.KEEP > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: [KeepsASecret(), KVCache()],
        lambda: [CacheList(KVCache(), KeepsASecret()), KVCache()],
    ],
    ids=["plain", "in a list"],
)
def test_cache_class_without_adapter_works_but_is_neither_marked_nor_restored(make, monkeypatch):
    other = tiny_models.backend("llama")
    whole = other.new_state()
    other.prefill(whole, ids(5))
    stored = MemoryStored([other.copy_state(whole, 0)])
    backend = tiny_models.backend("llama")
    model = backend._model
    monkeypatch.setattr(model, "make_cache", make, raising=False)
    monkeypatch.setattr(backend, "_counted", lambda tokens, cache: model(tokens, cache=[_last(c) for c in cache]))
    state = backend.new_state()
    assert len(list(backend.decode(state, ids(5), GREEDY, 4))) == 4
    assert backend.position(state) == 9
    with pytest.raises(ValueError, match="cannot be rewound"):
        backend.rewind(state, backend.mark(state))
    with pytest.raises(ValueError, match="KeepsASecret"):
        backend.copy_state(state, 0)
    with pytest.raises(CheckpointRejected):
        backend.restore(stored)


def _last(cache):
    return cache.caches[-1] if type(cache) is CacheList else cache


def test_mark_of_a_chunked_cache_outlives_what_the_cache_forgets():
    """Nothing of the buffer that the mark keeps is written over, and using it does not use it up."""
    backend = tiny_models.backend("llama4")
    state = backend.new_state()
    backend.prefill(state, ids(WINDOW - 2))
    mark = backend.mark(state)
    held = [bytes(np.array(kept[0])) for kept in mark.kept.caches if not isinstance(kept, int)]
    want = bytes(backend.logits(state, ids(4, salt=1)))
    for _ in range(2):
        list(backend.decode(state, ids(9, salt=2), GREEDY, 2 * WINDOW))
        assert backend._states[state].caches[0].start_position > 0
        backend.rewind(state, mark)
        assert backend._states[state].caches[0].start_position == 0
        assert [bytes(np.array(kept[0])) for kept in mark.kept.caches if not isinstance(kept, int)] == held
        assert backend.logits(state, ids(4, salt=1)) == want
