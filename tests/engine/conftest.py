"""Where the embedded model lies for the tests that need it."""

from pathlib import Path

import pytest

from qmlx_lsp.engine.mlx import embedded
from tests.support import corpus


@pytest.fixture(scope="session")
def models_folder() -> Path:
    embedded.ensure(corpus.models(), lambda *_report: None, lambda: False)
    return corpus.models()
