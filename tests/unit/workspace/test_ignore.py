"""What is private: built-in secrets, nested ignore files, negation, precedence."""

import pytest

from qmlx_lsp.workspace.ignore import Ignore


def rules(files=None, exclude=(), root="/r"):
    return Ignore(
        root, {f"/r/{name}" if name[0] != "/" else name: text for name, text in (files or {}).items()}.get, exclude
    )


@pytest.mark.parametrize(
    "path",
    [
        ".env", ".env.local", "app/.env.production", "prod.env", "server.pem", "Server.PEM", "tls.key", "id_rsa",
        "id_rsa.pub", "deploy/id_ed25519_work", "a.p12", "a.pfx", "a.kdbx", "credentials", "credentials.json",
        ".aws/config", "home/.ssh/known_hosts", ".gnupg/x", ".netrc", ".npmrc", ".pypirc", "secrets.yaml",
        "terraform.tfstate", ".env~", "server.pem.bak", ".server.key.swp", "terraform.tfstate.backup",
        ".env/nested", ".ENV", ".git-credentials",
    ],
)  # fmt: skip
def test_secrets_are_excluded_anywhere_in_any_case(path):
    assert rules().excluded(path) == "secret"


@pytest.mark.parametrize(
    "path",
    [
        ".env.example", ".env.sample", ".env.template", ".env.local.example", "environment.py", "key.py", "keys/a.py",
        "envoy", "secretsx.py", ".", "~", ".env.example~",
    ],
)  # fmt: skip
def test_examples_and_ordinary_names_are_not_secret(path):
    assert rules().excluded(path) is None


def test_no_ignore_file_can_show_a_secret():
    files = {".gitignore": "!.env\n", ".qmlxignore": "!.env\n!*.pem\n"}
    assert rules(files).excluded(".env") == "secret"
    assert rules(files).excluded("a/b.pem") == "secret"


@pytest.mark.parametrize(
    "path", [".git/config", "a/node_modules/b/c.js", ".venv/x.py", "p/__pycache__/a.pyc", ".git/"]
)
def test_folders_nobody_wrote_are_excluded(path):
    assert rules().excluded(path) == "folder"


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", ".."])
def test_what_is_not_below_the_root_is_outside(path):
    assert rules().excluded(path) == "outside"


@pytest.mark.parametrize(
    ("lines", "path", "ignored"),
    [
        ("*.log", "a/b.log", True),
        ("*.log\n!keep.log", "keep.log", False),
        ("build/", "build/x.py", True),
        ("build/", "build", False),
        ("build/\n!build/keep", "build/keep", True),
        ("build/*\n!build/keep", "build/keep", False),
        ("/top", "top", True),
        ("/top", "a/top", False),
        ("a/b", "a/b/c", True),
        ("a/b", "x/a/b", False),
        ("**/b/c", "x/y/b/c", True),
        ("**/b/c", "b/c", True),
        ("a/**/c", "a/c", True),
        ("a/**/c", "a/x/y/c", True),
        ("a/**", "a/x/y", True),
        ("a**b", "axb", True),
        ("x/a**b", "x/a/b", False),
        ("*\n!*/\n!*.py", "a/b.py", False),
        ("*\n!*/\n!*.py", "a/b.txt", True),
        ("[ab]\n!a", "a/b/d.txt", True),
        ("[!a].py", "b.py", True),
        ("[!a].py", "a.py", False),
        ("[]x].py", "].py", True),
        ("[a-c].py", "b.py", True),
        ("[[:digit:]].py", "7.py", True),
        ("x[!a]y", "x/y", False),
        ("a?c", "abc", True),
        ("\\#a", "#a", True),
        ("\\!a", "!a", True),
        ("# a", "# a", False),
        ("a  ", "a", True),
        ("a\\ ", "a ", True),
        ("a\r\nb\r", "a", True),
        ("\ufeffa", "a", True),
        ("[a\nb", "[a", False),
        ("[a\nb", "b", True),
        ("[z-a]", "m", False),
        ("[[:nope:]]", "m", False),
        ("a\\\nb", "a", False),
        ("/\n!\n\n", "a", False),
        ("a.c", "abc", False),
        ("**/**/**/x", "p/q/x", True),
        ("***", "x", True),
    ],
)
def test_gitignore_lines_mean_what_they_mean_to_git(lines, path, ignored):
    assert rules({".gitignore": lines}).excluded(path) == (".gitignore" if ignored else None)


def test_deeper_file_overrides_and_excluded_parent_wins():
    files = {".gitignore": "*.log\nout/\n", "a/.gitignore": "!x.log\n", "out/.gitignore": "!*\n"}
    assert rules(files).excluded("a/x.log") is None
    assert rules(files).excluded("b/x.log") == ".gitignore"
    assert rules(files).excluded("out/x.py") == ".gitignore"


def test_pattern_with_a_slash_is_relative_to_its_file():
    files = {"a/.gitignore": "/b/c\n"}
    assert rules(files).excluded("a/b/c") == ".gitignore"
    assert rules(files).excluded("b/c") is None


def test_info_exclude_comes_last():
    files = {".git/HEAD": "ref: x", ".git/info/exclude": "*.tmp\n*.log\n", ".gitignore": "!a.log\n"}
    assert rules(files).excluded("x.tmp") == ".git/info/exclude"
    assert rules(files).excluded("a.log") is None


def test_own_file_hides_what_git_keeps_and_shows_what_git_ignores():
    files = {".gitignore": "gen*.py\n", ".qmlxignore": "!gen.py\nprivate/\n", "a/.qmlxignore": "x.py\n"}
    assert rules(files).excluded("gen.py") is None
    assert rules(files).excluded("gen2.py") == ".gitignore"
    assert rules(files).excluded("private/a") == ".qmlxignore"
    assert rules(files).excluded("a/x.py") == ".qmlxignore"


def test_given_patterns_exclude_and_are_not_undone_by_files():
    assert rules({".gitignore": "!data\n"}, ["data/", "*.csv"]).excluded("data/x") == "exclude"
    assert rules(exclude=["*.csv"]).excluded("a/b.csv") == "exclude"


def test_repository_above_the_root_is_honoured_but_does_not_exclude_the_root():
    files = {"/top/.git/HEAD": "ref: x", "/top/.gitignore": "sub\n*.log\n/sub/deep\n", "/.gitignore": "*\n"}
    sub = rules(files, root="/top/sub")
    assert sub.excluded("a.py") is None
    assert sub.excluded("a.log") == ".gitignore"
    assert sub.excluded("deep/x") == ".gitignore"
    assert sub.excluded("x/sub/y") == ".gitignore"


def test_linked_worktree_is_a_repository_too():
    files = {"/top/.git": "gitdir: /x\n", "/top/.gitignore": "*.log\n"}
    assert rules(files, root="/top/sub").excluded("a.log") == ".gitignore"


def test_files_are_read_once_until_forgotten():
    files = {"/r/.gitignore": "a\n"}
    reads = []

    def read(path):
        reads.append(path)
        return files.get(path)

    ignore = Ignore("/r/", read)
    assert ignore.excluded("a") == ".gitignore"
    count = len(reads)
    files["/r/.gitignore"] = "b\n"
    assert ignore.excluded("a") == ".gitignore"
    assert len(reads) == count
    ignore.forget()
    assert ignore.excluded("a") is None
    assert ignore.excluded("b") == ".gitignore"
