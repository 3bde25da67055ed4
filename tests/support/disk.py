"""A folder whose disk is looked at, and events that a test makes up."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest

from qmlx_lsp.session.disk import Disk
from qmlx_lsp.session.eyes import Event
from qmlx_lsp.session.rules import ignore_rules
from qmlx_lsp.settings import Watch as Settings
from qmlx_lsp.workspace.changes import Changes

LINUX = sys.platform == "linux"


def made(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n", encoding="utf-8")


def changes(added: str = "", changed: str = "", removed: str = "") -> Changes:
    return Changes(frozenset(added.split()), frozenset(changed.split()), frozenset(removed.split()))


class Events:
    """A ``Look`` that a test speaks through. ``refuse`` is raised by every watcher to be made, ``broken`` by those
    that are."""

    def __init__(self) -> None:
        self.waiting: set[Event] = set()
        self.refuse: Exception | None = None
        self.broken: Exception | None = None
        self.made: list[list[str]] = []
        self.closed = 0

    def __call__(self, *folders: str, recursive: bool) -> Generator[set[Event], None, None]:
        if self.refuse:
            raise self.refuse
        self.made.append(sorted(folders))
        try:
            while True:
                if self.broken:
                    raise self.broken
                found, self.waiting = self.waiting, set()
                yield found
        finally:
            self.closed += 1


class Looked:
    """A ``Disk`` that is stepped by hand, with a clock that stands."""

    def __init__(
        self, root: Path, look: Callable[..., Generator[set[Event], None, None]], **settings: object
    ) -> None:
        self.now = 1_000.0
        self.said: list[str | None] = []
        self.disk = Disk(
            root, ignore_rules(root), replace(Settings(), **settings), look, self.said.append,
            clock=lambda: self.now, cpu=lambda: 0.0, recursive=False,
        )  # fmt: skip
        self.disk.begin()

    def after(self, seconds: float) -> Changes:
        self.now += seconds
        return self.disk.step()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = Path(os.path.realpath(tmp_path)) / "project"
    made(folder, "a.py", "src/b.py", "src/deep/c.py", "node_modules/x/index.js", "out/o.txt")
    made(folder, ".git/HEAD", ".git/info/exclude")
    (folder / ".git/HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    (folder / ".git/info/exclude").write_text("", encoding="utf-8")
    (folder / ".gitignore").write_text("/out/\n", encoding="utf-8")
    return folder
