"""One reply against the scripted model: every end, at every place where it can come."""

from itertools import count

import pytest

from qmlx_lsp.engine.backend import Sampling
from qmlx_lsp.engine.generation import Job, generate
from qmlx_lsp.engine.scripted import ScriptedBackend
from qmlx_lsp.engine.scripted_tokenizer import END_OF_TURN
from qmlx_lsp.errors import CheckpointRejected
from qmlx_lsp.state import StateCopy
from qmlx_lsp.transcript.entry import Finish
from tests.support.memory_stored import MemoryStored

PROMPT = list(range(20))
HEADER = [100, 101]
REPLY = [*b"Hello.", END_OF_TURN]
CHUNKS = 3  # 20 ids in passes of 8, 8, 4
# prefill, header, one pass for every id of the reply
ALL_PASSES = CHUNKS + 1 + len(REPLY)


def scripted(**options):
    backend = ScriptedBackend(["Hello."], **options)
    return backend, backend.new_state()


def run(backend, state, cancelled=lambda: False, on_token=lambda _id: None, clock=None, **changes):
    values = {
        "state": state, "prefill": PROMPT, "header": HEADER, "eos_ids": frozenset({END_OF_TURN}),
        "max_tokens": 50, "sampling": Sampling(), "chunk_tokens": 8,
    }  # fmt: skip
    progress = []
    outcome = generate(
        backend, Job(**(values | changes)), cancelled=cancelled, on_token=on_token,
        on_prefill=lambda done, total: progress.append((done, total)), clock=clock or (lambda: 0.0),
    )  # fmt: skip
    return outcome, progress


def test_whole_reply():
    backend, state = scripted()
    outcome, progress = run(backend, state, clock=count().__next__)
    assert (outcome.finish, list(outcome.ids), outcome.error) == (Finish.COMPLETE, REPLY, None)
    assert progress == [(8, 20), (16, 20), (20, 20)]
    assert (outcome.prefilled, outcome.passes, outcome.header_read) == (22, ALL_PASSES, True)
    assert outcome.position == len(PROMPT) + len(HEADER) + len(REPLY)
    assert backend.ids(state) == [*PROMPT, *HEADER, *REPLY]
    # The clock gives 0, 1, 2 … seconds: asked at the start, after prefill, at the first token, at the end.
    assert (outcome.prefill_ms, outcome.first_token_ms, outcome.decode_ms) == (1000.0, 2000.0, 1000.0)


def test_short_last_chunk_is_read_with_the_header():
    for tail, passes in ((3, ALL_PASSES), (4, ALL_PASSES - 1), (50, 1 + len(REPLY))):  # 4 are left behind 8 and 8
        backend, state = scripted()
        outcome, _ = run(backend, state, tail_tokens=tail)
        assert (outcome.finish, list(outcome.ids), outcome.passes) == (Finish.COMPLETE, REPLY, passes)
        assert (outcome.prefilled, backend.ids(state)) == (22, [*PROMPT, *HEADER, *REPLY])
        assert outcome.position == len(PROMPT) + len(HEADER) + len(REPLY)


def test_time_of_reading_has_the_short_last_chunk_in_it():
    backend, state = scripted()
    outcome, _ = run(backend, state, tail_tokens=50, clock=count().__next__)
    # The clock gives 0, 1, 2 seconds: asked at the start, at the first token, at the end.
    assert (outcome.prefill_ms, outcome.first_token_ms, outcome.decode_ms) == (1000.0, 1000.0, 1000.0)


def test_short_last_chunk_is_read_by_itself_where_somebody_stops_or_nothing_is_written():
    backend, state = scripted()
    seen = []
    outcome, _ = run(
        backend, state, tail_tokens=50, points=[20], at_point=lambda backend: seen.append(backend.position(state))
    )
    assert (outcome.passes, seen) == (ALL_PASSES, [20])
    backend, state = scripted()
    outcome, _ = run(backend, state, tail_tokens=50, max_tokens=0)
    assert (outcome.passes, outcome.position) == (CHUNKS, len(PROMPT))


