"""A model loaded from its folder, or the one line that refuses it."""

import pytest

from qmlx_lsp.engine.mlx.backend import MlxBackend
from qmlx_lsp.errors import ModelError


def load(source, tmp_path, cancelled=lambda: False):
    reports = []
    backend = MlxBackend(tmp_path / "models")
    info = backend.load(str(source), lambda *report: reports.append(report), cancelled)
    return backend, info, reports


def refused(source, tmp_path) -> str:
    with pytest.raises(ModelError) as caught:
        load(source, tmp_path)
    assert "\n" not in str(caught.value)
    return str(caught.value)
