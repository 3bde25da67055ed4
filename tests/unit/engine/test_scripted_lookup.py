"""Drafting from a source, with the scripted model: the loop that the real one runs, at every place it can end.

The script is the truth: whatever is proposed, the ids are the script's, and the state has read what was yielded.
"""

from contextlib import closing
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmlx_lsp.engine import lookup
from qmlx_lsp.engine.backend import Sampling
from qmlx_lsp.engine.generation import Job, generate
from qmlx_lsp.engine.scripted import DRAFT_ROWS, ScriptedBackend
from qmlx_lsp.engine.scripted_tokenizer import END_OF_TURN
from qmlx_lsp.transcript.entry import Finish

GREEDY = Sampling()
HEADER = [100, 101, 102]
NOTHING: frozenset[int] = frozenset()
KINDS = pytest.mark.parametrize("hybrid", [False, True], ids=["rows", "hybrid"])
TEXT = list(range(48))
# One id replaced, one left out, some put in, the end missing.
EDITED = [*TEXT[:11], 200, *TEXT[12:20], *TEXT[21:30], 201, 202, 203, 204, 205, 206, *TEXT[30:44], 207]


def scripted(reply, *, hybrid, **options):
    backend = ScriptedBackend([reply], hybrid=hybrid, **options)
    return backend, backend.new_state()


def decoding(backend, state, source, most=1000, spare=NOTHING):
    return closing(backend.decode(state, HEADER, GREEDY, most, spare, source=source))


def goes_on(backend, state):
    """Without a script the answer names all that was read, by a digest if the state cannot be cut."""
    backend._replies.clear()
    return list(backend.decode(state, [7], GREEDY, 99))


def check_has_read(backend, state, hybrid, ids):
    assert backend.ids(state) == ids
    fresh = ScriptedBackend(hybrid=hybrid)
    other = fresh.new_state()
    fresh.prefill(other, ids)
    assert goes_on(backend, state) == goes_on(fresh, other)


@KINDS
def test_whole_copy_takes_a_pass_for_each_proposal(hybrid):
    assert DRAFT_ROWS == 8
    backend, state = scripted(TEXT, hybrid=hybrid)
    with decoding(backend, state, TEXT, len(TEXT)) as stream:
        assert list(stream) == TEXT
    # The header, then 48 ids, each pass one that is known and seven proposed.
    assert (backend.passes.passes, backend.passes.rows) == (1 + 6, len(HEADER) + 48)
    check_has_read(backend, state, hybrid, [*HEADER, *TEXT])


def test_an_edit_takes_as_many_passes_with_a_state_that_cannot_be_cut():
    """What was right stays unread until the next pass: more rows, and one pass at the end, for the last is wrong."""
    counted = {}
    for hybrid in (False, True):
        backend, state = scripted([*EDITED[:-1], END_OF_TURN], hybrid=hybrid)
        with decoding(backend, state, TEXT, spare=frozenset({END_OF_TURN})) as stream:
            assert list(stream) == EDITED[:-1]
        counted[hybrid] = backend.passes.passes, backend.passes.rows
    assert counted[True][0] == counted[False][0] + 1 < len(EDITED) / 2
    assert counted[True][1] > counted[False][1]


@KINDS
@pytest.mark.parametrize("after", range(1, len(EDITED) + 1))
def test_closing_behind_every_id(hybrid, after):
    backend, state = scripted(EDITED, hybrid=hybrid)
    with decoding(backend, state, TEXT) as stream:
        got = [next(stream) for _ in range(after)]
        before = backend.passes.passes
    assert got == EDITED[:after]
    assert backend.passes.passes - before in ({0, 1} if hybrid else {0})
    check_has_read(backend, state, hybrid, [*HEADER, *EDITED[:after]])


