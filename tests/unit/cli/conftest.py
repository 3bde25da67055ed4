"""A conversation log that is written while a command reads it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.log_writer import Writer


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(tmp_path / "conversations.sqlite3")
    yield made
    made.log.close()
