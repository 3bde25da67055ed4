"""Which paths of a workspace are private or none of our business.

It must never let a secret through because some ignore file says so, and never fail on a pattern it cannot read.

Invariant: the built-in rules cannot be negated. An excluded folder excludes everything below it.
Invariant: nothing above the root excludes the root itself: a folder that someone opens is meant to be seen.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

from qmlx_lsp.workspace.patterns import Patterns, parse, parse_lines

SECRET_NAMES = (
    ".env", ".env.*", "*.env", ".envrc", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk",
    "*.gpg", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "credentials*", "secrets.*", ".secrets",
    ".netrc", "_netrc", ".npmrc", ".pypirc", ".pgpass", ".my.cnf", ".htpasswd", ".git-credentials", ".dockercfg",
    ".vault-token", "*.tfstate", "*.tfstate.*", "*.tfvars", "service-account*.json", ".aws", ".ssh", ".gnupg",
    ".azure", ".kube",
)  # fmt: skip
"""Names, in any case, of files and folders that hold keys or passwords."""

OPEN_NAMES = (
    ".env.example", ".env.sample", ".env.template", ".env.dist", ".env.*.example", ".env.*.sample",
    ".env.*.template", "example.env", "sample.env", "template.env",
)  # fmt: skip
"""Names that match a secret's and are meant to be read."""

UNTOLD_FOLDERS = frozenset({
    ".git", ".hg", ".svn", ".jj", "node_modules", "bower_components", ".venv", "venv", "__pycache__", ".tox", ".nox",
    ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".ipynb_checkpoints", ".cache", ".gradle",
    ".terraform", ".idea", ".vs", ".direnv", ".eggs", ".next", ".nuxt", ".svelte-kit", ".turbo", ".parcel-cache",
})  # fmt: skip
"""Names of folders full of what nobody wrote here."""

_INFO = ".git/info/exclude"
_USERS = "core.excludesFile"
_LEADS = "gitdir:"
_RULES = (".qmlxignore", ".gitignore")  # what is ours comes first


def _one_of(names: Sequence[str]) -> re.Pattern[str]:
    return re.compile("|".join(translate(name) for name in names), re.IGNORECASE)


_SECRET, _OPEN = _one_of(SECRET_NAMES), _one_of(OPEN_NAMES)
# What editors and people leave beside a file; the copy is as secret as the original.
_BACKUP = re.compile(r"(?:~|\.(?:bak|old|orig|save|sw[a-p]|tmp))+\Z", re.IGNORECASE)


@lru_cache(maxsize=4096)  # the same names are in many folders
def _is_secret(name: str) -> bool:
    name = _BACKUP.sub("", name)
    return bool(_SECRET.match(name) and not _OPEN.match(name))


def is_secret_path(path: str) -> bool:
    """Whether any part of ``path`` is named like something that holds keys or passwords."""
    return any(_is_secret(name) for name in path.split("/"))


_Chain = tuple[tuple[str, tuple[tuple[Patterns, int], ...]], ...]
"""In the order of precedence: the rules' name, and each file that has patterns with the length of the path of the
folder it is in (a slash at its end included), the deepest first."""


@dataclass(frozen=True, slots=True)
class Inside:
    """The rules for what lies directly in one folder, gathered once so that a scan asks little per name.

    Invariant: ``reason`` says of a name what ``Ignore.excluded`` says of its path.
    """

    folder: str
    """The absolute path, with a slash at its end."""
    extra: tuple[Patterns, int]
    chain: _Chain

    def reason(self, name: str, *, folder: bool) -> str | None:
        """Why ``name`` must not be read or told, as ``Ignore.excluded`` says it; ``None`` if it may be."""
        if _is_secret(name):
            return "secret"
        if folder and name in UNTOLD_FOLDERS:
            return "folder"
        path = self.folder + name
        patterns, cut = self.extra
        if patterns.patterns and patterns.verdict(path[cut:], folder=folder):
            return "exclude"
        for rules, files in self.chain:
            for patterns, cut in files:
                verdict = patterns.verdict(path[cut:], folder=folder)
                if verdict is not None:
                    return rules if verdict else None
        return None


