"""Branches on the scripted model: what they read, what they leave, whatever ends them."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmlx_lsp.engine.backend import Mark, Sampling
from qmlx_lsp.engine.branch import READY_TOKENS, Base, BranchJob, complete
from qmlx_lsp.engine.generation import Job, generate
from qmlx_lsp.engine.scripted import ScriptedBackend
from qmlx_lsp.engine.scripted_tokenizer import END_OF_TURN
from qmlx_lsp.transcript.entry import Finish

LOG = list(range(40, 60))
HEAD = list(b"<head>")
ENDS = frozenset({END_OF_TURN})


def scripted(**options):
    backend = ScriptedBackend(**options)
    state = backend.new_state()
    backend.prefill(state, LOG)
    return backend, state


def job(state, text, *, at=20, **changes):
    values = {"bases": [Base(at, HEAD)], "text": list(text), "eos_ids": ENDS, "max_tokens": 50, "chunk_tokens": 64}
    return BranchJob(state, **(values | changes))


def never():
    return False


def cold(text, hybrid):
    """What a model answers that has read nothing but this."""
    backend, state = scripted(hybrid=hybrid)
    return complete(backend, job(state, text), never).ids


@pytest.mark.parametrize("hybrid", [False, True])
def test_a_branch_leaves_no_trace_and_typing_reads_what_was_typed(hybrid):
    backend, state = scripted(hybrid=hybrid)
    told, text = bytes(LOG), b"def parse(line"
    first = complete(backend, job(state, text), never)
    assert (first.finish, first.prefilled, first.kept) == (Finish.COMPLETE, len(HEAD) + len(text), 0)
    assert bytes(backend.ids(state)) == told
    second = complete(backend, job(state, text + b"s"), never)
    assert (second.prefilled, second.kept, second.ids) == (1, len(HEAD) + len(text), cold(text + b"s", hybrid))
    again = complete(backend, job(state, text + b"s"), never)
    assert (again.prefilled, again.ids) == (0, second.ids)
    assert bytes(backend.ids(state)) == told


@pytest.mark.parametrize(("hybrid", "reread"), [(False, 1), (True, READY_TOKENS)])
def test_deleting_reads_again_from_the_newest_mark(hybrid, reread):
    backend, state = scripted(hybrid=hybrid)
    text = b"x" * 50
    complete(backend, job(state, text), never)
    found = complete(backend, job(state, text[:-1]), never)
    assert found.ids == cold(text[:-1], hybrid)
    assert found.prefilled == (reread if not hybrid else reread - 1)


def test_other_words_before_the_conversation_went_on_are_read_anew():
    backend, state = scripted()
    complete(backend, job(state, b"abc"), never)
    backend.prefill(state, [1, 2, 3])  # the conversation has gone on: the branch is gone
    assert complete(backend, job(state, b"abc"), never) is None  # and its base is not where the state stands
    found = complete(backend, job(state, b"abc", at=len(LOG) + 3), never)
    assert (found.kept, found.prefilled) == (0, len(HEAD) + 3)


def test_a_state_that_was_dropped_or_is_elsewhere_gives_nothing():
    backend, state = scripted()
    assert complete(backend, job(state, b"a", at=3), never) is None
    backend.drop_state(state)
    assert complete(backend, job(state, b"a"), never) is None


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("after", range(9))
def test_cancelled_at_any_pass_the_state_is_as_it_was_and_what_was_read_is_kept(hybrid, after):
    backend, state = scripted(hybrid=hybrid, replies=["0123456789"])
    asked = iter(range(100))
    found = complete(backend, job(state, b"abc", chunk_tokens=3), lambda: next(asked) >= after)
    assert found.finish is Finish.CANCELLED
    assert backend.ids(state) == LOG
    again = complete(backend, job(state, b"abc", chunk_tokens=3), never)
    assert again.kept == found.prefilled
    assert again.kept + again.prefilled == len(HEAD) + 3


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("fails", range(12))
def test_an_error_in_any_pass_costs_the_branch_and_nothing_else(hybrid, fails):
    passes = []

    def before(_kind, _length):
        passes.append(1)
        if len(passes) == fails + 2:  # the first one has read the log
            raise RuntimeError("out of memory")

    backend, state = scripted(hybrid=hybrid, before_pass=before, replies=["01234", "56789"])
    with suppress(RuntimeError):
        complete(backend, job(state, b"abc", chunk_tokens=3), never)
    assert backend.ids(state) == LOG
    passes += [1] * 99
    assert complete(backend, job(state, b"abc", chunk_tokens=3), never).ids in (tuple(b"01234"), tuple(b"56789"))
    assert backend.ids(state) == LOG


@pytest.mark.parametrize("hybrid", [False, True])
def test_let_in_at_every_place_of_a_long_answer_which_goes_on_as_if_nothing_had_been(hybrid):
    def answer(backend, state, let_in):
        return generate(
            backend,
            Job(state, list(b"context question"), [100, 101], ENDS, 200, Sampling(), 4, bases=[8]),
            cancelled=never, on_prefill=lambda _done, _total: None, on_token=lambda _id: None, let_in=let_in,
        )  # fmt: skip

    plain, other = scripted(hybrid=hybrid)
    expected = answer(plain, other, lambda _backend: None)
    backend, state = scripted(hybrid=hybrid)
    bases = [Base(len(LOG) + 8, [7, *HEAD]), Base(len(LOG), HEAD)]
    found, text = [], b"while typ"

    def let_in(engine):
        assert engine is backend
        before = backend.ids(state)
        found.append(complete(backend, job(state, text + b"." * (len(found) // 2), bases=bases), never))
        assert backend.ids(state) == before

    outcome = answer(backend, state, let_in)
    assert outcome.ids == expected.ids
    assert (outcome.prefilled, outcome.passes) == (expected.prefilled, expected.passes)
    assert backend.ids(state) == plain.ids(other)
    # From the beginning of the question on they stand there; what was typed between two is all that is read.
    assert [one.base.position - len(LOG) for one in found] == [0] * 2 + [8] * (len(found) - 2)
    assert [one.prefilled for one in found[3:]] == [(at + 1) % 2 for at in range(3, len(found))]
    assert found[1].prefilled == 0


def test_a_state_that_cannot_be_put_back_is_dropped_and_the_answer_ends_as_an_error():
    backend, state = scripted()
    backend.lay = lambda _state, _lifted: False

    def let_in(_engine):
        complete(backend, job(state, b"a"), never)

    outcome = generate(
        backend, Job(state, [1, 2, 3], [100], ENDS, 200, Sampling(), 1),
        cancelled=never, on_prefill=lambda _done, _total: None, on_token=lambda _id: None, let_in=let_in,
    )  # fmt: skip
    assert (outcome.finish, outcome.position) == (Finish.ERROR, None)


def test_one_that_stays_is_the_state_from_then_on():
    backend, state = scripted(replies=["done"])
    found = complete(backend, job(state, b"abc", stay=True), never)
    assert backend.ids(state) == [*LOG, *HEAD, *b"abcdone"]
    assert found.position == len(backend.ids(state))
    nothing = ScriptedBackend([""])
    other = nothing.new_state()
    nothing.prefill(other, LOG)
    assert complete(nothing, job(other, b"abc", stay=True), never).position is None
    assert nothing.ids(other) == LOG


PROMPTS = st.lists(
    st.tuples(st.sampled_from(["type", "delete", "other", "turn"]), st.integers(0, 30), st.booleans()), max_size=12
)


@settings(deadline=None, max_examples=60)
@given(PROMPTS, st.booleans())
def test_whatever_is_typed_the_answer_is_that_of_a_fresh_model(steps, hybrid):
    backend, state = scripted(hybrid=hybrid)
    log, text = list(LOG), b"some text "
    for what, count, cancel in steps:
        if what == "type":
            text += bytes(range(97, 97 + count % 26))
        elif what == "delete":
            text = text[: max(1, len(text) - count)]
        elif what == "other":
            text = bytes([65 + count]) + text
        else:
            log += [count] * (count + 1)
            backend.prefill(state, [count] * (count + 1))
        asked = iter(range(1000))
        found = complete(
            backend,
            job(state, text, at=len(log), chunk_tokens=5),
            lambda a=asked, n=count, c=cancel: c and next(a) > n,
        )
        assert backend.ids(state) == log
        if found.finish is not Finish.CANCELLED:
            fresh = ScriptedBackend(hybrid=hybrid)
            other = fresh.new_state()
            fresh.prefill(other, log)
            assert found.ids == complete(fresh, job(other, text, at=len(log)), never).ids


class Unmarkable(ScriptedBackend):
    """A model whose caches nobody knows: its states cannot be gone back with."""

    def mark(self, state):
        return Mark(self.position(state), None)


def test_a_state_that_cannot_be_marked_is_left_alone():
    backend = Unmarkable()
    state = backend.new_state()
    backend.prefill(state, LOG)
    passes = backend.passes.passes
    assert complete(backend, job(state, b"abc"), never) is None
    assert (backend.ids(state), backend.passes.passes) == (LOG, passes)


class ReadsEnds(ScriptedBackend):
    """A backend for which taking an end token back is dear."""

    def decode(self, state, ids, sampling, max_tokens, spare=frozenset(), **options):
        return super().decode(state, ids, sampling, max_tokens, **options)


@pytest.mark.parametrize("hybrid", [False, True])
def test_what_stays_is_what_was_written_and_no_end_token(hybrid):
    backend = ReadsEnds(["done"], hybrid=hybrid)
    state = backend.new_state()
    backend.prefill(state, LOG)
    found = complete(backend, job(state, b"abc", stay=True), never)
    assert (found.finish, bytes(found.ids)) == (Finish.COMPLETE, b"done")
    assert backend.ids(state) == [*LOG, *HEAD, *b"abc", *b"done"]
    assert found.position == len(LOG) + len(HEAD) + 3 + 4


class RunsOut(ScriptedBackend):
    """Memory runs out when so many things have been lifted away or laid back."""

    left = 99

    def _moved(self):
        self.left -= 1
        if not self.left:
            raise RuntimeError("out of memory")

    def lift(self, state, mark, *, copy):
        self._moved()
        return super().lift(state, mark, copy=copy)

    def lay(self, state, lifted):
        self._moved()
        return super().lay(state, lifted)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("moves", [2, 3])
def test_a_state_that_cannot_be_put_back_is_dropped_and_the_answer_says_so(hybrid, moves):
    """The first move takes the reply away; the second one the branch, the third one puts the reply back."""
    backend = RunsOut(["0123456789", "a branch"], hybrid=hybrid)
    state, calls = backend.new_state(), []
    backend.prefill(state, LOG)

    def let_in(_backend):
        calls.append(1)
        if len(calls) == 4:
            backend.left = moves
            with suppress(RuntimeError):  # the worker gives it to whoever wanted the completion
                complete(backend, job(state, b"abc"), never)

    answer = Job(state, list(b"question"), [100, 101], ENDS, 50, Sampling(), 64)
    outcome = generate(
        backend, answer, cancelled=never, on_prefill=lambda *_: None, on_token=lambda _: None, let_in=let_in
    )
    assert (outcome.finish, outcome.position) == (Finish.ERROR, None)
    assert outcome.error == "StateLost: a completion took the state along that the reply was computed on"
    with pytest.raises(KeyError):
        backend.position(state)
