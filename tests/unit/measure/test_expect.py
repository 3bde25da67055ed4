"""What is expected of models: every number below was worked out by hand from the measured ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qmlx_lsp.measure.expect import CANDIDATES, Candidate, expect
from qmlx_lsp.measure.figures import Figure
from qmlx_lsp.measure.model import Loaded, too_large

# 32,768 rows of 10,000 bytes and 72.32 MB beside them are 400 MB.
DENSE = Candidate("a/dense", 4e9, 2e9, 4e9, experts=False, row=10_000, whole=72_320_000, attention=1_000)
MIXTURE = replace(DENSE, name="a/mixture", experts=True)
MACHINE = {
    name: Figure(name, value, unit)
    for name, value, unit in (
        ("weights_row", 240e9, "bytes/s"),
        ("weights_chunk", 8e12, "flop/s"),
        ("weights_experts", 2e12, "flop/s"),
        ("matmul", 16e12, "flop/s"),
        ("restore", 2e9, "bytes/s"),
    )
}


def test_an_estimate() -> None:
    (found,) = expect(MACHINE, 5_000_000_000, None, (DENSE,))
    assert found.decode == pytest.approx(100)  # 240e9 / (2e9 + 0.4e9)
    assert found.prefill == pytest.approx(1_000)  # 8e12 / (2 * 4e9)
    # 32.768 s for the weights; 2 * 1,000 * 32,768 squared are 2.147 Tflop of attention at 16 Tflop/s
    assert found.cold_s == pytest.approx(32.768 + 0.134217728)
    assert found.restored_s == pytest.approx(0.2)
    assert found.written_bytes == 82_320_000
    assert found.needed_bytes == pytest.approx(4.4e9)
    assert (found.tokens, found.measured) == (32_768, False)


def test_a_mixture_is_read_at_the_speed_of_experts_and_written_like_any_other() -> None:
    (found,) = expect(MACHINE, None, None, (MIXTURE,))
    assert found.prefill == pytest.approx(250)
    assert found.decode == pytest.approx(100)
    assert found.fits is None


@pytest.mark.parametrize(("memory", "fits"), [(4_400_000_000, True), (4_399_999_999, False)])
def test_a_model_fits_with_its_state_or_not_at_all(memory: int, fits: bool) -> None:
    assert expect(MACHINE, memory, None, (DENSE,))[0].fits is fits


def test_nothing_is_made_up_of_what_was_not_measured() -> None:
    (found,) = expect({"restore": Figure("restore", None, "bytes/s", note="no space")}, None, None, (DENSE,))
    assert (found.decode, found.prefill, found.cold_s, found.restored_s) == (None, None, None, None)
    assert found.written_bytes == 82_320_000


def test_a_model_that_was_measured_stands_first_and_beside_its_estimate() -> None:
    measured = {
        **MACHINE,
        "prefill_512": Figure("prefill_512", 600.0, "tokens/s"),
        "prefill_2048": Figure("prefill_2048", 500.0, "tokens/s"),
        "decode": Figure("decode", 60.0, "tokens/s"),
    }
    loaded = Loaded("a/mixture", 4_100_000_000, 32_768, 10_000, 72_320_000, 768)
    first, second = expect(measured, None, loaded, (DENSE, MIXTURE))
    assert (first.name, first.measured, second.name, second.measured) == ("a/mixture", True, "a/dense", False)
    assert (first.prefill, first.decode) == (500.0, 60.0)
    # behind 768 tokens the state is 80 MB: 240e9 / 2.08e9
    assert (first.estimated_prefill, first.estimated_decode) == (pytest.approx(250), pytest.approx(115.3846153846))
    # estimated: 131.072 s of weights at 2 Tflop/s and 0.134 s of attention; twice as quick as that
    assert first.cold_s == pytest.approx((131.072 + 0.134217728) / 2)
    assert first.needed_bytes == 4_500_000_000


def test_an_unknown_model_is_expected_from_its_own_figures_at_the_length_that_it_reads() -> None:
    measured = {"prefill_512": Figure("prefill_512", 100.0, "tokens/s"), "restore": MACHINE["restore"]}
    first, *_ = expect(measured, None, Loaded("mine", 500, 8_000, 1_000, 0, 512), (DENSE,))
    assert (first.tokens, first.prefill, first.decode) == (8_000, 100.0, None)
    assert first.cold_s == pytest.approx(80)
    assert first.restored_s == pytest.approx(0.004)
    assert (first.written_bytes, first.estimated_prefill) == (1_000_000, None)


def test_a_model_of_the_list_that_reads_less_is_not_scaled_to_the_length() -> None:
    measured = {**MACHINE, "prefill_512": Figure("prefill_512", 100.0, "tokens/s")}
    first, *_ = expect(measured, None, Loaded("a/dense", 500, 8_000, 1_000, 0, 512), (DENSE,))
    assert first.cold_s == pytest.approx(80)


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        ("Qwen3.5-122B-A10B", 0.96),
        ("Qwen3-Coder-Next", 0.88),
        ("Qwen3.5-35B-A3B", 0.74),
        ("Qwen3-Coder-30B-A3B", 3.2),
        ("gpt-oss-20b", 0.81),
        ("Qwen2.5-Coder-7B", 1.9),
    ],
)
def test_the_models_have_the_states_that_were_worked_out_of_their_configurations(name: str, gigabytes: float) -> None:
    (found,) = [one for one in CANDIDATES if name in one.name]
    assert (found.whole + found.row * 32_768) / 1e9 == pytest.approx(gigabytes, rel=0.03)


def test_active_weights_are_never_more_than_all() -> None:
    assert all(one.active <= one.weights for one in CANDIDATES)
    assert [one.weights for one in CANDIDATES] == sorted(one.weights for one in CANDIDATES)


@pytest.mark.parametrize(
    ("memory", "speed", "said"),
    [
        (99, None, "memory"),
        (100, None, ""),
        (None, 10.0, ""),  # 10 s of the half of 20
        (None, 9.0, "about 11 s"),
    ],
)
def test_a_model_is_not_loaded_where_it_would_take_all_the_time(
    memory: int | None, speed: float | None, said: str
) -> None:
    found = too_large(100, memory, speed, 20.0)
    assert bool(found) == bool(said)
    assert said in found
