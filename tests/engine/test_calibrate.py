"""How many rows a pass gets: from curves that are known, and measured with a clock that is not a clock."""

from itertools import count

import pytest

from qmlx_lsp.engine.backend import Sampling
from qmlx_lsp.engine.mlx import calibrate
from qmlx_lsp.engine.mlx.caches import make_caches
from qmlx_lsp.engine.mlx.calibrate import best_rows, measure
from tests.support import tiny_models

SIZES = (1, 2, 4, 8, 16, 32)


def curve(cost, sizes=SIZES):
    return {rows: cost(rows) for rows in sizes}


@pytest.mark.parametrize(
    ("times", "best"),
    [
        pytest.param(curve(lambda rows: 1.0), 32, id="rows are free"),
        pytest.param(curve(lambda rows: float(rows)), 1, id="every row costs a whole pass"),
        pytest.param(curve(lambda rows: 0.9 + 0.09 * rows), 32, id="a small dense model on a processor"),
        pytest.param(curve(lambda rows: 1.0 if rows <= 8 else 4.0), 8, id="other kernels from nine rows on"),
        # Independent experts, 8 of 128: 2, 4, 8 … rows touch 1.94, 3.6, 6.5, 10.3 and 14 times as many. Of 32 rows at
        # most an id takes 11.0 / 18.1 and 7.7 / 8.5 of a pass, of fewer rows more.
        pytest.param({1: 1.0, 2: 1.94, 4: 3.6, 8: 6.5, 16: 10.3, 32: 14.0}, 32, id="mixture of experts"),
        pytest.param(curve(lambda rows: 1.0, (1, 2, 4)), 4, id="what was not measured is not chosen"),
        pytest.param(curve(lambda rows: 1.0, (1, 8, 32)), 32, id="three sizes say enough"),
        pytest.param({1: 1.0, 2: 1.95}, 1, id="a gain as small as chance"),
    ],
)
def test_rows_that_copy_most_in_the_same_time(times, best):
    assert best_rows(times) == best


def test_the_mean_of_both_kinds_of_edits_decides():
    # Passes take 1.0 up to 8 rows and 2.0 with 16, on a line between; ids and rows of a pass as in the table.
    times = {1: 1.0, 8: 1.0, 16: 2.0}
    line_8, name_8 = 1 / 6.97, 1 / 5.21
    line_16, name_16 = (1 + (12.32 - 8) / 8) / 11.95, (1 + (8.24 - 8) / 8) / 7.15
    assert line_8 + name_8 > line_16 + name_16
    assert best_rows(times) == 16


def fresh():
    model = tiny_models.make("hybrid")
    return model, make_caches(model)


def test_every_size_is_measured_and_the_quicker_of_two_passes_counts():
    # Start of all; then start and end of each pass: the first takes 7, the second 3; and one look at the budget.
    ticks = iter([0.0, *[0.0, 0.7, 0.0, 0.3] * 3, *[0.0, 0.0, 0.7, 0.0, 0.3] * 3])
    model, caches = fresh()
    assert measure(model, caches, [1, 2, 3], lambda: next(ticks)) == dict.fromkeys(SIZES, 0.3)
    assert next(ticks, None) is None
    # Two passes of each size over ids that are repeated, on one state.
    assert [cache.offset for cache in caches if hasattr(cache, "offset")] == [2 * sum(SIZES)]


def test_slow_machine_measures_the_three_sizes_that_say_most():
    seconds = count(0.0, 1.0)
    model, caches = fresh()
    assert set(measure(model, caches, [1, 2, 3], lambda: next(seconds))) == {1, 8, 32}


def test_measured_once_for_each_model_and_only_when_something_may_be_copied(monkeypatch):
    asked = []

    def measured(model, caches, ids):
        asked.append(list(ids))
        return {1: 1.0, 8: 1.0}

    monkeypatch.setattr(calibrate, "measure", measured)
    backend = tiny_models.backend("llama")

    def decode(source):
        state = backend.new_state()
        list(backend.decode(state, [1], Sampling(), 4, source=source))

    decode(())
    assert asked == []
    decode([1, 2, 3])
    decode([4, 5, 6])
    assert asked == [[1, 2, 3]]
    backend.use(tiny_models.make("hybrid"), needs_snapshot=True)
    decode([7, 8])
    assert asked == [[1, 2, 3], [7, 8]]


def test_its_passes_are_not_those_of_the_reply():
    backend = tiny_models.backend("hybrid")
    state = backend.new_state()
    list(backend.decode(state, [1], Sampling(), 1, source=[1, 2, 3]))
    assert backend.passes.passes == 2


def test_model_that_cannot_be_measured_is_decoded_plainly(monkeypatch, caplog):
    def fails(*_args):
        raise RuntimeError("secret of the machine")

    monkeypatch.setattr(calibrate, "measure", fails)
    backend = tiny_models.backend("llama")
    state = backend.new_state()
    assert len(list(backend.decode(state, [1], Sampling(), 5, source=[1, 2, 3]))) == 5
    assert backend.passes.passes == 1 + 5
    assert "RuntimeError" in caplog.text
    assert "secret" not in caplog.text
