"""What to expect of which model, from what this machine was measured to do. Pure.

Estimates, all of them simple: writing a token reads every active weight and the conversation's state once; reading
a token multiplies every active weight once, and attends to what stands before it; a restore reads the state.

Invariant: a figure that was measured is never replaced by an estimate, and an estimate never passes for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from qmlx_lsp.measure.figures import Figure, figure
from qmlx_lsp.measure.model import Loaded

EXPECTED_TOKENS = 32_768  # of the conversation that is spoken of
WRITTEN_TOKENS = 1_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model by what it costs: bytes of ``weights`` and of the ``active`` ones that each token reads, ``parameters``
    that are active, whether they are ``experts`` of a mixture, bytes of state for each token (``row``) and beside
    them (``whole``), ``attention``: layers that attend to everything, times their width."""

    name: str
    weights: float
    active: float
    parameters: float
    experts: bool
    row: int
    whole: float
    attention: int


# The names are those that public projects load, and the weights of gpt-oss, the 7B, the 30B and the 122B what they
# report on disk. What is active is computed from the published shapes (layers, widths, experts; the test has them):
# everything that a token is multiplied with, which the embedding's table is only where it is the head as well. 4 bits
# are 4.5 with scales and biases, gpt-oss has 4.25 in its experts and 8.5 elsewhere.
CANDIDATES = (
    Candidate("mlx-community/Qwen2.5-Coder-3B-Instruct-4bit", 1.74e9, 1.74e9, 3.09e9, False, 36_864, 0, 36 * 2_048),
    Candidate("mlx-community/Qwen2.5-Coder-7B-Instruct-4bit", 4.28e9, 3.98e9, 7.07e9, False, 57_344, 0, 28 * 3_584),
    Candidate("mlx-community/gpt-oss-20b-MXFP4-Q8", 12.1e9, 2.6e9, 3.6e9, True, 24_576, 3.1e6, 12 * 4_096),
    Candidate("mlx-community/Qwen3-Coder-30B-A3B-Instruct-4bit", 17.2e9, 1.71e9, 3.04e9, True, 98_304, 0, 48 * 4_096),
    Candidate("mlx-community/Qwen3.5-35B-A3B-4bit", 20.4e9, 1.66e9, 2.95e9, True, 20_480, 64.4e6, 10 * 4_096),
    Candidate("mlx-community/Qwen3-Coder-Next-4bit", 44.8e9, 2.00e9, 3.56e9, True, 24_576, 77.3e6, 12 * 4_096),
    Candidate("mlx-community/Qwen3.5-122B-A10B-4bit", 69.6e9, 5.07e9, 9.01e9, True, 24_576, 153.6e6, 12 * 8_192),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Expectation:
    """Of the model ``name``, at ``tokens``. ``measured``: reading and writing are this machine's; else all is about.

    ``estimated_*`` stand beside what was measured, where there is an estimate too; writing then was ``behind`` so
    many tokens, and is estimated there. Rates are tokens per second, sizes bytes; None is what nothing is known of.
    """

    name: str
    weight_bytes: float
    needed_bytes: float
    fits: bool | None
    tokens: int
    measured: bool
    prefill: float | None
    decode: float | None
    cold_s: float | None
    restored_s: float | None
    written_bytes: float
    estimated_prefill: float | None = None
    estimated_decode: float | None = None
    behind: int | None = None


def expect(
    found: Mapping[str, Figure],
    memory: int | None,
    loaded: Loaded | None,
    candidates: tuple[Candidate, ...] = CANDIDATES,
) -> list[Expectation]:
    """One for each of ``candidates``, the smallest first, and before them the model that was measured, if any."""
    known = dict(found)
    expected = [_estimated(one, known, memory) for one in candidates]
    if loaded is None:
        return expected
    listed = next((one for one in candidates if one.name == loaded.name), None)
    beside = next((one for one in expected if one.name == loaded.name), None)
    rest = [one for one in expected if one is not beside]
    first = _measured(loaded, known, memory, beside)
    if listed is not None:
        first = replace(first, estimated_decode=_decode(listed, loaded.behind, known))
    return [first, *rest]


def _estimated(one: Candidate, found: dict[str, Figure], memory: int | None) -> Expectation:
    tokens = EXPECTED_TOKENS
    state = one.whole + one.row * tokens
    needed = one.weights + state
    chunk_s = figure(found, "weights_experts" if one.experts else "weights_chunk")
    dense_s = figure(found, "matmul")
    cold = None
    if chunk_s is not None:
        attended = 2.0 * one.attention * tokens**2  # queries with keys, weights with values: half of each square
        cold = 2 * one.parameters * tokens / chunk_s + attended / (dense_s or chunk_s)
    return Expectation(
        one.name,
        one.weights,
        needed,
        None if memory is None else needed <= memory,
        tokens,
        measured=False,
        prefill=None if chunk_s is None else chunk_s / (2 * one.parameters),
        decode=_decode(one, tokens, found),
        cold_s=cold,
        restored_s=_restored(state, found),
        written_bytes=one.whole + one.row * WRITTEN_TOKENS,
    )


def _measured(
    loaded: Loaded, found: dict[str, Figure], memory: int | None, beside: Expectation | None
) -> Expectation:
    tokens = min(EXPECTED_TOKENS, loaded.context_tokens)
    state = loaded.snapshot_bytes + loaded.row_bytes * tokens
    needed = loaded.weight_bytes + state
    prefill = next((rate for key in ("prefill_2048", "prefill_512") if (rate := figure(found, key))), None)
    cold = tokens / prefill if prefill else None
    if prefill and beside is not None and beside.tokens == tokens and beside.cold_s and beside.prefill:
        cold = beside.cold_s * beside.prefill / prefill  # with what attention adds as the prompt grows
    return Expectation(
        loaded.name,
        loaded.weight_bytes,
        needed,
        None if memory is None else needed <= memory,
        tokens,
        measured=True,
        prefill=prefill,
        decode=figure(found, "decode"),
        cold_s=cold,
        restored_s=_restored(state, found),
        written_bytes=loaded.snapshot_bytes + loaded.row_bytes * WRITTEN_TOKENS,
        estimated_prefill=beside.prefill if beside else None,
        behind=loaded.behind,
    )


def _decode(one: Candidate, tokens: int, found: dict[str, Figure]) -> float | None:
    """Tokens per second behind ``tokens`` others."""
    speed = figure(found, "weights_row")
    return None if speed is None else speed / (one.active + one.whole + one.row * tokens)


def _restored(state: float, found: dict[str, Figure]) -> float | None:
    """Seconds to read ``state`` as checkpoints are restored here."""
    speed = figure(found, "restore")
    return state / speed if speed else None
