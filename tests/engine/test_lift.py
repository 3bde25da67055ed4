"""What lies behind a mark is taken away and put back, for every cache class: a reply is set aside for a moment."""

from contextlib import closing

import pytest

from qmlx_lsp.engine.backend import Sampling
from tests.support import tiny_models
from tests.support.tiny_models import WINDOW, ids

GREEDY = Sampling()
MODELS = tiny_models.EACH


def read(name, *pieces):
    backend = tiny_models.backend(name)
    state = backend.new_state()
    for piece in pieces:
        backend.prefill(state, piece)
    return backend, state


def branch(backend, state, count):
    """Something else, behind the mark: read, generated and taken back."""
    mark = backend.mark(state)
    backend.prefill(state, ids(count, salt=7))
    list(backend.decode(state, ids(3, salt=8), GREEDY, 5))
    backend.rewind(state, mark)


@MODELS
@pytest.mark.parametrize("more", [1, WINDOW, 300])  # 300: the buffers of rows have to grow for the branch
def test_a_reply_set_aside_between_two_tokens_goes_on_bit_for_bit(name, more):
    plain, other = read(name, ids(20))
    expected = list(plain.decode(other, ids(4, salt=1), GREEDY, 40))
    backend, state = read(name, ids(20))
    mark = backend.mark(state)
    got = []
    with closing(backend.decode(state, ids(4, salt=1), GREEDY, 40)) as stream:
        for token in stream:
            got.append(token)
            assert backend.position(state) == 24 + len(got)
            if len(got) % 13 == 1:
                lifted = backend.lift(state, mark, copy=True)
                assert (backend.position(state), lifted.start, lifted.end) == (20, 20, 24 + len(got))
                branch(backend, state, more)
                assert backend.lay(state, lifted)
    assert got == expected
    assert backend.position(state) == 64
    for step in ([7], ids(5, salt=3)):
        assert backend.logits(state, step) == plain.logits(other, step)


@MODELS
@pytest.mark.parametrize("copy", [True, False])
def test_marks_behind_the_mark_come_back_with_what_was_lifted(name, copy):
    backend, state = read(name, ids(20))
    base = backend.mark(state)
    backend.prefill(state, ids(9, salt=1))
    inner = backend.mark(state)
    backend.prefill(state, ids(6, salt=2))
    lifted = backend.lift(state, base, copy=copy)
    with pytest.raises(ValueError, match="the mark at 29"):
        backend.rewind(state, inner)
    if copy:
        branch(backend, state, 30)
    assert backend.lay(state, lifted)
    backend.rewind(state, inner)
    untouched, other = read(name, ids(20), ids(9, salt=1))
    assert backend.logits(state, ids(4, salt=3)) == untouched.logits(other, ids(4, salt=3))


@MODELS
def test_what_was_lifted_in_place_is_worthless_after_a_pass(name):
    backend, state = read(name, ids(20))
    base = backend.mark(state)
    backend.prefill(state, ids(9, salt=1))
    lifted = backend.lift(state, base, copy=False)
    branch(backend, state, 2)
    assert not backend.lay(state, lifted)
    untouched, other = read(name, ids(20))
    assert backend.position(state) == 20
    assert backend.logits(state, [3]) == untouched.logits(other, [3])


@MODELS
def test_the_state_can_be_copied_for_the_store_while_something_is_lifted(name):
    plain, other = read(name, ids(20), ids(9, salt=1))
    expected = plain.logits(other, [5])
    backend, state = read(name, ids(20))
    base = backend.mark(state)
    backend.prefill(state, ids(9, salt=1))
    lifted = backend.lift(state, base, copy=False)
    backend.copy_state(state, 0)
    assert backend.lay(state, lifted)
    assert backend.logits(state, [5]) == expected


def test_rows_can_be_cut_anywhere_and_what_must_not_be_cut_says_so():
    backend, state = read("llama", ids(20))
    behind = backend.mark(state)
    assert not backend.cut(state, 21)
    assert backend.cut(state, 13)
    untouched, other = read("llama", ids(13))
    assert backend.logits(state, [3]) == untouched.logits(other, [3])
    with pytest.raises(ValueError, match="the mark at 20"):
        backend.rewind(state, behind)
    backend, state = read("hybrid", ids(20))
    assert not backend.cut(state, 13)
    assert backend.position(state) == 20


@MODELS
def test_a_ready_state_generates_without_reading_and_so_does_a_mark_made_there(name):
    plain, other = read(name, ids(20))
    expected = list(plain.decode(other, ids(4, salt=1), GREEDY, 12))
    backend, state = read(name, ids(20))
    backend.prefill(state, ids(4, salt=1), ready=True)
    mark = backend.mark(state)
    for _ in range(2):
        rows = backend.passes.rows
        assert list(backend.decode(state, [], GREEDY, 12)) == expected
        assert backend.passes.rows - rows <= 12
        assert backend.position(state) == 36
        backend.rewind(state, mark)


def test_only_allowed_ids_come_first():
    backend, state = read("llama", ids(20))
    wanted = [[3], [250, 251], [9]]

    def allowed(chosen):
        return wanted[len(chosen)] if len(chosen) < 3 else None

    got = list(backend.decode(state, ids(4, salt=1), GREEDY, 6, allowed=allowed))
    assert (got[0], got[1] in (250, 251), got[2], len(got)) == (3, True, 9, 6)
    assert backend.position(state) == 30
    # of those that are allowed the likeliest, and then whatever is likeliest
    fresh, other = read("llama", ids(20), ids(4, salt=1))
    fresh.prefill(other, [3])
    row = memoryview(fresh.logits(other, [got[1]])).cast("f")
    assert len(row) == tiny_models.VOCAB
    fresh, other = read("llama", ids(20), ids(4, salt=1), got[:1])
    mark = fresh.mark(other)
    fresh.rewind(other, mark)
    alone, third = read("llama", ids(20), [*ids(4, salt=1)])
    before = memoryview(alone.logits(third, [3])).cast("f")
    assert (before[250] > before[251]) == (got[1] == 250)
    assert list(fresh.decode(other, got[1:3], GREEDY, 3)) == got[3:]


def test_a_word_that_nothing_agrees_with_ends_it():
    backend, state = read("llama", ids(20))
    assert list(backend.decode(state, [5], GREEDY, 6, allowed=lambda _chosen: [])) == []
    assert backend.position(state) == 21
