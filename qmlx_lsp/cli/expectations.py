"""What to expect of a model on a machine that was measured: arithmetic only, nothing is measured here.

Every figure is a bound: what the machine's memory and arithmetic allow a program that wastes nothing. Writing a
token reads the active weights once, so it is bound by the memory; reading a token multiplies by each of them, so it
is bound by arithmetic. A restored conversation is its state's bytes from the disk.

Sources: sizes and shapes are those of the models' published configurations; 4-bit weights take 4.5 bits with their
scales (groups of 64), the states are kept as mlx-lm keeps them (16-bit keys and values, 32-bit recurrent states).
"""

from __future__ import annotations

from dataclasses import dataclass

BYTES_PER_WEIGHT = 4.5 / 8
MEMORY_SHARE = 0.75
"""Of the memory, what macOS lets a GPU hold, about."""
CONTEXT_TOKENS = 32_768
"""The conversation that the expectations are about."""


@dataclass(frozen=True, slots=True)
class Known:
    """A model at 4 bits. ``weights`` and ``active`` (those of one token) in billions; ``row_bytes`` of state per
    token, ``fixed_bytes`` of state whatever the length."""

    name: str
    weights: float
    active: float
    row_bytes: int
    fixed_bytes: int = 0

    @property
    def weight_bytes(self) -> float:
        return self.weights * 1e9 * BYTES_PER_WEIGHT

    def state_bytes(self, tokens: int) -> int:
        return self.row_bytes * tokens + self.fixed_bytes


KNOWN = (
    Known("Qwen3.5-122B-A10B", 122, 10, 24 << 10, 153_600_000),
    Known("Qwen3-Coder-Next", 80, 3, 24 << 10, 77_300_000),
    Known("Qwen3.5-35B-A3B", 35, 3, 20 << 10, 64_400_000),
    Known("Qwen3-Coder-30B-A3B", 30.5, 3.3, 96 << 10),
    Known("gpt-oss-20b", 20.9, 3.6, 24 << 10, 3_100_000),
    Known("Qwen2.5-Coder-7B", 7.6, 7.6, 56 << 10),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """Bytes and operations a second, as measured; ``memory`` in bytes, where it is known."""

    memory: int | None
    read_per_s: float
    operations_per_s: float
    restore_per_s: float


@dataclass(frozen=True, slots=True)
class Expectation:
    """At best: tokens a second, and seconds to the first token of a question behind ``CONTEXT_TOKENS``."""

    model: str
    needs_bytes: int
    fits: bool | None
    decode_per_s: float
    prefill_per_s: float
    cold_s: float
    restored_s: float


def expect(model: Known, machine: Machine) -> Expectation:
    active = model.active * 1e9
    prefill = machine.operations_per_s / (2 * active)
    needs = round(model.weight_bytes + model.state_bytes(CONTEXT_TOKENS))
    return Expectation(
        model=model.name,
        needs_bytes=needs,
        fits=None if machine.memory is None else needs <= machine.memory * MEMORY_SHARE,
        decode_per_s=machine.read_per_s / (active * BYTES_PER_WEIGHT),
        prefill_per_s=prefill,
        cold_s=CONTEXT_TOKENS / prefill,
        restored_s=model.state_bytes(CONTEXT_TOKENS) / machine.restore_per_s,
    )
