"""What servers state, in the shapes that they are known to send."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.cachecheck.dialects import Stated, read


@pytest.mark.parametrize(
    ("chunk", "stated"),
    [
        ({"usage": {"prompt_tokens": 964, "completion_tokens": 8, "total_tokens": 972,
                    "prompt_tokens_details": {"cached_tokens": 946}}}, Stated(964, 946, 8)),
        ({"usage": {"prompt_tokens": 964, "completion_tokens": 8, "prompt_tokens_details": None}},
         Stated(964, None, 8)),
        ({"usage": {"prompt_tokens": 964, "completion_tokens": 8, "cached_tokens": 0}}, Stated(964, 0, 8)),
        ({"usage": {"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 1}}},
         Stated(5, 1, 2)),
        ({"usage": {"prompt_tokens": 9, "prompt_cache_hit_tokens": 4}}, Stated(9, 4, None)),
        ({"timings": {"prompt_n": 1, "cache_n": 236, "predicted_n": 35, "prompt_ms": 30.9}}, Stated(237, 236, 35)),
        ({"timings": {"prompt_n": 20, "predicted_n": 35}}, Stated(None, None, 35)),
        ({"prompt_eval_count": 300, "prompt_eval_cached_count": 280, "eval_count": 4}, Stated(300, 280, 4)),
        ({"prompt_eval_count": 300, "eval_count": 4, "done": True}, Stated(300, None, 4)),
        ({"usage": None, "choices": []}, Stated()),
        ({"usage": {"prompt_tokens": "many", "completion_tokens": True}}, Stated()),
        ({"usage": {"prompt_tokens": -1}, "timings": []}, Stated()),
        ({}, Stated()),
    ],
)  # fmt: skip
def test_reads(chunk: dict[str, Any], stated: Stated) -> None:
    assert read(chunk) == stated


def test_later_chunks_add_and_replace_what_was_stated_before() -> None:
    first = read({"usage": {"prompt_tokens": 10}})
    then = read({"usage": {"prompt_tokens": 12, "completion_tokens": 3}}, first)
    assert then == Stated(12, None, 3)
    assert read({"choices": [{"delta": {"content": "x"}}]}, then) == then


def test_usage_and_timings_complete_each_other() -> None:
    chunk = {"usage": {"prompt_tokens": 237, "completion_tokens": 35}, "timings": {"prompt_n": 1, "cache_n": 236}}
    assert read(chunk) == Stated(237, 236, 35)