@KINDS
@pytest.mark.parametrize("most", range(len(EDITED) + 1))
def test_no_pass_reads_further_than_the_limit(hybrid, most):
    backend, state = scripted(EDITED, hybrid=hybrid)
    reached = []
    feed = backend._feed

    def watched(state, ids, kind):
        feed(state, ids, kind)
        reached.append(backend.position(state))

    backend._feed = watched
    with decoding(backend, state, TEXT, most) as stream:
        assert list(stream) == EDITED[:most]
    assert max(reached) <= len(HEADER) + most
    check_has_read(backend, state, hybrid, [*HEADER, *EDITED[:most]])


@KINDS
@pytest.mark.parametrize("at", range(len(TEXT)))
def test_id_that_must_not_be_read_ends_it_wherever_it_is_proposed(hybrid, at):
    backend, state = scripted(TEXT, hybrid=hybrid)
    with decoding(backend, state, TEXT, spare=frozenset({TEXT[at]})) as stream:
        assert list(stream) == TEXT[:at]
    check_has_read(backend, state, hybrid, [*HEADER, *TEXT[:at]])


ids = st.lists(st.integers(0, 4), max_size=60)


@given(source=ids, reply=st.lists(st.integers(0, 5), max_size=80), hybrid=st.booleans(), data=st.data())
def test_whatever_is_proposed_the_script_is_yielded_and_read(source, reply, hybrid, data):
    """A script of few ids: runs come again, proposals are wrong in every way, and drafting rests and wakes."""
    after = data.draw(st.integers(0, len(reply)))
    spare = frozenset(data.draw(st.sets(st.integers(4, 5), max_size=1)))
    ends = next((n for n, token in enumerate(reply) if token in spare), len(reply))
    backend, state = scripted(reply, hybrid=hybrid)
    with decoding(backend, state, source, spare=spare) as stream:
        got = [token for _, token in zip(range(after), stream, strict=False)]
    assert got == reply[: min(after, ends)]
    if after:
        check_has_read(backend, state, hybrid, [*HEADER, *got])


@KINDS
def test_state_may_be_taken_away_between_two_ids_and_put_back(hybrid):
    """As an inline completion does: what is behind a mark is set aside, other ids are read, and all is put back."""
    backend = ScriptedBackend([EDITED, *[[1, 2, 3]] * len(EDITED)], hybrid=hybrid)
    state = backend.new_state()
    backend.prefill(state, [50, 51])
    base = backend.mark(state)
    got, ahead, behind = [], 0, 0
    with decoding(backend, state, TEXT) as stream:
        for token in stream:
            got.append(token)
            position, held = backend.position(state), backend._states[state]
            # Where it says it stands is true: the ids read are those of the reply, or of the reply to come.
            assert held.ids == [50, 51, *HEADER, *EDITED][:position]
            ahead += position > 2 + len(HEADER) + len(got)
            behind += position < 2 + len(HEADER) + len(got)
            aside = list(held.ids), held.digest
            backend.rewind(state, base)
            assert list(backend.decode(state, [60], GREEDY, 3)) == [1, 2, 3]
            held.ids, held.digest = aside
    assert got == EDITED
    assert ahead
    assert bool(behind) == hybrid
    check_has_read(backend, state, hybrid, [50, 51, *HEADER, *EDITED])


def test_so_much_may_be_unread_and_then_a_pass_reads_it_all(monkeypatch):
    monkeypatch.setattr(lookup, "UNREAD_MAX", 4)
    # Each pair of ids is found by itself, and what follows it in the source is wrong.
    source = [token for n in range(60) for token in (n, 100 + n, 250)]
    reply = [token for n in range(60) for token in (n, 100 + n)]
    longest = []
    backend, state = scripted(reply, hybrid=True)
    feed = backend._feed

    def watched(state, ids, kind):
        longest.append(len(ids))
        feed(state, ids, kind)

    backend._feed = watched
    with decoding(backend, state, source) as stream:
        for number, _ in enumerate(stream, 1):
            # At most what may be unread, and the ids of one pass.
            assert backend.position(state) >= len(HEADER) + number - 4 - DRAFT_ROWS
    # One known and seven proposed, one of them right; two unread, one known, four proposed; then nothing is proposed.
    assert longest[:4] == [len(HEADER), 8, 2 + 1 + 4, 4 + 1]
    check_has_read(backend, state, True, [*HEADER, *reply])


