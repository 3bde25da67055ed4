"""Homes of whole daemons lie in memory where the system has such a folder: their databases are fsynced at every step,
and what is tested here is not the disk."""

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
