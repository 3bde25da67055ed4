"""What git hides on this machine is private here: linked worktrees and the user's own excludes, against git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from qmlx_lsp.session.rules import ignore_rules, users_excludes
from qmlx_lsp.workspace.ignore import Ignore

NAMES = ["a.py", "local.py", "mine.txt", "kept.txt", "sub/local.py", "sub/mine.txt", "Upper.LOG"]


def git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    (tmp_path / "home" / ".config" / "git").mkdir(parents=True)
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "one")
    (folder / ".git" / "info").mkdir(exist_ok=True)
    (folder / ".git" / "info" / "exclude").write_text("local.py\n!kept.txt\n")
    return folder


def check(folder: Path) -> dict[str, str | None]:
    rules = ignore_rules(folder)
    found = {name: rules.excluded(name) for name in NAMES}
    hidden = set(git(folder, "check-ignore", "--no-index", *NAMES).stdout.split())
    assert {name for name, reason in found.items() if reason} == hidden
    inside = rules.inside("", {os.path.basename(name).lower() for name in NAMES})  # noqa: PTH119
    assert {name: inside.reason(name, folder=False) for name in NAMES if "/" not in name} == {
        name: reason for name, reason in found.items() if "/" not in name
    }
    return found


def test_the_users_own_excludes_hide_too_and_the_repositorys_come_before(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "home" / ".config" / "git" / "ignore").write_text("*.txt\n")
    found = check(repository)
    assert (found["mine.txt"], found["kept.txt"]) == ("core.excludesFile", None)
    assert found["local.py"] == ".git/info/exclude"
    (tmp_path / "home" / ".gitconfig").write_text("[user]\n\tname = x\n[core]\n\texcludesFile = ~/my ignores\n")
    (tmp_path / "home" / "my ignores").write_text("a.py\n")
    found = check(repository)
    assert (found["a.py"], found["mine.txt"]) == ("core.excludesFile", None)


def test_a_linked_worktree_has_the_excludes_of_its_repository(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", "-q", str(tmp_path / "linked"), "-b", "other")
    assert (tmp_path / "linked" / ".git").is_file()
    assert check(tmp_path / "linked")["sub/local.py"] == ".git/info/exclude"


def test_a_folder_below_the_repository_and_one_without(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "home" / ".config" / "git" / "ignore").write_text("/sub/mine.txt\n*.log\n")
    (repository / "sub").mkdir()
    assert ignore_rules(repository / "sub").excluded("mine.txt") == "core.excludesFile"
    assert ignore_rules(repository / "sub").excluded("local.py") == ".git/info/exclude"
    (tmp_path / "plain").mkdir()
    assert ignore_rules(tmp_path / "plain").excluded("x.log") == "core.excludesFile"
    assert ignore_rules(tmp_path / "plain").inside("", set()).reason("x.log", folder=False) == "core.excludesFile"


def test_without_a_home_there_are_none() -> None:
    assert users_excludes({}) is None
    assert users_excludes({"HOME": "/nowhere"}) == "/nowhere/.config/git/ignore"
    assert users_excludes({"HOME": "/nowhere", "XDG_CONFIG_HOME": "/x"}) == "/x/git/ignore"


def test_case_is_ignored_where_the_file_system_does() -> None:
    def read(path: str) -> str | None:
        return {"/r/.gitignore": "Secret.txt\n[a-c].log\n"}.get(path)

    exact, folded = Ignore("/r", read, ["Mine"]), Ignore("/r", read, ["Mine"], ignore_case=True)
    for name in ("secret.TXT", "B.LOG", "mine"):
        assert exact.excluded(name) is None
        assert folded.excluded(name) is not None
    assert folded.inside("", {".gitignore"}).reason("SECRET.txt", folder=False) == ".gitignore"
