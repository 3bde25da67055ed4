"""What MLX does on this machine: passes to be timed, and states of noise in the shape of a model's.

The passes are those that reading and writing text consist of, with weights in four bits, as models for such
machines have them: one row (a token that is written), a chunk of rows (a prompt that is read), and a chunk of rows
that go to experts of a mixture. Numbers are noise: computing costs the same whatever they are.

It must never time anything itself, nor hold more than it was asked to.

Invariant: a pass is over, on the device too, when its call returns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache, KVCache

from qmlx_lsp.engine.mlx import rows
from qmlx_lsp.state import StateCopy, StoredState

BITS, GROUP = 4, 64  # of quantised weights: MLX's own defaults
WEIGHT_BYTES = BITS / 8 + 4 / GROUP  # bytes of one weight, with its share of a group's scale and bias (16 bits each)
WIDTH = 4_096  # rows and columns of a matrix of weights, in the middle of what models have
EXPERTS, EXPERT_IN, EXPERT_OUT, EXPERTS_PER_ROW = 128, 2_048, 768, 8  # the shape of Qwen3-30B-A3B


@dataclass(frozen=True, slots=True)
class Pass:
    """Something to be timed: one call moves ``nbytes`` and computes ``flop``."""

    call: Callable[[], None]
    nbytes: float
    flop: float


def on_gpu() -> bool:
    return mx.default_device().type == mx.DeviceType.gpu


def device() -> str:
    return str(mx.device_info().get("device_name", mx.default_device()))


def working_set_bytes() -> int | None:
    """Memory that the GPU may use at once without being slowed down, where the device says so."""
    if not on_gpu():
        return None
    size = mx.device_info().get("max_recommended_working_set_size")
    return int(size) if size else None


def let_go() -> None:
    """Give memory that MLX keeps for reuse back to the system."""
    mx.clear_cache()


def _done(*arrays: mx.array) -> None:
    mx.eval(*arrays)
    mx.synchronize()


def reading(nbytes: int) -> Pass:
    """Read ``nbytes`` of memory once."""
    held = mx.ones((nbytes // 4,), dtype=mx.float32)
    _done(held)
    return Pass(lambda: _done(mx.max(held)), nbytes, 0)


def multiplying(size: int) -> Pass:
    """Multiply two square matrices, of what models compute with here."""
    kind = mx.bfloat16 if on_gpu() else mx.float32
    left, right = (mx.random.uniform(shape=(size, size)).astype(kind) for _ in range(2))
    _done(left, right)
    return Pass(lambda: _done(left @ right), 0, 2.0 * size**3)


def one_row(nbytes: int) -> Pass:
    """One row through matrices of weights that are ``nbytes`` together: what writing one token reads."""
    each = WIDTH * WIDTH * WEIGHT_BYTES
    held = [_weights((), WIDTH, WIDTH) for _ in range(max(1, int(nbytes / each)))]
    row = mx.random.uniform(shape=(1, WIDTH)).astype(mx.bfloat16)
    _done(row)

    def call() -> None:
        out = row
        for weights in held:
            out = mx.quantized_matmul(out, *weights, transpose=True, group_size=GROUP, bits=BITS)
        _done(out)

    return Pass(call, len(held) * each, 2.0 * len(held) * WIDTH * WIDTH)


def chunk(count: int, most: int) -> Pass:
    """``count`` rows through a matrix of weights, ``most`` at once at most.

    Several chunks are one pass: waiting for the device after each would take as long as a chunk on a large GPU.
    """
    rows_of_it = min(count, most)
    weights, times = _weights((), WIDTH, WIDTH), max(1, count // rows_of_it)
    held = mx.random.uniform(shape=(rows_of_it, WIDTH)).astype(mx.bfloat16)
    _done(held)

    def one() -> mx.array:
        return mx.quantized_matmul(held, *weights, transpose=True, group_size=GROUP, bits=BITS)

    return Pass(lambda: _done(*(one() for _ in range(times))), 0, 2.0 * times * rows_of_it * WIDTH * WIDTH)


def expert_chunk(count: int, most: int) -> Pass:
    """As ``chunk``, through the experts of a mixture, sorted by expert, as mlx-lm does it."""
    rows_of_it = min(count, most)
    weights, times = _weights((EXPERTS,), EXPERT_OUT, EXPERT_IN), max(1, count // rows_of_it)
    sent = rows_of_it * EXPERTS_PER_ROW
    chosen = mx.sort(mx.random.randint(0, EXPERTS, (sent,)).astype(mx.uint32))
    held = mx.random.uniform(shape=(sent, 1, EXPERT_IN)).astype(mx.bfloat16)
    _done(chosen, held)

    def one() -> mx.array:
        return mx.gather_qmm(
            held, *weights, rhs_indices=chosen, transpose=True, group_size=GROUP, bits=BITS, sorted_indices=True
        )

    return Pass(lambda: _done(*(one() for _ in range(times))), 0, 2.0 * times * sent * EXPERT_IN * EXPERT_OUT)


def _weights(batch: tuple[int, ...], out: int, into: int) -> tuple[mx.array, mx.array, mx.array]:
    """Noise as quantised weights, scaled so that rows of noise stay of one size however many they go through."""
    packed = mx.random.randint(0, 1 << 31, (*batch, out, into * BITS // 32)).astype(mx.uint32)
    scale = 1 / (4.6 * into**0.5)  # the spread of 0 to 15 is 4.6
    scales = mx.full((*batch, out, into // GROUP), scale, dtype=mx.bfloat16)
    biases = mx.full((*batch, out, into // GROUP), -7.5 * scale, dtype=mx.bfloat16)
    _done(packed, scales, biases)
    return packed, scales, biases


@dataclass(frozen=True, slots=True)
class Shape:
    """Of a model's state: ``full`` layers of attention with ``heads`` × ``width`` (16 bits), ``recurrent`` layers
    with two whole arrays, ``state`` (32 bits) and ``conv`` (16 bits)."""

    full: int
    heads: int
    width: int
    recurrent: int
    state: tuple[int, ...]
    conv: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes that each token adds."""
        return 2 * self.full * self.heads * self.width * 2

    def caches(self) -> list[Any]:
        """Fresh ones, as mlx-lm makes them for such a model."""
        return [*(KVCache() for _ in range(self.full)), *(ArraysCache(2) for _ in range(self.recurrent))]


