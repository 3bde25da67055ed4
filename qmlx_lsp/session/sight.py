"""The files that a turn may have to speak of, as they are at this moment: what editors have open, and the disk.

Reading is blocking; it is done on a thread. What to say of what was seen is ``gather``'s decision.

Invariant: a file that is private is never read here, by whatever name or link somebody comes to it.
Invariant: what the editor has open wins over the disk.
"""

from __future__ import annotations

import os
import posixpath
import stat
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path, PurePosixPath

from qmlx_lsp.errors import QuestionError
from qmlx_lsp.session.event import Ask
from qmlx_lsp.workspace.ignore import Ignore, is_secret_path
from qmlx_lsp.workspace.mentions import Mention, mentions
from qmlx_lsp.workspace.notebook import NOTEBOOK_BYTES_MAX, as_script, is_notebook
from qmlx_lsp.workspace.parts import Range
from qmlx_lsp.workspace.uris import is_path

UNSAVED = "untitled:"
"""How the path of a document begins that has no file yet; the whole is its URI."""

SETTLE_S = 0.1
"""Seconds after which a file that has gone is looked for again: many programs save by removing and creating."""

CANDIDATES_MAX = 50
"""Files that are read at most to find out where those that have gone went."""


class Role(IntEnum):
    """Why a file is looked at, the most pressing reason first."""

    ASKED = 0
    NAMED = 1
    OPEN = 2
    TOLD = 3
    FOUND = 4  # where a file that is gone may have gone


@dataclass(frozen=True, slots=True)
class Sight:
    """One file as it is now. ``text`` is None when the file is gone, or when it is only to be named: then ``hidden``
    says why, and ``size`` (bytes) how large it is if that is the reason. ``lines`` are those that were pointed at."""

    path: str
    text: str | None
    role: Role = Role.OPEN
    hidden: str | None = None
    size: int | None = None
    lines: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True)
class Workspace:
    """What sights are taken of. ``root`` is a real path. ``open_texts``: by relative path, the latest used first, of
    documents that have no file by URI. ``told``: what was told before. ``homes(path)``: what has come into being
    lately and may be ``path``, which has vanished. ``named(name)``: the files of the workspace with that name."""

    root: Path
    ignore: Ignore
    open_texts: Mapping[str, str]
    max_bytes: int
    told: Collection[str] = ()
    homes: Callable[[str], Sequence[str]] = lambda _path: ()
    named: Callable[[str], Sequence[str]] = lambda _name: ()
    settle: Callable[[float], None] = time.sleep


def relative(root: Path, path: str | Path) -> str | None:
    """``path`` below ``root`` in POSIX spelling, or None when it lies outside. ``..`` leads where it leads.

    ``root`` is a real path, without symbolic links. ``path`` may reach it through some (macOS has ``/tmp`` and
    ``/var``), or be one below it: a link that the project holds is a file of the project.
    """
    folder, name = os.path.split(os.path.normpath(path))
    for spelling in (Path(folder, name), Path(os.path.realpath(folder), name)):
        if spelling == root or root in spelling.parents:
            return str(PurePosixPath(spelling.relative_to(root)))
    return None


def private(root: Path, path: str, ignore: Ignore) -> str | None:
    """Why ``path``, relative to ``root``, is not to be read; None if it may be. A link is also what it leads to."""
    if path.startswith(UNSAVED):
        return None
    if reason := ignore.excluded(path):
        return reason
    real = os.path.realpath(root / path)
    if real == str(root / path):
        return None
    inside = relative(root, real)
    if inside is not None:
        return ignore.excluded(inside)
    return "secret" if is_secret_path(real) else None


def look(workspace: Workspace, ask: Ask) -> list[Sight]:
    """The files that this turn may have to speak of, each once, the most pressing first: the one asked about, those
    the question names, those open, those told before, and where the vanished ones may have gone.

    Raises:
        QuestionError: a file asked about or named is outside the root, private, missing, too large or not text.
    """
    wanted: dict[str, tuple[Role, list[Range]]] = {}
    if ask.path is not None:
        places = [ask.lines] if ask.lines else [(ask.at, ask.at)] if ask.at else []
        wanted[_asked(workspace, ask.path)] = (Role.ASKED, places)
    for mention in mentions(ask.text):
        if (path := _mentioned(workspace, mention, ask)) is not None:
            _, lines = wanted.setdefault(path, (Role.NAMED, []))
            lines += [mention.lines] if mention.lines else []
    for path in workspace.open_texts:
        if not path.startswith(UNSAVED) or path in workspace.told:
            wanted.setdefault(path, (Role.OPEN, []))
    for path in workspace.told:
        wanted.setdefault(path, (Role.TOLD, []))
    sights = [
        _sight(workspace, path, role, tuple(lines))
        for path, (role, lines) in wanted.items()
        if not private(workspace.root, path, workspace.ignore)
    ]
    for sight in sights:
        if sight.role in (Role.ASKED, Role.NAMED):
            _check_showable(sight, workspace.max_bytes)
    return _with_the_vanished(workspace, sights)


def _sight(workspace: Workspace, path: str, role: Role, lines: tuple[Range, ...] = ()) -> Sight:
    if path in workspace.open_texts:
        return Sight(path, workspace.open_texts[path], role, lines=lines)
    if path.startswith(UNSAVED):
        return Sight(path, None, role)
    return _on_disk(workspace.root / path, Sight(path, None, role, lines=lines), workspace.max_bytes)


