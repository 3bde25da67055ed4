"""Homes of whole daemons lie in memory where the system has such a folder."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.bench import Bench, bench
from tests.support.memory_home import tmp_path

__all__ = ["tmp_path"]


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path) as made:
        yield made