# --- one reply ------------------------------------------------------------------------------------------------------

PROMPT = [1, 2, 3, 4, 5]
REPLY = [*EDITED, END_OF_TURN]


def run(backend, state, cancelled=lambda: False, on_token=lambda _id: None, **changes):
    values = {
        "state": state, "prefill": PROMPT, "header": HEADER, "eos_ids": frozenset({END_OF_TURN}), "max_tokens": 500,
        "sampling": GREEDY, "chunk_tokens": 8, "source": TEXT,
    }  # fmt: skip
    return generate(
        backend, Job(**(values | changes)), cancelled=cancelled, on_token=on_token, on_prefill=lambda _d, _t: None
    )


@KINDS
def test_reply_with_a_source_is_the_same_in_fewer_passes(hybrid):
    backend, state = scripted(REPLY, hybrid=hybrid)
    outcome = run(backend, state)
    assert (outcome.finish, list(outcome.ids)) == (Finish.COMPLETE, REPLY)
    assert outcome.passes == backend.passes.passes < len(REPLY) // 2
    assert outcome.prefilled == len(PROMPT) + len(HEADER)
    check_has_read(backend, state, hybrid, [*PROMPT, *HEADER, *REPLY])


@KINDS
def test_end_token_among_the_ids_of_a_pass(hybrid):
    """It is proposed, and more behind it; the reply ends there and nothing behind it stays."""
    text = [*TEXT[:20], END_OF_TURN, *TEXT[20:]]
    backend, state = scripted(text, hybrid=hybrid)
    outcome = run(backend, state, source=text)
    assert (outcome.finish, list(outcome.ids)) == (Finish.COMPLETE, text[:21])
    check_has_read(backend, state, hybrid, [*PROMPT, *HEADER, *text[:21]])


@KINDS
@pytest.mark.parametrize("tokens", range(1, len(REPLY)))
def test_cancel_behind_every_id(hybrid, tokens):
    backend, state = scripted(REPLY, hybrid=hybrid)
    seen = []
    outcome = run(backend, state, cancelled=lambda: len(seen) >= tokens, on_token=seen.append)
    assert (outcome.finish, list(outcome.ids)) == (Finish.CANCELLED, REPLY[:tokens])
    assert outcome.position == len(PROMPT) + len(HEADER) + tokens
    check_has_read(backend, state, hybrid, [*PROMPT, *HEADER, *REPLY[:tokens]])


@KINDS
@pytest.mark.parametrize("failing", range(1, 20))
def test_error_in_a_pass_goes_back_to_the_prompt(hybrid, failing):
    passes = count()

    def fail(_kind, _length):
        if next(passes) == failing:
            raise RuntimeError("device lost")

    backend, state = scripted(REPLY, hybrid=hybrid, before_pass=fail)
    outcome = run(backend, state)
    assert (outcome.finish, outcome.error) == (Finish.ERROR, "RuntimeError: device lost")
    assert list(outcome.ids) == REPLY[: len(outcome.ids)]
    assert (outcome.position, outcome.header_read, outcome.passes) == (len(PROMPT), False, failing)
    check_has_read(backend, state, hybrid, PROMPT)


def test_error_in_the_pass_that_closes_a_cancelled_reply_takes_it_back():
    """What was produced but could not be read is not said to be in the state."""
    backend, state = scripted(REPLY, hybrid=True)
    seen = []

    def fail(_kind, _length):
        if len(seen) == 4:  # behind the fourth id, four more of the pass are in the state
            raise RuntimeError("device lost")

    backend._before_pass = fail
    outcome = run(backend, state, cancelled=lambda: len(seen) >= 4, on_token=seen.append)
    assert (outcome.finish, outcome.position) == (Finish.ERROR, len(PROMPT))
    backend._before_pass = lambda _kind, _length: None
    check_has_read(backend, state, True, PROMPT)