def _with_the_vanished(workspace: Workspace, sights: list[Sight]) -> list[Sight]:
    """The same once more for files that were told and are gone: they may be back a moment later, or elsewhere."""
    if not any(_gone(sight) for sight in sights):
        return sights
    workspace.settle(SETTLE_S)
    sights = [_sight(workspace, s.path, s.role, s.lines) if _gone(s) else s for s in sights]
    vanished = [sight.path for sight in sights if _gone(sight)]
    known = {sight.path for sight in sights}
    candidates = [path for path in _candidates(workspace, vanished) if path not in known][:CANDIDATES_MAX]
    found = (_sight(workspace, path, Role.FOUND) for path in candidates)
    return [*sights, *(sight for sight in found if sight.text is not None)]


def _gone(sight: Sight) -> bool:
    return sight.role is Role.TOLD and sight.text is None and sight.hidden is None


def _candidates(workspace: Workspace, vanished: Sequence[str]) -> list[str]:
    """Where the vanished may be: what is new on the disk; then what lies in their own folders."""
    if not vanished:
        return []
    suffixes = {posixpath.splitext(path)[1] for path in vanished}
    nearby = dict.fromkeys(posixpath.dirname(path) for path in vanished)
    beside = (posixpath.join(folder, name) for folder in nearby for name in _names(workspace.root / folder))
    likely = [path for path in beside if posixpath.splitext(path)[1] in suffixes]
    paths = dict.fromkeys([home for path in vanished for home in workspace.homes(path)] + likely)
    return [path for path in paths if not private(workspace.root, path, workspace.ignore)]


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


# --- what was asked about ------------------------------------------------------------------------------------------


def _asked(workspace: Workspace, asked: str) -> str:
    if asked.startswith(UNSAVED):
        if asked not in workspace.open_texts:
            raise QuestionError(f"{asked} is not open here: save it as a file first, or ask without it.")
        return asked
    path = relative(workspace.root, asked)
    if path is None:
        raise QuestionError(
            f"{asked} is outside the folder {workspace.root}: open or name a folder that contains it."
        )
    return _allowed(workspace, path)


def _allowed(workspace: Workspace, path: str) -> str:
    if reason := private(workspace.root, path, workspace.ignore):
        raise QuestionError(f"{path} is private ({reason}) and is never shown to the model: ask without it.")
    return path


def _mentioned(workspace: Workspace, mention: Mention, ask: Ask) -> str | None:
    """The file that is meant; None when it is none of a file's names. Many things begin with @."""
    folders = [workspace.root]
    if ask.path is not None and not ask.path.startswith(UNSAVED):
        folders.append(Path(ask.path).parent)
    for folder in folders if is_path(mention.path) else ():
        path = relative(workspace.root, folder / mention.path)
        if path is not None and (path in workspace.open_texts or _is_file(workspace.root / path)):
            return _allowed(workspace, path)
    same = workspace.named(mention.path) if "/" not in mention.path and "." in mention.path else ()
    if len(same) > 1:
        raise QuestionError(f"@{mention.path} may be {', '.join(sorted(same)[:5])}: write its whole path.")
    if same:
        return _allowed(workspace, same[0])
    if mention.lines:
        raise QuestionError(f"There is no file {mention.path}: check the name, or ask without it.")
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long is in a question what any other is: no file's
        return False


def _check_showable(sight: Sight, max_bytes: int) -> None:
    size = sight.size
    if sight.text is not None:
        size = len(sight.text.encode("utf-8", "replace"))
    if size is not None and size > max_bytes:
        raise QuestionError(
            f"{sight.path} has {size / 1e6:.1f} MB; files of more than {max_bytes / 1e6:.1f} MB are not shown to the "
            "model: ask in a smaller file or raise context.max_file_kb."
        )
    if sight.hidden in ("no file", "unreadable"):
        raise QuestionError(f"{sight.path} cannot be read as a file: check what it is, or ask without it.")
    if sight.hidden or (sight.text is not None and "\0" in sight.text):
        raise QuestionError(f"{sight.path} is not text in UTF-8, so it cannot be shown to the model: ask without it.")
    if sight.text is None:
        raise QuestionError(f"There is no file {sight.path}: check the name, or ask without it.")


def _on_disk(file: Path, blank: Sight, max_bytes: int) -> Sight:
    """``blank`` with what the disk has; of a notebook its script, for most of a large one is not told."""

    def hidden(why: str, size: int | None = None) -> Sight:
        return Sight(blank.path, None, blank.role, why, size, blank.lines)

    notebook = is_notebook(blank.path)
    try:
        about = file.stat()
        size = about.st_size
        if not stat.S_ISREG(about.st_mode):  # reading a pipe or a device may never end
            return hidden("no file")
        if size > (max(max_bytes, NOTEBOOK_BYTES_MAX) if notebook else max_bytes):
            return hidden("too large", size)
        data = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return blank
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return hidden("unreadable")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return hidden("binary")
    if notebook and (found := as_script(text)) is not None:
        text, size = found, len(found.encode())
    return hidden("too large", size) if size > max_bytes else Sight(blank.path, text, blank.role, lines=blank.lines)