# What `doctor --bench` restores: Qwen3.5-122B-A10B's, which has both kinds of state.
LARGE = Shape(full=12, heads=2, width=256, recurrent=36, state=(1, 64, 128, 128), conv=(1, 3, 12_288))


class Noise:
    """A state of ``shape`` that can stand at any position up to ``tokens``. Layers of a kind share their numbers."""

    def __init__(self, shape: Shape, tokens: int) -> None:
        self._shape = shape
        self._rows = mx.random.uniform(shape=(1, shape.heads, tokens, shape.width)).astype(mx.bfloat16)
        self._whole = [mx.random.uniform(shape=shape.state), mx.random.uniform(shape=shape.conv).astype(mx.bfloat16)]
        _done(self._rows, *self._whole)
        self._caches = shape.caches()
        self._stand(1)
        self._layout = rows.layout(self._caches)

    def _stand(self, position: int) -> None:
        for cache in self._caches:
            if isinstance(cache, KVCache):
                cache.keys, cache.values, cache.offset = self._rows, self._rows, position
            else:
                cache.cache = list(self._whole)

    def copy(self, start: int, end: int, *, snapshot: bool) -> StateCopy:
        """What is saved at ``end``: rows from ``start`` on, and what belongs to that position alone."""
        self._stand(end)
        return rows.copy_state(self._caches, start, end, with_snapshot=snapshot)

    def restore(self, stored: StoredState) -> int:
        """Read and verify ``stored`` into fresh caches, which are let go; the bytes. Raises CheckpointRejected."""
        return rows.load_state(self._shape.caches(), stored, self._layout)
