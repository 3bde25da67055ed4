"""What is expected of a model, worked out by hand for round numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qmlx_lsp.cli.expectations import KNOWN, Known, Machine, expect

# 16 billion weights at 4.5 bits: 9 GB; 2 billion of them active: 1.125 GB.
MODEL = Known("Some", 16, 2, 100_000, 50_000_000)
MACHINE = Machine(memory=20_000_000_000, read_per_s=225e9, operations_per_s=8e12, restore_per_s=2e9)


def test_expectation() -> None:
    found = expect(MODEL, MACHINE)
    assert found.decode_per_s == pytest.approx(200)  # 225 GB/s of 1.125 GB a token
    assert found.prefill_per_s == pytest.approx(2_000)  # 8 TFLOP/s of 2 x 2 billion a token
    assert found.cold_s == pytest.approx(16.384)  # 32,768 tokens
    assert found.restored_s == pytest.approx(1.6634)  # 3,276,800,000 + 50,000,000 bytes at 2 GB/s
    assert found.needs_bytes == 12_326_800_000  # 9 GB and that state
    assert found.fits


@pytest.mark.parametrize(
    ("memory", "fits"), [(16_435_733_333, False), (16_435_733_334, True), (None, None)]
)  # three quarters of it hold 12,326,800,000 bytes, or not
def test_fits(memory: int | None, fits: bool | None) -> None:
    assert expect(MODEL, replace(MACHINE, memory=memory)).fits is fits


def test_the_published_restore_of_the_largest_is_within_what_a_disk_can() -> None:
    """36 x 4.19 MB and 32,768 x 24 KiB, from a disk of 5 GB/s: 192 ms, as others have computed it."""
    largest = next(model for model in KNOWN if "122B" in model.name)
    assert expect(largest, replace(MACHINE, restore_per_s=5e9)).restored_s == pytest.approx(0.192, abs=0.001)