class Ignore:
    """The rules of one workspace folder.

    ``root`` is its absolute path. ``read`` gives the text of a file by absolute path, ``None`` if there is none or
    it cannot be read. ``exclude`` are further patterns in the syntax of ``.gitignore``, relative to the root.
    ``users`` is the file of what git ignores in all of this user's repositories. ``ignore_case`` is for file systems
    that do. What was read is kept until ``forget``.
    """

    def __init__(
        self,
        root: str,
        read: Callable[[str], str | None],
        exclude: Sequence[str] = (),
        *,
        users: str | None = None,
        ignore_case: bool = False,
    ) -> None:
        self._root = posixpath.normpath(root)
        self._read = read
        self._ignore_case = ignore_case
        self._users = users
        self._extra = parse_lines(exclude, ignore_case=ignore_case)
        self._specs: dict[str, Patterns] = {}
        self._folders: dict[str, str | None] = {}
        self._chains: dict[str, _Chain] = {}
        self._repository: str | None = None

    def forget(self) -> None:
        """Ignore files may have changed: read them again when next asked."""
        self._specs.clear()
        self._folders.clear()
        self._chains.clear()
        self._repository = None

    def excluded(self, path: str) -> str | None:
        """Why ``path``, relative to the root with forward slashes, must not be read or told; ``None`` if it may be.

        The reason is ``"secret"``, ``"folder"`` (one of ``UNTOLD_FOLDERS``), ``"exclude"`` (the given patterns),
        ``".qmlxignore"``, ``".gitignore"``, ``".git/info/exclude"``, ``"core.excludesFile"`` or ``"outside"`` (not
        below the root).
        A path ending in a slash is a folder.
        """
        tidy = posixpath.normpath(path)
        if posixpath.isabs(tidy) or tidy.split("/")[0] == "..":
            return "outside"
        if tidy == ".":
            return None
        parts = tidy.split("/")
        for depth in range(1, len(parts)):
            reason = self._folder("/".join(parts[:depth]))
            if reason:
                return reason
        return self._folder(tidy) if path.endswith("/") else self._decide(tidy, folder=False)

    def inside(self, folder: str, names: Container[str]) -> Inside:
        """The rules for what lies in ``folder`` (relative, no slash at its end, ``""`` is the root), which is not
        excluded itself. ``names`` is what it holds, in lower case: an ignore file that is not there is not looked
        for."""
        here = _slashed(posixpath.join(self._root, folder) if folder else self._root)
        self._chains[folder] = self._chain(folder, here, names)
        return Inside(here, (self._extra, len(_slashed(self._root))), self._chains[folder])

    def _chain(self, folder: str, here: str, names: Container[str]) -> _Chain:
        """Its parent's, and what the folder adds: mostly nothing, and then it is the parent's own."""
        above = self._chain_of(posixpath.dirname(folder)) if folder else self._chain_of_root()
        own = {rules: self._patterns(here + rules) for rules in _RULES if rules in names}
        if not any(patterns.patterns for patterns in own.values()):
            return above
        files = dict(above)
        for rules, patterns in own.items():
            if patterns.patterns:
                files[rules] = ((patterns, len(here)), *files.get(rules, ()))
        return tuple((rules, files[rules]) for rules in (*_RULES, _INFO, _USERS) if rules in files)

    def _chain_of(self, folder: str) -> _Chain:
        """That of a folder of which it is not known what it holds, unless it was asked about before."""
        if folder not in self._chains:
            here = _slashed(posixpath.join(self._root, folder) if folder else self._root)
            self._chains[folder] = self._chain(folder, here, _RULES)
        return self._chains[folder]

    def _chain_of_root(self) -> _Chain:
        """What holds for the root from above it."""
        repository = self._find_repository()
        above = [base for base in _upwards(self._root, repository) if base != self._root] if repository else []
        read = [(self._patterns(posixpath.join(base, _RULES[1])), len(_slashed(base))) for base in above]
        found = {_RULES[1]: tuple((patterns, cut) for patterns, cut in read if patterns.patterns)}
        base = len(_slashed(repository or self._root))
        found |= {rules: ((self._patterns(file), base),) for rules, file in self._weakest(repository)}
        return tuple((rules, files) for rules, files in found.items() if any(p.patterns for p, _ in files))

    def _folder(self, path: str) -> str | None:
        if path not in self._folders:
            self._folders[path] = self._decide(path, folder=True)
        return self._folders[path]

    def _decide(self, path: str, *, folder: bool) -> str | None:
        """The verdict on one path whose parents are not excluded."""
        name = posixpath.basename(path)
        if _is_secret(name):
            return "secret"
        if folder and name in UNTOLD_FOLDERS:
            return "folder"
        if self._extra.verdict(path, folder=folder):
            return "exclude"
        return self._by_files(posixpath.join(self._root, path), folder=folder)

    def _by_files(self, path: str, *, folder: bool) -> str | None:
        """The verdict of the ignore files on an absolute path: the deepest file with a matching pattern decides.

        Our own files come before git's, so that they can hide what git keeps and show what git ignores.
        """
        repository = self._find_repository()
        for name, top in zip(_RULES, (self._root, repository or self._root), strict=True):
            for base in _upwards(posixpath.dirname(path), top):
                verdict = self._verdict(posixpath.join(base, name), base, path, folder=folder)
                if verdict is not None:
                    return name if verdict else None
        for name, file in self._weakest(repository):
            verdict = self._verdict(file, repository or self._root, path, folder=folder)
            if verdict is not None:
                return name if verdict else None
        return None

    def _weakest(self, repository: str | None) -> Iterator[tuple[str, str]]:
        """Name and file of the rules that git asks last, in its order; they hold for the whole repository."""
        if repository:
            yield _INFO, posixpath.join(self._git_folder(repository), "info/exclude")
        if self._users is not None:
            yield _USERS, self._users

    def _git_folder(self, repository: str) -> str:
        """Where git keeps what its worktrees share. In a linked worktree ``.git`` is a file that leads there."""
        leads = (self._read(posixpath.join(repository, ".git")) or "").strip()
        if not leads.startswith(_LEADS):
            return posixpath.join(repository, ".git")
        folder = posixpath.join(repository, leads.removeprefix(_LEADS).strip())
        common = (self._read(posixpath.join(folder, "commondir")) or "").strip()
        return posixpath.normpath(posixpath.join(folder, common))

    def _verdict(self, file: str, base: str, path: str, *, folder: bool) -> bool | None:
        return self._patterns(file).verdict(path[len(base) :].lstrip("/"), folder=folder)

    def _patterns(self, file: str) -> Patterns:
        if file not in self._specs:
            self._specs[file] = parse(self._read(file) or "", ignore_case=self._ignore_case)
        return self._specs[file]

    def _find_repository(self) -> str | None:
        """The folder at or above the root that git works from; its ignore files hold for the root as well."""
        if self._repository is None:
            # In a linked worktree or a submodule ``.git`` is a file.
            signs = (".git/HEAD", ".git")
            tops = _upwards(self._root, "/")
            found = (top for top in tops if any(self._read(posixpath.join(top, sign)) for sign in signs))
            self._repository = next(found, "")
        return self._repository or None


def _slashed(folder: str) -> str:
    return folder if folder.endswith("/") else f"{folder}/"


def _upwards(folder: str, top: str) -> Iterator[str]:
    """``folder`` and its parents up to and including ``top``."""
    while True:
        yield folder
        if folder in {top, "/", ""}:
            return
        folder = posixpath.dirname(folder)
