"""A model whose arg max follows a given text, whatever it has read; the caches are those of the model itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from qmlx_lsp.engine.mlx.caches import adapter, parts


class Forced:
    """Behind the id at position ``begin - 1 + n`` the likeliest is ``text[n]``; behind the text its last id.

    Its position it reads from its caches, so they must know it: one of them at least has rows.
    """

    def __init__(self, model: Any, begin: int, text: Sequence[int]) -> None:
        self._model = model
        self._begin = begin
        self._text = list(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, tokens: mx.array, cache: list[Any], **kwargs: Any) -> mx.array:
        known = [adapter(part).position(part) for part in parts(cache).values()]
        first = max(position or 0 for position in known) + 1 - self._begin
        last = len(self._text) - 1
        wanted = [self._text[min(max(0, first + row), last)] for row in range(tokens.shape[1])]
        logits = self._model(tokens, cache=cache, **kwargs)
        chosen = mx.arange(logits.shape[-1])[None, None] == mx.array(wanted)[None, :, None]
        return mx.where(chosen, mx.array(1e4, logits.dtype), logits)
