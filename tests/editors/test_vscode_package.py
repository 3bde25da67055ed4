"""The extension's own checks: types, lint, and the unit tests of what knows no editor."""

from __future__ import annotations

import os
import subprocess
import zipfile

import pytest

from tests.editors.conftest import Editors
from tests.editors.vscode_code_server import BUILD_S, EXTENSION, packaged


@pytest.mark.timeout(2 * BUILD_S)
def test_types_lint_and_units(editors: Editors) -> None:
    npm = editors.path("npm")
    packaged(npm)  # which installs what they need
    environ = {**os.environ, "PATH": f"{npm.parent}{os.pathsep}{os.environ['PATH']}"}
    for script in ("check", "test"):
        done = subprocess.run(
            [npm, "run", "-s", script], cwd=EXTENSION, env=environ, capture_output=True, text=True, timeout=BUILD_S,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_packaged_is_small_and_nothing_else(editors: Editors) -> None:
    with zipfile.ZipFile(packaged(editors.path("npm"))) as package:
        names = {name.removeprefix("extension/") for name in package.namelist()}
        size = sum(one.compress_size for one in package.infolist())
    assert {"package.json", "dist/extension.js", "readme.md", "LICENSE.txt", "media/icon.png"} <= names
    assert not [
        name for name in names if name.startswith(("src/", "test/", "node_modules/")) or name.endswith(".map")
    ]
    assert size < 1_000_000
