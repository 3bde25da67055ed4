"""Branches on real caches: a long answer that lets them in goes on bit for bit, and they are exact themselves."""

import pytest
from mlx_lm.models.cache import KVCache

from qmlx_lsp.engine.backend import Sampling
from qmlx_lsp.engine.branch import Base, BranchJob, complete
from qmlx_lsp.engine.generation import Job, generate
from qmlx_lsp.transcript.entry import Finish
from tests.support import tiny_models
from tests.support.tiny_models import ids

LOG, HEAD = ids(30), ids(14, salt=4)
NO_END: frozenset[int] = frozenset()


def never():
    return False


def started(name):
    backend = tiny_models.backend(name)
    state = backend.new_state()
    backend.prefill(state, LOG)
    return backend, state


def answer(backend, state, let_in=lambda _backend: None, source=()):
    job = Job(state, ids(20, salt=1), [5, 6], NO_END, 24, Sampling(), 8, bases=[8], source=source)
    return generate(
        backend, job, cancelled=never, on_prefill=lambda _done, _total: None, on_token=lambda _id: None, let_in=let_in
    )


def branch(state, text, at):
    bases = [Base(38, HEAD), Base(30, HEAD)] if at is None else [Base(at, HEAD)]
    return BranchJob(state, bases, text, NO_END, 6, 64)


@tiny_models.EACH
def test_an_answer_that_lets_typing_in_is_the_same_to_the_bit(name):
    plain, other = started(name)
    expected = answer(plain, other)
    backend, state = started(name)
    found = []

    def let_in(_backend):
        found.append(complete(backend, branch(state, ids(9 + len(found), salt=2), None), never))

    outcome = answer(backend, state, let_in)
    assert (outcome.ids, outcome.passes, outcome.prefilled) == (expected.ids, expected.passes, expected.prefilled)
    assert backend.logits(state, [3]) == plain.logits(other, [3])
    assert [one.prefilled for one in found[3:]] == [1] * (len(found) - 3)


class Unknown(KVCache):
    """A class that the adapters do not know, so that nobody can go back with it."""


def test_a_state_of_caches_that_nobody_knows_is_left_alone():
    backend, state = started("llama")
    backend._states[state].caches[0].__class__ = Unknown
    passes = backend.passes.passes
    assert complete(backend, branch(state, ids(9, salt=2), 30), never) is None
    assert (backend.position(state), backend.passes.passes) == (30, passes)


def test_an_answer_whose_state_is_dropped_under_it_ends_there():
    backend, state = started("llama")
    told = []

    def let_in(_backend):
        if len(told) == 3:
            backend.drop_state(state)

    outcome = generate(
        backend, Job(state, ids(20, salt=1), [5, 6], NO_END, 24, Sampling(), 8),
        cancelled=never, on_prefill=lambda _done, _total: None, on_token=told.append, let_in=let_in,
    )  # fmt: skip
    assert (outcome.finish, outcome.position, len(told)) == (Finish.ERROR, None, 3)


@tiny_models.EACH
def test_while_typing_a_branch_answers_as_one_that_has_read_it_in_the_same_passes(name):
    backend, state = started(name)
    for count in (10, 11, 14, 15, 40):
        found = complete(backend, branch(state, ids(count, salt=2), 30), never)
        assert backend.position(state) == 30
    assert found.prefilled == 25
    fresh, other = started(name)
    read = [*HEAD, *ids(40, salt=2)]
    for start, end in ((0, 14), (14, 16), (16, 24), (24, 25), (25, 28), (28, 29), (29, 46)):
        fresh.prefill(other, read[start:end])
    assert list(found.ids) == list(fresh.decode(other, read[46:], Sampling(), 6))


@pytest.mark.parametrize("name", ["llama", "hybrid", "gpt_oss", "int8"])
@pytest.mark.parametrize("wrong", [1, 5])
def test_an_answer_that_copies_lets_typing_in_as_well(name, wrong):
    """Several ids are read in a pass then, and where the state stands is not where the answer is."""
    plain, other = started(name)
    text = list(answer(plain, other).ids)
    source = [token if at % wrong or not at else 7 for at, token in enumerate(text)] if wrong > 1 else text
    alone, third = started(name)
    expected = answer(alone, third, source=source)
    backend, state = started(name)
    found = []

    def let_in(_backend):
        found.append(complete(backend, branch(state, ids(9 + len(found), salt=2), None), never))

    outcome = answer(backend, state, let_in, source)
    assert (outcome.ids, outcome.passes) == (expected.ids, expected.passes)
    assert outcome.passes < 24
    assert backend.position(state) == alone.position(third)
    assert backend.logits(state, [3]) == alone.logits(third, [3])
    assert None not in found
