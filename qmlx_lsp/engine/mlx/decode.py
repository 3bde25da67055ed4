"""Generating, one token a pass, with the pass over a token queued before the token is handed out.

The same pipeline as mlx-lm's ``generate_step`` (0.32.2), with one difference for which it is written here: the head
of a reply is read in one pass, where ``generate_step`` always splits off the last token of its prompt. That is one
pass less before every first token.

An id that ends the reply and must not be read (``spare``) is known only when the pass over it has been queued: the
caches are then put back to where they stood before that pass.

Invariant: after ``k`` tokens have been yielded, the caches have read ``ids`` and those ``k`` tokens, whenever the
iterator is closed; no further pass has been queued.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generation_stream

# mlx keeps freed buffers for reuse; growing shapes never fit them, so they are let go now and then.
CLEAR_EVERY_TOKENS = 256


def decode(
    model: Any,
    caches: Sequence[Any],
    ids: Sequence[int],
    sampler: Callable[[mx.array], mx.array],
    max_tokens: int,
    spare: frozenset[int] = frozenset(),
    mark: Callable[[], Callable[[], None]] | None = None,
) -> Generator[int, None, None]:
    """Feed ``ids``, then yield up to ``max_tokens`` ids. ``sampler`` maps logprobs ``[1, V]`` to ids ``[1]``.

    ``mark()`` notes where the caches stand and returns what puts them back; with it, an id of ``spare`` ends the
    generation without being yielded.
    """

    def queued(tokens: mx.array) -> mx.array:
        with mx.stream(generation_stream):
            logits = model(tokens[None], cache=caches)[:, -1, :]
            sampled = sampler(logits - mx.logsumexp(logits, axis=-1, keepdims=True))
            mx.async_eval(sampled)  # type: ignore[no-untyped-call]
        return sampled

    token = queued(mx.array(list(ids)))
    for count in range(1, max_tokens + 1):
        undo = mark() if mark is not None else None
        following = queued(token)
        value = _int(token)
        if undo is not None and value in spare:
            undo()
            return
        yield value
        if count % CLEAR_EVERY_TOKENS == 0:
            mx.clear_cache()
        token = following


def _int(token: mx.array) -> int:
    """The one id in ``token``; waits for it."""
    value = token.item()
    assert isinstance(value, int)
    return value
