"""What ``engine.lookup`` needs of a model: passes whose rows are all chosen from, and caches that go back.

Draws: mlx splits one key for every draw, so the key behind a draw follows from the seed and how many draws were
before it. Each row of a pass draws once, in order; behind a pass the key is put back to what it was after the draws
that were used. So the n-th id of a reply is drawn with the same key as without proposals, and the same seed gives the
same text, but for rounding.

Invariant: ``live.position`` is how many ids the caches have read, whenever a pass has been queued, and behind every
``rewind`` and ``cut``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol

import mlx.core as mx
from mlx_lm.generate import generation_stream

from qmlx_lsp.engine.draft import Drafter
from qmlx_lsp.engine.lookup import decode
from qmlx_lsp.engine.mlx.caches import adapter, parts
from qmlx_lsp.engine.mlx.decode import CLEAR_EVERY_TOKENS

Mark = tuple[int, list[Any]]


class Live(Protocol):
    """The caches of one state, and how many ids they have read."""

    caches: list[Any]
    position: int

    def forget_beyond(self, position: int) -> None:
        """Marks behind ``position`` are worthless from now on."""

    def evaluate(self) -> None: ...

    def check(self) -> None: ...


def copying(
    reader: Reader, live: Live, ids: Sequence[int], max_tokens: int, spare: frozenset[int], drafter: Drafter
) -> Generator[int, None, None]:
    """``Backend.decode`` with proposals; ``live.position`` is true at every yield, and at the end all is in order."""

    def ended() -> None:
        live.forget_beyond(live.position)
        live.evaluate()
        live.check()

    try:
        yield from decode(reader, ids, max_tokens, spare, drafter)
    except GeneratorExit:
        ended()
        raise
    finally:
        mx.clear_cache()  # buffers of shapes that no later pass will have
    ended()  # not after an error: then the caller rewinds or drops the state


class Reader:
    """Passes of ``model`` over ``live``. ``sampler`` maps logprobs ``[n, V]`` to ids ``[n]``; ``draws`` says whether
    it takes random numbers, and then it is given one row at a time."""

    def __init__(self, model: Any, live: Live, sampler: Callable[[mx.array], mx.array], *, draws: bool) -> None:
        self._model = model
        self._live = live
        self._sampler = sampler
        self._keys: list[mx.array] | None = [] if draws else None
        self._single = list(parts(live.caches).values())
        self._rows_since_clear = 0
        self.cuttable = not any(adapter(cache).snapshot for cache in self._single)

    @property
    def position(self) -> int:
        return self._live.position

    def chosen(self, ids: Sequence[int], count: int) -> list[int]:
        with mx.stream(generation_stream):
            logprobs = self._logprobs(mx.array(list(ids)), count)
            if self._keys is None:
                found = self._sampler(logprobs)
            else:
                self._keys.clear()
                drawn: list[mx.array] = []
                state: Any = mx.random.state
                for row in range(count):
                    drawn.append(self._sampler(logprobs[row : row + 1]))
                    self._keys.append(state[0])
                found = mx.concatenate(drawn)
            listed: Any = found.tolist()
        return list(listed)

    def used(self, count: int) -> None:
        if self._keys is not None and count < len(self._keys):
            halves: Any = self._keys[count - 1].tolist()
            high, low = halves
            mx.random.seed(high << 32 | low)  # the key of a seed is the seed, in two halves

    def queue(self, ids: Sequence[int]) -> mx.array:
        return self.queue_behind(mx.array(list(ids)))

    def queue_behind(self, ahead: mx.array) -> mx.array:
        with mx.stream(generation_stream):
            following = self._sampler(self._logprobs(ahead, 1))
            mx.async_eval(following)  # type: ignore[no-untyped-call]
        return following

    def value(self, ahead: mx.array) -> int:
        value = ahead.item()
        assert isinstance(value, int)
        return value

    def mark(self) -> Mark:
        return self.position, [adapter(cache).mark(cache) for cache in self._single]

    def rewind(self, mark: Mark) -> None:
        for cache, kept in zip(self._single, mark[1], strict=True):
            adapter(cache).rewind(cache, kept)
        self._live.position = mark[0]

    def cut(self, position: int) -> None:
        for cache in self._single:
            if adapter(cache).position(cache) is not None:
                adapter(cache).rewind(cache, position)  # what a mark keeps of rows is where they end
        self._live.position = position

    def _logprobs(self, tokens: mx.array, count: int) -> mx.array:
        """A pass over ``tokens``, queued; the logprobs behind the last ``count`` of them."""
        self._rows_since_clear += tokens.size
        if self._rows_since_clear >= CLEAR_EVERY_TOKENS:
            mx.clear_cache()  # passes of many lengths leave buffers of many shapes
            self._rows_since_clear = 0
        logits: mx.array = self._model(tokens[None], cache=self._live.caches)[0, -count:, :]
        self._live.position += tokens.size
        return logits - mx.logsumexp(logits, axis=-1, keepdims=True)
