"""Waiting for what another thread or process does, where there is no event to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

WAIT_S = 20.0


async def until(true: Callable[[], object], within_s: float = WAIT_S, every_s: float = 0.005) -> None:
    """Return as soon as ``true()``, asked ``every_s``; TimeoutError when that takes longer than ``within_s``."""
    async with asyncio.timeout(within_s):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(every_s)
