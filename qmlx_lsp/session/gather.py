"""What a turn has to say besides its question: files at first sight, and what has changed since.

The decision is pure (``choose``); reading files happens before, off the event loop (``look``).

Invariant: a file that is excluded (``.gitignore``, secrets) is never read here, let alone told.
Invariant: what the editor has open wins over the disk.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from qmlx_lsp.errors import QuestionError
from qmlx_lsp.session.event import Ask
from qmlx_lsp.transcript.entry import Kind
from qmlx_lsp.transcript.transcript import Draft
from qmlx_lsp.workspace.ignore import Ignore
from qmlx_lsp.workspace.told import Limits, mention, named, tell


@dataclass(frozen=True, slots=True)
class Sight:
    """One file as it is now. ``text`` is None when the file is gone, or when it is only to be named: then ``hidden``
    says why, and ``size`` (bytes) how large it is if that is the reason."""

    path: str
    text: str | None
    asked: bool = False
    hidden: str | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Gathered:
    """Context drafts in order, and what each file will have been told once they are durable."""

    drafts: Sequence[Draft]
    told: Mapping[str, str | None]


def ignore_rules(root: Path) -> Ignore:
    """What must not be told of ``root``. An ``Ignore`` is for one thread at a time."""
    return Ignore(str(root), _read_ignore_file)


def _read_ignore_file(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


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


def look(
    root: Path,
    ask: Ask,
    open_texts: Mapping[str, str],
    told: Iterable[str],
    ignore: Ignore,
    max_bytes: int,
) -> list[Sight]:
    """The files this turn may have to speak of: the one asked about, those open, those told before.

    Blocking (reads files); call it on a thread. Paths are relative to ``root``.

    Raises:
        QuestionError: the file asked about is outside the root, private, missing, too large or not text.
    """
    asked = None if ask.path is None else _asked(root, ask.path, ignore)
    sights = []
    for path in dict.fromkeys([*([asked] if asked else []), *open_texts, *told]):
        if ignore.excluded(path):
            continue
        if path in open_texts:
            sight = Sight(path, open_texts[path], path == asked)
        else:
            sight = _on_disk(root / path, path, max_bytes, asked=path == asked)
        if sight.asked:
            _check_showable(sight, max_bytes)
        sights.append(sight)
    return sights


def _asked(root: Path, asked: str, ignore: Ignore) -> str:
    path = relative(root, asked)
    if path is None:
        raise QuestionError(f"{asked} is outside the folder {root}: open or name a folder that contains it.")
    if reason := ignore.excluded(path):
        raise QuestionError(f"{path} is private ({reason}) and is never shown to the model: ask without it.")
    return path


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


def _on_disk(file: Path, path: str, max_bytes: int, *, asked: bool) -> Sight:
    try:
        about = file.stat()
        size = about.st_size
        if not stat.S_ISREG(about.st_mode):  # reading a pipe or a device may never end
            return Sight(path, None, asked, "no file")
        if size > max_bytes:
            return Sight(path, None, asked, "too large", size)
        data = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return Sight(path, None, asked)
    except OSError:
        return Sight(path, None, asked, "unreadable")
    try:
        return Sight(path, data.decode("utf-8"), asked)
    except UnicodeDecodeError:
        return Sight(path, None, asked, "binary")


def choose(
    ask: Ask,
    sights: Sequence[Sight],
    told: Mapping[str, str],
    limits: Limits,
    budget_tokens: int,
    count: Callable[[str], int],
) -> Gathered:
    """What to say of ``sights``, within ``budget_tokens`` (``count`` tells how many tokens a text has).

    The file asked about comes last, nearest to the question. A file that does not fit is left for a later turn.

    Raises:
        QuestionError: the file asked about does not fit and no selection says which part is meant.
    """
    drafts: list[Draft] = []
    new_told: dict[str, str | None] = {}
    left = budget_tokens
    for sight in sorted(sights, key=lambda s: not s.asked):
        before = told.get(sight.path)
        if sight.hidden is not None:
            telling = named(sight.path, before, sight.hidden, sight.size)
        else:
            telling = tell(sight.path, before, sight.text, limits)
        if telling is None:
            continue
        cost = count(telling.text)
        if cost > left:
            if sight.asked and ask.lines is None:
                raise QuestionError(
                    f"{sight.path} has about {cost:,} tokens and {left:,} are left for it in this model's context: "
                    "select the part you ask about."
                )
            continue
        left -= cost
        drafts.insert(0, (Kind.CONTEXT, telling.text, sight.path))
        new_told[sight.path] = telling.told
    asked = next((s for s in sights if s.asked and s.text is not None), None)
    if ask.lines is not None and asked is not None and asked.text is not None:
        drafts.append((Kind.CONTEXT, mention(asked.path, asked.text, *ask.lines), asked.path))
    return Gathered(drafts, new_told)
