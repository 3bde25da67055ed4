"""Proposals against the rule written out: every place of the source looked at, no index, no shortcut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmlx_lsp.engine import draft
from qmlx_lsp.engine.draft import Drafter

FEW_IDS = st.lists(st.integers(0, 3), max_size=40)  # so few that runs come again


def places(source, tail):
    """Behind which places of ``source`` the longest end of ``tail`` stands that stands anywhere, four ids at most."""
    for n in (4, 3, 2, 1):
        if n <= len(tail):
            found = [end for end in range(n, len(source)) if source[end - n : end] == tail[-n:]]
            if found:
                return found
    return []


class Reference:
    """Cursor, length, misses as the module's docstring has them."""

    def __init__(self, source, rows):
        self.source, self.most = source, rows - 1
        self.cursor, self.length, self.misses = 0, min(8, rows - 1), 0
        self.at, self.given = None, 0

    def propose(self, tail, room):
        found = places(self.source, tail)
        self.at, self.given = None, 0
        if not found or min(self.length, room) == 0:
            return []
        distance = min(abs(end - self.cursor) for end in found)
        self.at = max(end for end in found if abs(end - self.cursor) == distance)
        run = self.source[self.at : self.at + min(self.length, room)]
        self.given = len(run)
        return run

    def judged(self, right):
        start = self.cursor if self.at is None else self.at
        self.cursor = min(start + right + 1, len(self.source))
        self.misses = self.misses + 1 if right == 0 else 0
        if self.at is not None:
            wanted = 4 if right == 0 else 2 * self.length if right == self.given else 2 * right + 2
            self.length = min(wanted, self.most)


@given(FEW_IDS, st.integers(2, 20), st.data())
def test_proposals_are_those_of_the_rule(source, rows, data):
    drafter, reference = Drafter(source, rows), Reference(source, rows)
    for _ in range(data.draw(st.integers(1, 12))):
        if drafter.resting:
            assert reference.misses >= 3 or not source
            return
        tail = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=6))
        room = data.draw(st.integers(1, 30))
        proposed = drafter.propose(tail, room)
        assert proposed == reference.propose(tail, room)
        assert len(proposed) <= min(room, rows - 1)
        right = data.draw(st.integers(0, len(proposed)))
        drafter.judged(right)
        reference.judged(right)
    assert not drafter.resting or reference.misses >= 3


def follow(source, reply, rows=17):
    """Passes, as (proposed, right), that it takes to write ``reply``."""
    drafter, done, passes = Drafter(source, rows), 0, []
    while done < len(reply):
        known = reply[: done + 1]
        proposed = drafter.propose(known[-4:], len(reply) - done - 1)
        ahead = reply[done + 1 :]
        right = next((i for i, token in enumerate(proposed) if ahead[i] != token), len(proposed))
        drafter.judged(right)
        passes.append((len(proposed), right))
        done += 1 + right
    return passes


def test_a_copy_is_proposed_in_ever_longer_runs():
    text = list(range(60))
    # One known id and eight proposed, then one and sixteen each time; the end of the source ends the last one.
    assert follow(text, text) == [(8, 8), (16, 16), (16, 16), (16, 16)]


def test_behind_one_replaced_id_the_copy_goes_on_at_the_place_behind_it():
    text = [*range(20), 7, *range(20, 40)]
    reply = [*text[:10], 99, *text[11:]]
    passes = follow(text, reply)
    # 0..8; then 9 with ten wrong; 99 occurs nowhere; 11, which is at the cursor, and all the rest of it.
    assert passes[:3] == [(8, 8), (16, 0), (0, 0)]
    assert passes[3] == (4, 4)
    assert sum(1 + right for _, right in passes) == len(reply)


def test_of_repeated_code_the_place_by_the_cursor_is_taken():
    block = [1, 2, 3]
    source = [*block, 10, *block, 11, *block, 12]
    drafter = Drafter(source, 2)
    taken = []
    for known, following in pairwise(source):
        proposed = drafter.propose([known], 1)
        taken.append(proposed == [following])
        drafter.judged(int(taken[-1]))
    # Known by one id only, and yet it was always the right one of the three places.
    assert taken[:9] == [True] * 9


def rest(drafter):
    for _ in range(draft.MISSES_MAX):
        assert not drafter.resting
        drafter.propose([99], 5)
        drafter.judged(0)
    assert drafter.resting


def test_it_rests_behind_three_misses_and_looks_again_behind_sixteen_ids():
    drafter = Drafter([1, 2, 3, 4, 5, 6], 8)
    rest(drafter)
    for _ in range(draft.REST_TOKENS - 1):
        drafter.passed([96, 97, 98, 99])
        assert drafter.resting
    drafter.passed([96, 97, 98, 99])
    assert not drafter.resting
    drafter.propose([99], 5)
    drafter.judged(0)  # one miss is enough now
    assert drafter.resting


def test_it_wakes_when_the_last_four_ids_stand_in_the_source():
    drafter = Drafter([1, 2, 3, 4, 5, 6], 8)
    rest(drafter)
    drafter.passed([0, 2, 3, 4])
    assert drafter.resting
    drafter.passed([1, 2, 3, 4])
    assert not drafter.resting
    assert drafter.propose([1, 2, 3, 4], 5) == [5, 6]
    drafter.judged(2)
    drafter.propose([99], 5)
    drafter.judged(0)
    assert not drafter.resting  # what was right has ended the series


@pytest.mark.parametrize(("source", "rows"), [([], 8), ([1, 2, 3], 1)])
def test_without_source_or_rows_it_never_wakes(source, rows):
    drafter = Drafter(source, rows)
    assert drafter.resting
    for _ in range(40):
        drafter.passed([1, 2])
    assert drafter.resting


def test_of_a_huge_source_the_beginning_is_looked_at(monkeypatch):
    monkeypatch.setattr(draft, "SOURCE_MAX", 5)
    drafter = Drafter([1, 2, 3, 4, 5, 6, 7], 8)
    assert drafter.propose([2], 8) == [3, 4, 5]
    drafter.judged(3)
    assert drafter.propose([6], 8) == []
