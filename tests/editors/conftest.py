"""Tests in real editors: ``make test-editors``. What is not installed is skipped with a line that says why."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.editors.scene import Scene
from tests.editors.scene import scene as made_scene

EDITORS = Path(os.environ.get("QMLX_EDITORS", Path.home() / ".cache" / "qmlx-lsp-editors"))
REPOSITORY = Path(__file__).parents[2]
_missing: dict[str, int] = {}


class Editors:
    """What ``install.sh`` has left."""

    def path(self, name: str) -> Path:
        """The program ``name``; the test is skipped if it could not be had."""
        found = EDITORS / "bin" / name
        if os.access(found, os.X_OK):
            return found
        why = EDITORS / "why" / name
        reason = why.read_text(encoding="utf-8").strip() if why.exists() else "run make test-editors"
        _missing[name] = _missing.get(name, 0) + 1
        pytest.skip(f"{name} is not installed: {reason}")


class Pictures:
    """Where pictures go: into ``editors/`` with QMLX_PICTURES=1, else nowhere that lasts."""

    def __init__(self, scratch: Path) -> None:
        self._folder = REPOSITORY / "editors" if os.environ.get("QMLX_PICTURES") == "1" else scratch

    def path(self, editor: str, name: str) -> Path:
        made = self._folder / editor / "images" / name
        made.parent.mkdir(parents=True, exist_ok=True)
        return made


@pytest.fixture(scope="session")
def editors() -> Editors:
    return Editors()


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with made_scene() as made:
        yield made


@pytest.fixture
def pictures(tmp_path: Path) -> Pictures:
    return Pictures(tmp_path)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", []) if report.longrepr]
    absent = sorted({text.removeprefix("Skipped: ") for text in skipped if "is not installed" in text})
    terminalreporter.write_line(f"real editors: {len(skipped)} tests skipped, {len(absent)} programs not installed")
    for line in absent:
        terminalreporter.write_line(f"  {line}")
