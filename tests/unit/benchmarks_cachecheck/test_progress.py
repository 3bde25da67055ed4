"""Where a prefill stood, from what was said of it."""

from __future__ import annotations

import pytest

from benchmarks.cachecheck.progress import longest_pass, share_done

SLOWER_AND_SLOWER = [(1.0, 0.4), (3.0, 0.7), (7.0, 1.0)]


@pytest.mark.parametrize(
    ("seconds", "share"), [(0.0, 0.0), (0.5, 0.2), (1.0, 0.4), (2.0, 0.55), (5.0, 0.85), (7.0, 1.0), (9.0, 1.0)]
)
def test_it_is_straight_between_what_was_said(seconds: float, share: float) -> None:
    assert share_done(SLOWER_AND_SLOWER, seconds) == pytest.approx(share)


def test_two_words_at_the_same_moment_count_as_the_later_one() -> None:
    assert share_done([(1.0, 0.1), (1.0, 0.3), (2.0, 0.5)], 1.0) == pytest.approx(0.3)


def test_of_nothing_nothing_is_known() -> None:
    with pytest.raises(ValueError, match="nothing was said"):
        share_done([], 1.0)


def test_the_longest_pass_in_time_and_in_what_it_adds() -> None:
    assert longest_pass(SLOWER_AND_SLOWER) == pytest.approx((4.0, 0.4))
    assert longest_pass([(1.0, 0.1), (2.0, 0.5), (3.0, 0.6)]) == pytest.approx((1.0, 0.4))
    assert longest_pass([]) == (0.0, 0.0)
