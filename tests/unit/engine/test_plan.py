"""Where a turn starts: against a reference that tries every start and takes the best."""

from hypothesis import given
from hypothesis import strategies as st

from qmlx_lsp.engine.plan import Plan, Start, resume_plan

SMALL = st.integers(min_value=0, max_value=40)


def reference(wanted: int, live: int | None, stored: list[int], gain: int) -> Plan:
    """All allowed starts, ranked by how far they get; a restore counts only with its lead over the live state."""
    usable = live if live is not None and live <= wanted else None
    starts = [Plan(Start.COLD, 0)]
    if usable:
        starts.append(Plan(Start.LIVE, usable))
    for index, position in enumerate(stored):
        lead = position if usable is None else position - usable
        if 0 < position <= wanted and (usable is None or lead >= gain):
            starts.append(Plan(Start.RESTORE, position, index))
    best = max(plan.position for plan in starts)
    return next(plan for plan in starts if plan.position == best)  # of two equal checkpoints the first


@given(SMALL, st.none() | SMALL, st.lists(SMALL, max_size=5), st.integers(min_value=1, max_value=20))
def test_plan_is_the_best_start(wanted, live, stored, gain):
    stored.sort(reverse=True)
    assert resume_plan(wanted, live, stored, gain) == reference(wanted, live, stored, gain)


def test_nothing_is_cold():
    assert resume_plan(100, None, [], 64) == Plan(Start.COLD, 0)


def test_live_state_that_has_read_too_much_is_not_used():
    assert resume_plan(100, 101, [90], 64) == Plan(Start.RESTORE, 90, 0)


def test_small_lead_is_not_worth_reading():
    assert resume_plan(100, 40, [100], 64) == Plan(Start.LIVE, 40)
    assert resume_plan(104, 40, [104], 64) == Plan(Start.RESTORE, 104, 0)


def test_checkpoint_beyond_the_wanted_ids_is_passed_over():
    assert resume_plan(100, None, [120, 80, 60], 64) == Plan(Start.RESTORE, 80, 1)
