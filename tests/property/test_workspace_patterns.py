"""Random patterns and paths against git itself, and patterns that would take for ever if anything went back."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from qmlx_lsp.workspace.ignore import Ignore
from qmlx_lsp.workspace.patterns import parse

PIECES = ["a", "b", "*", "?", "[ab]", "\\a", "ab", "x", "[!a]"]
ROUNDS = 120


def pattern(chance: random.Random) -> str:
    """Parts of random pieces; two stars are a part of their own only, for git reads them elsewhere as it happens."""
    parts = ["".join(chance.choice(PIECES) for _ in range(chance.randint(1, 4))) for _ in range(chance.randint(1, 3))]
    parts = ["**" if chance.random() < 0.25 else part.replace("**", "*") for part in parts]
    return "/" * (chance.random() < 0.1) + "/".join(parts) + "/" * (chance.random() < 0.1)


def read(file: str) -> str | None:
    return Path(file).read_text(encoding="utf-8") if Path(file).is_file() else None


def test_random_patterns_hide_what_git_hides(tmp_path: Path) -> None:
    chance = random.Random(20261130)
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True, env=environment)
    for _ in range(ROUNDS):
        lines = [pattern(chance) for _ in range(2)]
        lines[1] = f"!{lines[1]}" if chance.random() < 0.3 else lines[1]
        (tmp_path / ".gitignore").write_text("\n".join(lines) + "\n", encoding="utf-8")
        paths = [
            "/".join("".join(chance.choice("abx") for _ in range(chance.randint(1, 3))) for _ in range(depth))
            for depth in (1, 1, 2, 2, 2, 3, 3, 4, 5)
        ]
        command = ["git", "-C", str(tmp_path), "check-ignore", "--no-index", *paths]
        hidden = set(
            subprocess.run(command, capture_output=True, text=True, check=False, env=environment).stdout.split()
        )
        rules = Ignore(str(tmp_path), read)
        assert {path for path in paths if rules.excluded(path)} == hidden, lines


@pytest.mark.parametrize(
    "pattern",
    ["*a" * 40 + "*z", "**/" * 40 + "x", "**/a*" * 40 + "z", "a/**/" * 40 + "b", "[a-a]*" * 40, "?*" * 50 + "z"],
)
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    """With anything that goes back, each of these would take longer than the test may."""
    patterns = parse(pattern)
    for path in ("a" * 200, "/".join(["a"] * 60), "/".join(["a" * 50] * 10)):
        assert patterns.verdict(path, folder=False) in (None, True)
