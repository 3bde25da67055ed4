"""Copying from a source with real caches: the same text as without, and a state that has read exactly that text.

Random models do not copy. Where it matters what is proposed and what is right, they are forced to a text: their
states are still those of the model, and whether they are right is shown by the logits of what follows, against a
model that has read the same ids in one pass. Rows summed in passes of other lengths differ by rounding: ``NEAR``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import KVCache

from qmlx_lsp.engine.backend import Sampling, StateId
from qmlx_lsp.engine.generation import Job, Outcome, generate
from qmlx_lsp.engine.mlx.backend import MlxBackend
from qmlx_lsp.engine.mlx.caches import adapter, parts
from qmlx_lsp.transcript.entry import Finish
from tests.support import tiny_models
from tests.support.forced import Forced
from tests.support.memory_stored import MemoryStored

GREEDY = Sampling()
NOTHING: frozenset[int] = frozenset()
PROMPT = tiny_models.ids(20, salt=5)
HEADER = [3, 4, 5]
BEGIN = len(PROMPT) + len(HEADER)
ROWS = 8
NEAR = {"rtol": 2e-3, "atol": 2e-3}
TEXT = tiny_models.ids(40, salt=1)
# One id replaced, one left out, some put in.
EDITED = [*TEXT[:9], 7, *TEXT[10:18], *TEXT[19:25], 11, 12, 13, 14, 15, *TEXT[25:]]
MODELS = pytest.mark.parametrize(
    "name",
    ["hybrid", "gpt_oss", *tiny_models.slow("llama", "gemma", "int4", "llama4", "baichuan", "falcon")],
)
EVERY_KIND = pytest.mark.parametrize("name", ["llama", "hybrid", "gpt_oss", "int4"])


def backend(name: str, forced: Sequence[int] = (), rows: int = ROWS) -> MlxBackend:
    made = MlxBackend(Path("unused"), kv_bits=tiny_models.KV_BITS.get(name, 0), draft_rows=rows)
    model = tiny_models.make(name)
    made.use(Forced(model, BEGIN, forced) if forced else model, needs_snapshot=name not in tiny_models.ROWS_ONLY)
    return made


def prompted(name: str, forced: Sequence[int] = (), rows: int = ROWS) -> tuple[MlxBackend, StateId]:
    made = backend(name, forced, rows)
    state = made.new_state()
    made.prefill(state, PROMPT)
    return made, state


def decoding(made, state, source, most=500, spare=NOTHING, sampling=GREEDY):
    return closing(made.decode(state, HEADER, sampling, most, spare, source=source))


@functools.cache
def cold(name: str, read: tuple[int, ...]) -> np.ndarray:
    """Logits behind ``read`` and two more ids, in a model that has just been made."""
    made = backend(name)
    state = made.new_state()
    made.prefill(state, read)
    return logits(made, state)


def logits(made: MlxBackend, state: StateId) -> np.ndarray:
    """Of the model itself, not of what it is forced to."""
    made._counted._model = getattr(made._counted._model, "_model", made._counted._model)
    return np.frombuffer(made.logits(state, [8, 9]), dtype=np.float32)


def check_has_read(made: MlxBackend, state: StateId, name: str, read: Sequence[int]) -> None:
    assert made.position(state) == len(read)
    for cache in parts(made._states[state].caches).values():
        assert adapter(cache).position(cache) in (None, len(read))
    np.testing.assert_allclose(logits(made, state), cold(name, tuple(read)), **NEAR)


@MODELS
def test_closing_behind_every_id_leaves_the_state_there(name):
    for after in range(1, len(EDITED) + 1):
        made, state = prompted(name, EDITED)
        with decoding(made, state, TEXT) as stream:
            got = [next(stream) for _ in range(after)]
            before = made.passes.passes
        assert got == EDITED[:after]
        assert made.passes.passes - before <= 1
        check_has_read(made, state, name, [*PROMPT, *HEADER, *got])


@MODELS
def test_greedy_text_is_the_same_and_takes_fewer_passes_where_it_is_copied(name):
    made, state = prompted(name, rows=1)
    with decoding(made, state, TEXT, 40) as stream:
        plain = list(stream)
    assert made.passes.passes == 1 + 1 + 40  # one row a pass: nothing is drafted
    edited = [*plain[:10], 7, *plain[11:25], *plain[26:]]
    for source, most in ((plain, 2 + 12), (edited, 2 + 25), (TEXT, 2 + 42)):
        made, state = prompted(name)
        with decoding(made, state, source, 40) as stream:
            assert list(stream) == plain
        assert made.passes.passes <= most
        check_has_read(made, state, name, [*PROMPT, *HEADER, *plain])


@MODELS
def test_no_pass_reads_further_than_the_limit(name):
    for most in (1, 2, 5, 9, 17, 18, 30):
        made, state = prompted(name, EDITED)
        whole, reached = made._counted._model, []

        def watching(tokens, cache, *, whole=whole, reached=reached, made=made, state=state, **kwargs):
            reached.append(made.position(state) + tokens.shape[1])
            return whole(tokens, cache=cache, **kwargs)

        made._counted._model = watching
        with decoding(made, state, TEXT, most) as stream:
            assert list(stream) == EDITED[:most]
        made._counted._model = whole
        assert max(reached) == BEGIN + most
        check_has_read(made, state, name, [*PROMPT, *HEADER, *EDITED[:most]])


@MODELS
def test_id_that_must_not_be_read_ends_it_wherever_it_is(name):
    for at in (0, 1, 5, 8, 12, 26, 31):
        last = next(token for token in range(tiny_models.VOCAB) if token not in (*EDITED, *TEXT))
        made, state = prompted(name, [*EDITED[:at], last])
        source = [*EDITED[:at], last, *EDITED[at:]] if at % 2 else TEXT
        with decoding(made, state, source, spare=frozenset({last})) as stream:
            assert list(stream) == EDITED[:at]
        check_has_read(made, state, name, [*PROMPT, *HEADER, *EDITED[:at]])


@EVERY_KIND
def test_state_may_be_taken_away_between_two_ids_and_put_back(name):
    """Everything behind a mark is copied out, other ids are read over it, and the copies are written back."""
    made, state = prompted(name, EDITED)
    base = made.mark(state)
    got = []
    with decoding(made, state, TEXT, len(EDITED)) as stream:
        for token in stream:
            got.append(token)
            live = made._states[state]
            live.check()  # it stands where it says
            put_back = taken_away(live)
            made.rewind(state, base)
            made.prefill(state, tiny_models.ids(60, salt=9))
            made.rewind(state, base)
            put_back()
    assert got == EDITED
    check_has_read(made, state, name, [*PROMPT, *HEADER, *EDITED])


def taken_away(live):
    """Copies of what the caches hold, and what writes them back."""
    live.evaluate()
    position, kept = live.position, []
    for cache in parts(live.caches).values():
        rows = {key: np.array(array[:, :, :position]) for key, array in adapter(cache).rows(cache).items()}
        kept.append((cache, rows, None if rows else adapter(cache).mark(cache)))

    def put_back():
        for cache, rows, mark in kept:
            if rows:
                for key, array in adapter(cache).rows(cache).items():
                    array[:, :, :position] = mx.array(rows[key])
                adapter(cache).rewind(cache, position)
            else:
                adapter(cache).rewind(cache, mark)
        live.position = position

    return put_back


@EVERY_KIND
def test_state_is_stored_and_restored_like_any_other(name):
    made, state = prompted(name, EDITED)
    with decoding(made, state, TEXT) as stream:
        for _ in range(13):
            next(stream)
    made._counted._model = tiny_models.make(name)
    restored = made.restore(MemoryStored([made.copy_state(state, 0)])).state
    for step in ([7], tiny_models.ids(5, salt=3), [8]):
        assert made.logits(state, step) == made.logits(restored, step)


def test_mark_behind_the_end_of_a_closed_reply_is_worthless():
    """It was taken where the state stood ahead of the ids that were handed out."""
    made, state = prompted("llama", TEXT)
    with decoding(made, state, TEXT) as stream:
        next(stream)
        ahead = made.mark(state)
        assert ahead.position == BEGIN + ROWS
    with pytest.raises(ValueError, match="behind a later rewind"):
        made.rewind(state, ahead)
    assert made.position(state) == BEGIN + 1


# --- drawn ids ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "hybrid"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ids_are_drawn_as_they_would_be_one_by_one(name, seed):
    """The n-th id has the n-th draw of the seed, whatever was proposed: the text is that of plain decoding, whose law
    is the model's."""
    sampling = Sampling(temperature=1.2, top_k=40, top_p=0.95, seed=seed)
    made, state = prompted(name, rows=1)
    with decoding(made, state, (), 40, sampling=sampling) as stream:
        plain = list(stream)
    half_right = [token if n % 5 else 260 - token for n, token in enumerate(plain)]
    for source in (plain, half_right, TEXT):
        made, state = prompted(name)
        with decoding(made, state, source, 40, sampling=sampling) as stream:
            assert list(stream) == plain
        if source is plain:
            assert made.passes.passes < 20
        check_has_read(made, state, name, [*PROMPT, *HEADER, *plain])


