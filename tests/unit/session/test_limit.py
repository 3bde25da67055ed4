"""How long an epoch may be: what the model reads, what the user allows, what memory holds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qmlx_lsp.engine.scripted import ScriptedBackend
from qmlx_lsp.session.model import context_limit
from tests.support.bench import quick


@pytest.mark.parametrize(
    ("reads", "allowed", "live_gib", "row_kib", "limit"),
    [
        (32_768, 0, 16.0, 0, 32_768),  # no rows, no bound
        (32_768, 8_000, 16.0, 0, 8_000),
        (32_768, 100_000, 16.0, 0, 32_768),
        (131_072, 0, 16.0, 320, 52_428),  # 16 GiB of 320 KiB each
        (131_072, 50_000, 16.0, 320, 50_000),
        (131_072, 60_000, 16.0, 320, 52_428),
        (131_072, 0, 0.0, 320, 4_096),  # the conversation in use can always be worked with
        (1_024, 0, 0.0, 320, 1_024),
    ],
)
def test_limit(reads: int, allowed: int, live_gib: float, row_kib: int, limit: int) -> None:
    info = ScriptedBackend(context_tokens=reads).load("", lambda *_: None, lambda: False)
    settings = quick(context={"max_tokens": allowed}, memory={"live_gib": live_gib})
    assert context_limit(replace(info, row_bytes=row_kib * 1024), settings) == limit
