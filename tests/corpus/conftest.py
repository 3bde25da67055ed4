"""Every test here needs real templates or tokenizers, and says so when they cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import corpus

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.corpus)


@pytest.fixture(scope="session")
def templates() -> dict[str, str]:
    try:
        return corpus.templates()
    except corpus.Unavailable as why:
        pytest.skip(f"no real chat templates: {why}")


@pytest.fixture(scope="session")
def real():
    """Gives a real tokenizer by name."""

    def get(name: str) -> corpus.RealTokenizer:
        try:
            return corpus.tokenizer(name)
        except corpus.Unavailable as why:
            pytest.skip(f"no real tokenizer {name}: {why}")

    return get
