"""Where the embedded model lies for the tests that need it: ``QMLX_TEST_MODELS``, or fetched once per user."""

import os
from pathlib import Path

import pytest

from qmlx_lsp.engine.mlx import embedded


@pytest.fixture(scope="session")
def models_folder() -> Path:
    folder = Path(os.environ.get("QMLX_TEST_MODELS") or Path.home() / ".cache" / "qmlx-lsp-tests")
    embedded.ensure(folder, lambda *_report: None, lambda: False)
    return folder
