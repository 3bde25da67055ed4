"""House rules that would decay if nobody ran them."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULE_LINES_MAX = 320
FUNCTION_LINES_MAX = 65
SOURCES = sorted((ROOT / "qmlx_lsp").rglob("*.py"))


def short(file: Path) -> str:
    return str(file.relative_to(ROOT))


@pytest.mark.parametrize("file", SOURCES, ids=short)
def test_modules_say_what_they_are_for_and_hold_one_idea(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "no module docstring"
    assert text.count("\n") <= MODULE_LINES_MAX, "two ideas in one room?"
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert (node.end_lineno or 0) - node.lineno < FUNCTION_LINES_MAX, f"{node.name} is two functions"


def tracked() -> list[Path]:
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout: there is no list of tracked files")
    return [ROOT / name for name in listed.decode().split("\0") if name]


def test_the_root_holds_what_the_design_says_and_nothing_else() -> None:
    allowed = {
        "pyproject.toml", "constraints.txt", "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "LICENSE", "Makefile",
        "qmlx_lsp", "tests", "editors", "benchmarks", ".ci", ".gitignore",
    }  # fmt: skip
    assert {file.relative_to(ROOT).parts[0] for file in tracked()} <= allowed


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    wrong = re.compile(r"(^|[^A-Za-z0-9_.])/(work|farm|root)/|https?://(registry|deb|files|pypi)[.]")
    for file in tracked():
        if file == Path(__file__) or not file.exists():
            continue
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found = wrong.search(text)
        assert found is None, f"{short(file)}: {found.group() if found else ''}"


def test_readme_and_architecture_name_only_modules_that_exist() -> None:
    for page in ("README.md", "ARCHITECTURE.md"):
        for name in re.findall(r"`(qmlx_lsp/[\w/.]+)`", (ROOT / page).read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), f"{page} names {name}"
