"""Marks and rewinds: back to the very arrays, for every cache class, before and after a window has wrapped."""

import gc
import weakref

import pytest

from qmlx_lsp.engine.backend import Sampling
from tests.support import tiny_models
from tests.support.tiny_models import WINDOW, ids

GREEDY = Sampling()
MODELS = tiny_models.EACH
# Positions around the window's edge, and far behind it.
MARKED = [0, 1, 5, WINDOW - 1, WINDOW, WINDOW + 1, 3 * WINDOW + 5]


def reader(name: str, count: int, *, singly: bool = False):
    """A backend with a state that has read ``count`` ids: in one pass, or one by one as decoding does."""
    backend = tiny_models.backend(name)
    state = backend.new_state()
    if singly:
        for token in ids(count):
            backend.prefill(state, [token])
    elif count:
        backend.prefill(state, ids(count))
    return backend, state


@MODELS
@pytest.mark.parametrize(
    ("marked", "singly"), [*((n, False) for n in MARKED), (1, True), (WINDOW, True), (2 * WINDOW + 3, True)]
)
def test_rewound_state_goes_on_bit_for_bit_as_if_nothing_had_been(name, marked, singly):
    backend, state = reader(name, marked, singly=singly)
    untouched, other = reader(name, marked, singly=singly)
    mark = backend.mark(state)
    list(backend.decode(state, ids(4, salt=1), GREEDY, 17))
    backend.prefill(state, ids(9, salt=2))
    backend.rewind(state, mark)
    assert backend.position(state) == marked == mark.position
    for step in ([7], ids(5, salt=3), [8], [9]):
        assert backend.logits(state, step) == untouched.logits(other, step)


@pytest.mark.parametrize(
    "name", ["hybrid", "llama4", "nested", "int4", *tiny_models.slow("gpt_oss", "int8", "falcon")]
)
def test_nested_marks_and_a_mark_used_twice(name):
    backend, state = reader(name, 10)
    outer = backend.mark(state)
    first = bytes(backend.logits(state, ids(6, salt=1)))
    inner = backend.mark(state)
    second = bytes(backend.logits(state, ids(9, salt=2)))
    for _ in range(2):
        backend.rewind(state, inner)
        assert backend.logits(state, ids(9, salt=2)) == second
    for _ in range(2):
        backend.rewind(state, outer)
        assert backend.logits(state, ids(6, salt=1)) == first


@MODELS
def test_mark_beyond_a_rewind_is_refused_and_nothing_changes(name):
    backend, state = reader(name, 10)
    outer = backend.mark(state)
    backend.prefill(state, ids(10, salt=1))
    inner = backend.mark(state)
    backend.rewind(state, outer)
    backend.prefill(state, ids(15, salt=2))  # further than the inner mark: its rows are overwritten
    with pytest.raises(ValueError, match="the mark at 20"):
        backend.rewind(state, inner)
    assert backend.position(state) == 25
    untouched, other = reader(name, 10)
    untouched.prefill(other, ids(15, salt=2))
    assert backend.logits(state, [3]) == untouched.logits(other, [3])


def test_mark_of_another_state_is_refused():
    backend, state = reader("llama", 10)
    other = backend.new_state()
    backend.prefill(other, ids(20))
    with pytest.raises(ValueError, match="another state"):
        backend.rewind(other, backend.mark(state))


@pytest.mark.parametrize("name", ["hybrid", "gemma"])
def test_worthless_mark_holds_no_arrays(name):
    backend, state = reader(name, 10)
    outer = backend.mark(state)
    backend.prefill(state, [1])
    inner = backend.mark(state)
    backend.rewind(state, outer)
    assert inner.kept.caches is None


def test_state_does_not_keep_marks_alive():
    backend, state = reader("hybrid", 10)
    mark = backend.mark(state)
    kept = weakref.ref(mark.kept)
    del mark
    gc.collect()
    assert kept() is None


@MODELS
def test_states_do_not_touch_each_other(name):
    backend, state = reader(name, 20)
    other = backend.new_state()
    backend.prefill(other, ids(30, salt=4))
    backend.drop_state(other)
    alone, its = reader(name, 20)
    assert backend.logits(state, [5]) == alone.logits(its, [5])