@pytest.mark.parametrize("place", range(3 + len(REPLY)))
def test_cancel_with_a_short_last_chunk(place):
    backend, state = scripted()
    asked = count()
    outcome, _ = run(backend, state, cancelled=lambda: next(asked) >= place, tail_tokens=4)
    chunks, tokens = min(place, 2), max(0, place - 3)  # asked before 8, 8, and twice before 4 with the header
    assert len(outcome.ids) == tokens
    assert outcome.passes == backend.passes.passes == chunks + (1 + tokens if tokens else 0)
    assert backend.ids(state) == ([*PROMPT, *HEADER, *REPLY[:tokens]] if tokens else PROMPT[: 8 * chunks])
    assert (outcome.position, outcome.header_read) == (len(backend.ids(state)), tokens > 0)


def test_error_with_a_short_last_chunk_leaves_it_unread():
    passes = count()

    def fail(_kind, _length):
        if next(passes) == 2:
            raise RuntimeError("boom")

    backend, state = scripted(before_pass=fail)
    outcome, _ = run(backend, state, tail_tokens=4)
    assert (outcome.finish, outcome.ids, outcome.header_read) == (Finish.ERROR, (), False)
    assert backend.ids(state) == PROMPT[:16]
    assert outcome.position == 16


def test_end_token_that_is_spared_belongs_to_nothing():
    backend, state = scripted()
    outcome, _ = run(backend, state, spare=frozenset({END_OF_TURN}))
    assert (outcome.finish, list(outcome.ids)) == (Finish.COMPLETE, REPLY[:-1])
    assert backend.ids(state) == [*PROMPT, *HEADER, *REPLY[:-1]]


def test_reply_as_long_as_it_may_be_was_not_ended_by_a_spared_token():
    backend, state = scripted()
    outcome, _ = run(backend, state, spare=frozenset({END_OF_TURN}), max_tokens=len(REPLY) - 1)
    assert (outcome.finish, list(outcome.ids)) == (Finish.LENGTH, REPLY[:-1])


def test_spared_token_alone_is_no_reply():
    backend = ScriptedBackend([[END_OF_TURN]])
    state = backend.new_state()
    outcome, _ = run(backend, state, spare=frozenset({END_OF_TURN}))
    assert (outcome.finish, outcome.ids, outcome.header_read) == (Finish.COMPLETE, (), False)
    assert backend.ids(state) == PROMPT
    assert outcome.position == len(PROMPT)


@pytest.mark.parametrize("question", range(ALL_PASSES + 2))
def test_cancel_at_every_place_it_is_asked_for(question):
    """``cancelled`` is asked before each chunk, after the last, and after each token but the end token."""
    backend, state = scripted()
    asked = count()
    outcome, _ = run(backend, state, cancelled=lambda: next(asked) >= question)
    chunks = min(question, CHUNKS)
    tokens = max(0, question - CHUNKS)
    if tokens >= len(REPLY):
        assert (outcome.finish, list(outcome.ids)) == (Finish.COMPLETE, REPLY)
        return
    assert outcome.finish is Finish.CANCELLED
    assert outcome.passes == backend.passes.passes == chunks + (1 + tokens if tokens else 0)
    assert list(outcome.ids) == REPLY[:tokens]
    assert outcome.header_read == bool(tokens)
    read = PROMPT[: chunks * 8] + ((HEADER + REPLY[:tokens]) if tokens else [])
    assert backend.ids(state) == read
    assert outcome.position == len(read)
    assert (outcome.first_token_ms is None) == (tokens == 0)


@pytest.mark.parametrize("failing", range(ALL_PASSES))
@pytest.mark.parametrize("hybrid", [False, True])
def test_exception_in_every_pass(failing, hybrid):
    passes = count()

    def fail(_kind: str, _length: int) -> None:
        if next(passes) == failing:
            raise RuntimeError("device\nlost")

    backend, state = scripted(before_pass=fail, hybrid=hybrid)
    outcome, _ = run(backend, state)
    assert (outcome.finish, outcome.error) == (Finish.ERROR, "RuntimeError: device\nlost")
    kept = PROMPT[: min(failing, CHUNKS) * 8]
    assert backend.ids(state) == kept
    assert (outcome.position, outcome.passes, outcome.header_read) == (len(kept), failing, False)
    assert list(outcome.ids) == REPLY[: max(0, failing - CHUNKS - 1)]
    # What is left answers as if nothing had been: without a script, the answer names all that was read.
    backend._replies.clear()
    other = ScriptedBackend(hybrid=hybrid)
    fresh = other.new_state()
    if kept:
        other.prefill(fresh, kept)
    assert list(backend.decode(state, [7], Sampling(), 99)) == list(other.decode(fresh, [7], Sampling(), 99))


