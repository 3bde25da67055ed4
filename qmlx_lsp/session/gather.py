"""What a turn has to say besides its question: files at first sight, and what has changed since.

The decision is pure (``choose``); reading files happens before, off the event loop (``look``).

Invariant: a file that is excluded (``.gitignore``, secrets) is never read here, let alone told.
Invariant: what the editor has open wins over the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from qmlx_lsp.errors import QuestionError
from qmlx_lsp.session.event import Ask
from qmlx_lsp.transcript.entry import Kind
from qmlx_lsp.transcript.transcript import Draft
from qmlx_lsp.workspace.ignore import Ignore
from qmlx_lsp.workspace.positions import LineIndex
from qmlx_lsp.workspace.told import Limits, mention, tell


@dataclass(frozen=True, slots=True)
class Sight:
    """One file as it is now. ``text`` is None when the file is gone. ``named`` says why it is not shown, if so."""

    path: str
    text: str | None
    asked: bool = False


@dataclass(frozen=True, slots=True)
class Gathered:
    """Context drafts in order, and what each file will have been told once they are durable."""

    drafts: Sequence[Draft]
    told: Mapping[str, str | None]


def relative(root: Path, path: str | Path) -> str | None:
    """``path`` below ``root`` in POSIX spelling, or None when it lies outside."""
    try:
        return str(PurePosixPath(Path(path).relative_to(root)))
    except ValueError:
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
    asked = _asked(root, ask, open_texts, ignore, max_bytes)
    paths = dict.fromkeys([*([asked] if asked else []), *open_texts, *told])
    sights = []
    for path in paths:
        if ignore.excluded(path):
            continue
        text = open_texts.get(path)
        if text is None:
            text = _read(root / path, max_bytes)
        sights.append(Sight(path, text, asked=path == asked))
    return sights


def _asked(root: Path, ask: Ask, open_texts: Mapping[str, str], ignore: Ignore, max_bytes: int) -> str | None:
    if ask.path is None:
        return None
    path = relative(root, ask.path)
    if path is None:
        raise QuestionError(f"{ask.path} is outside the folder {root}: ask from a folder that contains it.")
    if reason := ignore.excluded(path):
        raise QuestionError(f"{path} is private ({reason}) and is never shown to the model: ask without it.")
    size = len(open_texts[path].encode("utf-8", "replace")) if path in open_texts else _size(root / path, path)
    if size > max_bytes:
        raise QuestionError(
            f"{path} has {size / 1e6:.1f} MB, more than the {max_bytes / 1e6:.1f} MB that are shown to the model: "
            "ask in a smaller file or raise context.max_file_kb."
        )
    if path not in open_texts and _read(root / path, max_bytes) is None:
        raise QuestionError(f"{path} is not text in UTF-8, so it cannot be shown to the model: ask without it.")
    return path


def _size(file: Path, path: str) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise QuestionError(f"{path} cannot be read ({error.strerror or error}).") from error


def _read(file: Path, max_bytes: int) -> str | None:
    """The file's text; None when it is gone, is not UTF-8 text or is larger than ``max_bytes``."""
    try:
        if file.stat().st_size > max_bytes:
            return None
        data = file.read_bytes()
    except OSError:
        return None
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


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
        telling = tell(sight.path, told.get(sight.path), sight.text, limits)
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
    if ask.lines is not None:
        drafts += _selection(ask.lines, sights)
    return Gathered(drafts, new_told)


def _selection(lines: tuple[int, int], sights: Sequence[Sight]) -> list[Draft]:
    asked = next((s for s in sights if s.asked and s.text is not None), None)
    if asked is None or asked.text is None:
        return []
    last = min(lines[1], LineIndex(asked.text).line_count)
    first = min(lines[0], last)
    return [(Kind.CONTEXT, mention(asked.path, asked.text, first, last), asked.path)]