# --- when nothing is drafted ----------------------------------------------------------------------------------------


def test_windows_too_large_to_be_kept_in_every_pass(monkeypatch):
    monkeypatch.setattr("qmlx_lsp.engine.mlx.backend.UNDO_BYTES_MAX", 0)
    made, state = prompted("gpt_oss", EDITED)
    with decoding(made, state, TEXT, len(EDITED)) as stream:
        assert list(stream) == EDITED
    assert made.passes.passes == 1 + 1 + len(EDITED)


def test_caches_of_an_unknown_class():
    class Unknown(KVCache):
        pass

    made = backend("llama", EDITED)
    state = made.new_state()
    made._states[state].caches = [Unknown(), Unknown()]
    made._counted._model = made._counted._model._model
    with decoding(made, state, TEXT, 10) as stream:
        assert len(list(stream)) == 10
    assert made.passes.passes == 1 + 10


# --- one reply ------------------------------------------------------------------------------------------------------


def run(made: MlxBackend, state: StateId, **changes) -> Outcome:
    cancelled = changes.pop("cancelled", lambda: False)
    on_token = changes.pop("on_token", lambda _id: None)
    values = {
        "state": state, "prefill": PROMPT, "header": HEADER, "eos_ids": NOTHING, "max_tokens": len(EDITED),
        "sampling": GREEDY, "chunk_tokens": 8, "source": TEXT,
    }  # fmt: skip
    return generate(
        made, Job(**(values | changes)), cancelled=cancelled, on_token=on_token, on_prefill=lambda _d, _t: None
    )


