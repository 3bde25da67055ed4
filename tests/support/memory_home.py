"""A ``tmp_path`` in memory, for tests of whole daemons: their databases are fsynced at every step, and what is tested
there is not the disk. A conftest that imports it replaces pytest's own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="q", dir=where, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
