"""How fast this machine is: memory, matrix products, and a model that is read, written, saved and restored.

For ``qmlx-lsp doctor --bench``. Nothing of it is used while questions are answered.

Invariant: each measurement repeats until its share of the time is used, at least once, and returns the best of them:
what the machine can do when nothing else runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlx.core as mx

from qmlx_lsp.engine.backend import ModelInfo, Sampling, StateId
from qmlx_lsp.engine.mlx.backend import MlxBackend

READ_BYTES = 256 << 20
"""Summed up at a time: more than any cache holds, and little beside the memory of a machine that runs models."""
SIDE = {mx.DeviceType.cpu: 1_024, mx.DeviceType.gpu: 4_096}
"""Of the square matrices that are multiplied."""

Clock = Callable[[], float]


def numbers() -> mx.Dtype:
    """What is multiplied here: MLX has fast products of float32 alone on a CPU."""
    return mx.float32 if mx.default_device().type == mx.DeviceType.cpu else mx.float16


def memory_bytes_per_s(limit_s: float, clock: Clock) -> float:
    """Bytes a second that are read when a large array is summed up."""
    array = mx.ones((READ_BYTES // numbers().size,), dtype=numbers())
    mx.eval(array)
    return array.nbytes / _best(lambda: mx.eval(mx.max(array)), limit_s, clock)


def multiplications_per_s(limit_s: float, clock: Clock) -> float:
    """Floating-point operations a second of a square matrix product: a multiplication and an addition are two."""
    side = SIDE.get(mx.default_device().type, 1_024)
    matrix = mx.ones((side, side), dtype=numbers())
    mx.eval(matrix)
    return 2 * side**3 / _best(lambda: mx.eval(matrix @ matrix), limit_s, clock)


def _best(work: Callable[[], None], limit_s: float, clock: Clock) -> float:
    """Seconds of the quickest ``work``; the first one, which may compile, counts only when there is no other."""
    work()
    best, end = float("inf"), clock() + limit_s
    while True:
        began = clock()
        work()
        took = clock() - began
        best = min(best, took)
        if clock() >= end:
            return max(best, 1e-9)


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second of a model; ``read`` tokens were read, as many as the time allowed."""

    read: int
    prefill_per_s: float
    decode_per_s: float


class Probe:
    """A loaded model and one state of it."""

    def __init__(self, backend: MlxBackend, info: ModelInfo, chunk_tokens: int, clock: Clock) -> None:
        self.backend = backend
        self.info = info
        self._chunk = chunk_tokens
        self._clock = clock
        self.ids: list[int] = []
        self.state: StateId = backend.new_state()

    def speed(self, tokens_most: int, written: int, limit_s: float) -> Speed:
        """Read chunk by chunk, at most ``tokens_most`` tokens and for about ``limit_s``; then write ``written``."""
        self.backend.prefill(self.state, self._next(1))  # what is built at the first pass
        began, read = self._clock(), 0
        while read < tokens_most and (not read or self._clock() - began < limit_s):
            chunk = self._next(min(self._chunk, tokens_most - read))
            self.backend.prefill(self.state, chunk)
            read += len(chunk)
        prefill = read / max(self._clock() - began, 1e-9)
        times = [self._clock()]
        for token in self.backend.decode(self.state, self._next(1), Sampling(), written):
            self.ids.append(token)
            times.append(self._clock())
        decode = (len(times) - 2) / max(times[-1] - times[1], 1e-9) if len(times) > 2 else 0.0
        return Speed(read, prefill, decode)

    def _next(self, count: int) -> list[int]:
        """Ids that differ, none of them special: the first ones of a vocabulary often are."""
        made = [1_000 + (len(self.ids) + number) * 7 % 10_000 for number in range(count)]
        self.ids += made
        return made
