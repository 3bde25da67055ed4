"""Generating, one token a pass, with the pass over a token queued before the token is handed out.

The same pipeline as mlx-lm's ``generate_step`` (0.32.2), with one difference for which it is written here: the head
of a reply is read in one pass, where ``generate_step`` always splits off the last token of its prompt. That is one
pass less before every first token.

Behind an unfinished word the first tokens are *steered*: only those that agree with what stands there already are
allowed. What comes next is then known only when the last token has been looked at, so that nothing is queued ahead.

An id that ends the reply and must not be read (``spare``) is known only when the pass over it has been queued: the
caches are then put back to where they stood before that pass.

Invariant: after ``k`` tokens have been yielded, the caches have read ``ids`` and those ``k`` tokens, whenever the
iterator is closed; no further pass has been queued.
Invariant: no reference to a cache's buffers is held where a token is yielded: whoever has it may take the rows away
and put them back.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.generate import generation_stream

from qmlx_lsp.engine.backend import Allowed

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

    token = _sampled(sampler, _logits(model, caches, mx.array(list(ids))))
    yield from _onwards(model, caches, token, sampler, max_tokens, spare, mark)


def decode_steered(
    model: Any,
    caches: Sequence[Any],
    logits: mx.array,
    sampler: Callable[[mx.array], mx.array],
    max_tokens: int,
    spare: frozenset[int],
    mark: Callable[[], Callable[[], None]] | None,
    allowed: Allowed,
) -> Generator[int, None, None]:
    """As ``decode``, from the ``logits`` ``[1, V]`` behind what has been read; ``allowed`` as in the backend's."""
    chosen: list[int] = []
    while len(chosen) < max_tokens and (choice := allowed(chosen)) is not None:
        if not choice:
            return
        with mx.stream(generation_stream):
            token = _int(_sampled(sampler, mx.where(_mask(choice, logits.shape[-1]), logits, -mx.inf)))
            if token in spare:
                return
            logits = _logits(model, caches, mx.array([token]))
            mx.eval(logits)
        chosen.append(token)
        yield token
    if len(chosen) < max_tokens:
        token_array = _sampled(sampler, logits)
        del logits
        yield from _onwards(model, caches, token_array, sampler, max_tokens - len(chosen), spare, mark)


def _mask(choice: Sequence[int], size: int) -> mx.array:
    mask = np.zeros((1, size), dtype=np.bool_)
    mask[0, np.asarray(choice)] = True
    return mx.array(mask)


def _logits(model: Any, caches: Sequence[Any], tokens: mx.array) -> mx.array:
    """``[1, V]`` behind ``tokens``, which are fed."""
    with mx.stream(generation_stream):
        return model(tokens[None], cache=caches)[:, -1, :]  # type: ignore[no-any-return]


def _sampled(sampler: Callable[[mx.array], mx.array], logits: mx.array) -> mx.array:
    """The next id ``[1]``, queued."""
    with mx.stream(generation_stream):
        sampled = sampler(logits - mx.logsumexp(logits, axis=-1, keepdims=True))
        mx.async_eval(sampled)  # type: ignore[no-untyped-call]
    return sampled


def _onwards(
    model: Any,
    caches: Sequence[Any],
    token: mx.array,
    sampler: Callable[[mx.array], mx.array],
    max_tokens: int,
    spare: frozenset[int],
    mark: Callable[[], Callable[[], None]] | None,
) -> Generator[int, None, None]:
    """Up to ``max_tokens`` ids from ``token`` on, which has been chosen and not been read."""
    for count in range(1, max_tokens + 1):
        undo = mark() if mark is not None else None
        following = _sampled(sampler, _logits(model, caches, token))
        value = _int(token)
        if undo is not None and value in spare:
            undo()
            return
        del undo
        yield value
        if count % CLEAR_EVERY_TOKENS == 0:
            mx.clear_cache()
        token = following


def _int(token: mx.array) -> int:
    """The one id in ``token``; waits for it."""
    value = token.item()
    assert isinstance(value, int)
    return value
