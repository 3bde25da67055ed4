"""The files that take longest come first: last, each of them would keep one core busy and the others waiting."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# Longest first; what is not named takes seconds.
LONG = (
    "engine/test_demo.py",
    "property/test_real_states.py",
    "crash/test_kill.py",
    "corpus/test_histories.py",
    "e2e/test_log_cli.py",
    "corpus/test_tokenizers.py",
)
_RANK = {TESTS / name: at for at, name in enumerate(LONG)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _RANK.get(item.path, len(LONG)))
