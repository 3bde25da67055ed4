"""From what a server says of a request to tokens. Pure.

Servers say it in several ways: ``usage`` as OpenAI has it, with the cached tokens in one of several places;
timings of llama.cpp, which count what was computed and what was cached; counts of Ollama, whose
``prompt_eval_count`` includes what was cached.

Invariant: what a server does not say is None, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_CACHED = (
    ("prompt_tokens_details", "cached_tokens"),
    ("input_tokens_details", "cached_tokens"),
    ("cached_tokens",),
    ("prompt_cache_hit_tokens",),
    ("cache_read_input_tokens",),
)
_PROMPT = (("prompt_tokens",), ("input_tokens",))
_OUT = (("completion_tokens",), ("output_tokens",))


@dataclass(frozen=True, slots=True)
class Stated:
    """Tokens of the prompt, how many of them were cached, and tokens of the reply."""

    prompt: int | None = None
    cached: int | None = None
    out: int | None = None


def read(chunk: Mapping[str, Any], before: Stated = Stated()) -> Stated:
    """What ``chunk``, a part of a stream or a whole answer, adds to what was stated ``before``."""
    usage = chunk.get("usage")
    found = _of_usage(usage) if isinstance(usage, Mapping) else Stated()
    for other in (_of_timings(chunk.get("timings")), _of_ollama(chunk)):
        found = _either(found, other)
    return _either(found, before)


def _of_usage(usage: Mapping[str, Any]) -> Stated:
    return Stated(*(_first(usage, paths) for paths in (_PROMPT, _CACHED, _OUT)))


def _of_timings(timings: Any) -> Stated:
    if not isinstance(timings, Mapping):
        return Stated()
    computed, cached = _count(timings.get("prompt_n")), _count(timings.get("cache_n"))
    prompt = None if computed is None or cached is None else computed + cached
    return Stated(prompt, cached, _count(timings.get("predicted_n")))


def _of_ollama(chunk: Mapping[str, Any]) -> Stated:
    names = ("prompt_eval_count", "prompt_eval_cached_count", "eval_count")
    return Stated(*(_count(chunk.get(name)) for name in names))


def _first(usage: Mapping[str, Any], paths: tuple[tuple[str, ...], ...]) -> int | None:
    for path in paths:
        value: Any = usage
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        if (count := _count(value)) is not None:
            return count
    return None


def _either(one: Stated, other: Stated) -> Stated:
    return Stated(
        one.prompt if one.prompt is not None else other.prompt,
        one.cached if one.cached is not None else other.cached,
        one.out if one.out is not None else other.out,
    )


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