@MODELS
@pytest.mark.parametrize("how", ["length", "end token", "stop", "cancel"])
def test_every_end_of_a_reply(name, how):
    made = backend(name, EDITED)
    state = made.new_state()
    seen: list[int] = []
    last = EDITED[12]  # within what was proposed and right
    changes = {
        "length": {},
        "end token": {"eos_ids": frozenset({last})},
        "stop": {"stops": lambda token: token == last},
        "cancel": {"cancelled": lambda: last in seen, "on_token": seen.append},
    }[how]
    outcome = run(made, state, **changes)
    count = len(EDITED) if how == "length" else EDITED.index(last) + 1
    finish = {"length": Finish.LENGTH, "cancel": Finish.CANCELLED}.get(how, Finish.COMPLETE)
    assert (outcome.finish, list(outcome.ids)) == (finish, EDITED[:count])
    assert outcome.passes == made.passes.passes < 4 + 1 + count
    assert outcome.position == BEGIN + count
    check_has_read(made, state, name, [*PROMPT, *HEADER, *EDITED[:count]])


class FailsInside:
    """The model, until the pass with number ``at``, which fails when its caches have been changed."""

    def __init__(self, model, at: int) -> None:
        self._model = model
        self._left = at

    def __call__(self, tokens, cache, **kwargs):
        out = self._model(tokens, cache=cache, **kwargs)
        self._left -= 1
        if self._left < 0:
            raise MemoryError("no memory for the last layer")
        return out


@MODELS
@pytest.mark.parametrize("failing", [3, 4, 5, 6, 8])
def test_error_in_a_pass_goes_back_to_the_last_boundary(name, failing):
    made = backend(name, EDITED)
    state = made.new_state()
    whole = made._counted._model
    made._counted._model = FailsInside(whole, failing)
    outcome = run(made, state)
    made._counted._model = whole
    assert (outcome.finish, outcome.error) == (Finish.ERROR, "MemoryError: no memory for the last layer")
    assert list(outcome.ids) == EDITED[: len(outcome.ids)]
    assert (outcome.position, outcome.passes) == (len(PROMPT), failing + 1)
    check_has_read(made, state, name, PROMPT)
