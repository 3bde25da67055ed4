"""Which paths of a workspace are private or none of our business.

It must never let a secret through because some ignore file says so, and never fail on a pattern it cannot read.

Invariant: the built-in rules cannot be negated. An excluded folder excludes everything below it.
Invariant: nothing above the root excludes the root itself: a folder that someone opens is meant to be seen.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

from qmlx_lsp.workspace.patterns import Patterns, parse, parse_lines

SECRET_NAMES = (
    ".env*", "*.env", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk",
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
_EXCLUDES_FILE = re.compile(r"^\s*excludesfile\s*=\s*\"?([^\"\n#;]+)", re.IGNORECASE | re.MULTILINE)
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
    extra: tuple[tuple[Patterns, int], ...]
    chain: _Chain

    def reason(self, name: str, *, folder: bool) -> str | None:
        """Why ``name`` must not be read or told, as ``Ignore.excluded`` says it; ``None`` if it may be."""
        if _is_secret(name):
            return "secret"
        if folder and name in UNTOLD_FOLDERS:
            return "folder"
        path = self.folder + name
        if any(patterns.verdict(path[cut:], folder=folder) for patterns, cut in self.extra):
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
    it cannot be read. ``exclude`` are further patterns in the syntax of ``.gitignore``, relative to the root;
    ``around`` are such of folders above it. ``users`` are git's settings, the weakest first, in which this user may
    say what is ignored everywhere (``core.excludesFile``, a path from ``home``); ``fallback`` is what git reads when
    none does. ``ignore_case`` is for file systems that do. What was read is kept until ``forget``.
    """

    def __init__(
        self,
        root: str,
        read: Callable[[str], str | None],
        exclude: Sequence[str] = (),
        *,
        around: Mapping[str, Sequence[str]] | None = None,
        users: Sequence[str] = (),
        fallback: str | None = None,
        home: str = "",
        ignore_case: bool = False,
    ) -> None:
        self._root = posixpath.normpath(root)
        self._read = read
        self._ignore_case = ignore_case
        self._users, self._fallback, self._home = tuple(users), fallback, home
        self._extra = tuple(
            (parse_lines(patterns, ignore_case=ignore_case), len(_slashed(posixpath.normpath(base))))
            for base, patterns in ((self._root, exclude), *(around or {}).items())
            if patterns
        )
        self._texts: dict[str, str] = {}
        self._specs: dict[str, Patterns] = {}
        self._infos: dict[str, Patterns] = {}
        self._folders: dict[str, str | None] = {}
        self._chains: dict[str, _Chain] = {}
        self._repository: str | None = None

    def forget(self) -> None:
        """Ignore files may have changed: read them again when next asked."""
        self._texts.clear()
        self._specs.clear()
        self._infos.clear()
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
        return Inside(here, self._extra, self._chains[folder])

    def _chain(self, folder: str, here: str, names: Container[str]) -> _Chain:
        """Its parent's, and what the folder adds: mostly nothing, and then it is the parent's own."""
        above = self._chain_of(posixpath.dirname(folder)) if folder else self._chain_of_root()
        own = {rules: self._patterns(here + rules) for rules in _RULES if rules in names}
        if ".git" in names or not folder:
            own[_INFO] = self._info(here.rstrip("/"))
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
            self._chains[folder] = self._chain(folder, here, (*_RULES, ".git"))
        return self._chains[folder]

    def _chain_of_root(self) -> _Chain:
        """What holds for the root from above it."""
        repository = self._find_repository()
        above = [base for base in _upwards(self._root, repository) if base != self._root] if repository else []
        found = {
            rules: tuple((self._patterns(posixpath.join(base, rules)), len(_slashed(base))) for base in above)
            for rules in _RULES
        }
        found[_INFO] = tuple((self._info(base), len(_slashed(base))) for base in above)
        found[_USERS] = ((self._of_the_user(repository), len(_slashed(repository or self._root))),)
        kept = {rules: tuple(file for file in files if file[0].patterns) for rules, files in found.items()}
        return tuple((rules, files) for rules, files in kept.items() if files)

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
        whole = posixpath.join(self._root, path)
        if any(patterns.verdict(whole[cut:], folder=folder) for patterns, cut in self._extra):
            return "exclude"
        return self._by_files(whole, folder=folder)

    def _by_files(self, path: str, *, folder: bool) -> str | None:
        """The verdict of the ignore files on an absolute path: the deepest file with a matching pattern decides.

        Our own files come before git's, so that they can hide what git keeps and show what git ignores.
        """
        repository = self._find_repository()
        top = repository or self._root
        for name in _RULES:
            for base in _upwards(posixpath.dirname(path), top):
                verdict = self._verdict(posixpath.join(base, name), base, path, folder=folder)
                if verdict is not None:
                    return name if verdict else None
        for base in _upwards(posixpath.dirname(path), top):
            verdict = self._info(base).verdict(path[len(_slashed(base)) :], folder=folder)
            if verdict is not None:
                return _INFO if verdict else None
        hidden = self._of_the_user(repository).verdict(path[len(_slashed(top)) :], folder=folder)
        return _USERS if hidden else None

    def _info(self, base: str) -> Patterns:
        """What git's own file says of the repository whose top ``base`` is; nothing if it is none."""
        if base not in self._infos:
            folder = self._git_folder(base)
            self._infos[base] = self._patterns(f"{folder}/info/exclude") if folder else parse("")
        return self._infos[base]

    def _of_the_user(self, repository: str | None) -> Patterns:
        """What the last of git's settings that names one calls ignored everywhere."""
        folder = self._git_folder(repository) if repository else None
        settings = [*self._users, *([f"{folder}/config"] if folder else [])]
        named = [match for file in settings for match in _EXCLUDES_FILE.findall(self._read_once(file))]
        if named:
            file = named[-1].strip()
            return self._patterns(posixpath.join(self._home, file.removeprefix("~/")))
        return self._patterns(self._fallback) if self._fallback is not None else parse("")

    def _git_folder(self, base: str) -> str | None:
        """Where git keeps what the worktrees of a repository share, ``None`` if ``base`` is the top of none. In a
        linked worktree or a submodule ``.git`` is a file that leads there."""
        git = posixpath.join(base, ".git")
        if self._read_once(f"{git}/HEAD"):
            return git
        leads = self._read_once(git).strip()
        if not leads.startswith(_LEADS):
            return None
        folder = posixpath.join(base, leads.removeprefix(_LEADS).strip())
        common = self._read_once(posixpath.join(folder, "commondir")).strip()
        return posixpath.normpath(posixpath.join(folder, common))

    def _read_once(self, file: str) -> str:
        if file not in self._texts:
            self._texts[file] = self._read(file) or ""
        return self._texts[file]

    def _verdict(self, file: str, base: str, path: str, *, folder: bool) -> bool | None:
        return self._patterns(file).verdict(path[len(base) :].lstrip("/"), folder=folder)

    def _patterns(self, file: str) -> Patterns:
        if file not in self._specs:
            self._specs[file] = parse(self._read_once(file), ignore_case=self._ignore_case)
        return self._specs[file]

    def _find_repository(self) -> str | None:
        """The folder at or above the root that git works from; its ignore files hold for the root as well."""
        if self._repository is None:
            found = (top for top in _upwards(self._root, "/") if self._git_folder(top))
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