def test_state_that_cannot_be_taken_back_is_dropped():
    def fail(kind: str, _length: int) -> None:
        if kind == "decode":
            raise RuntimeError("lost")

    class NoRewind(ScriptedBackend):
        def rewind(self, state, mark) -> None:
            raise ValueError("this model cannot")

    backend = NoRewind(before_pass=fail)
    state = backend.new_state()
    outcome, _ = run(backend, state)
    assert (outcome.finish, outcome.position) == (Finish.ERROR, None)
    with pytest.raises(KeyError):
        backend.position(state)


def test_length():
    backend, state = scripted()
    outcome, _ = run(backend, state, max_tokens=3)
    assert (outcome.finish, list(outcome.ids), outcome.position) == (Finish.LENGTH, REPLY[:3], 25)


def test_no_tokens_wanted_reads_the_prompt_only():
    backend, state = scripted()
    outcome, _ = run(backend, state, max_tokens=0)
    assert (outcome.finish, outcome.ids, outcome.header_read, outcome.position) == (Finish.COMPLETE, (), False, 20)


def test_end_token_at_the_limit_is_complete():
    backend, state = scripted()
    assert run(backend, state, max_tokens=len(REPLY))[0].finish is Finish.COMPLETE


def test_stop_text():
    backend, state = scripted()
    outcome, _ = run(backend, state, stops=lambda token: token == ord("l"))
    assert (outcome.finish, bytes(outcome.ids)) == (Finish.COMPLETE, b"Hel")


def test_nothing_to_prefill():
    backend, state = scripted()
    outcome, progress = run(backend, state, prefill=[])
    assert (progress, outcome.prefilled, outcome.position) == ([], 2, 2 + len(REPLY))


# --- the scripted backend itself -----------------------------------------------------------------------------------


@pytest.mark.parametrize("hybrid", [False, True])
def test_scripted_restore_round_trip(hybrid):
    backend = ScriptedBackend(hybrid=hybrid)
    live = backend.new_state()
    backend.prefill(live, PROMPT[:7])
    first = backend.copy_state(live, 0)
    backend.prefill(live, PROMPT[7:])
    second = backend.copy_state(live, 7)
    restored = backend.restore(MemoryStored([first, second]))
    assert restored.bytes == 4 * 20 + 16 * hybrid
    assert backend.ids(restored.state) == PROMPT
    both = [list(backend.decode(state, HEADER, Sampling(), 99)) for state in (live, restored.state)]
    assert both[0] == both[1]


def test_scripted_restore_refuses_what_is_not_its_own():
    rows, hybrid = ScriptedBackend(hybrid=False), ScriptedBackend(hybrid=True)
    state = rows.new_state()
    rows.prefill(state, PROMPT)
    copy = rows.copy_state(state, 0)
    for stored in (MemoryStored([copy]), MemoryStored([StateCopy(0, 20, (), None)])):
        with pytest.raises(CheckpointRejected):
            hybrid.restore(stored)


def test_scripted_mark_beyond_a_rewind_is_refused():
    backend, state = scripted()
    backend.prefill(state, [1, 2])
    outer = backend.mark(state)
    backend.prefill(state, [3])
    inner = backend.mark(state)
    backend.rewind(state, outer)
    backend.prefill(state, [4, 5])
    with pytest.raises(ValueError, match="the mark at 3"):
        backend.rewind(state, inner)
    backend.rewind(state, outer)
    assert backend.ids(state) == [1, 2]


def test_scripted_replies_tell_apart_states_that_differ_in_one_id():
    backend = ScriptedBackend()
    answers = []
    for last in (5, 6):
        state = backend.new_state()
        backend.prefill(state, [1, 2, last])
        answers.append(bytes(list(backend.decode(state, [9], Sampling(), 99))[:-1]))
    assert answers[0] != answers[1]
    assert answers[0].startswith(b"I have read 4 tokens, digest ")
