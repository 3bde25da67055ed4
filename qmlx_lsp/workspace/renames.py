"""Which files that have vanished are still there under another name.

Invariant: a new name is given to one old one at most, and equal texts are paired before similar ones.
Invariant: a text of a few characters proves nothing: only the same last name makes such files one.
"""

from __future__ import annotations

import posixpath
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from qmlx_lsp.workspace.diff import unified
from qmlx_lsp.workspace.shown import shown
from qmlx_lsp.workspace.told import seen_text

SIMILAR = 0.5
"""A difference of at most this share of the text (characters over characters) leaves it the same file."""

TELLING_CHARS_MIN = 20
"""Characters that a text must have, less spaces, for its equality to mean something."""

COMPARED_MAX = 100
"""Pairs of texts that are compared at most."""

CANDIDATES_MAX = 3
"""Texts that one vanished text is compared with at most."""

FOLDER_FILES_MIN = 3
"""Files that were moved in the same way are said to be a folder that was moved, from this many on."""


@dataclass(frozen=True, slots=True)
class Rename:
    """``old``, which was told as ``told``, is now ``new``."""

    old: str
    new: str
    told: str


def pair(vanished: Mapping[str, str], homes: Mapping[str, str]) -> list[Rename]:
    """Which of ``vanished`` (path -> what is remembered of it) is which of ``homes`` (path -> text)."""
    texts = {old: seen_text(told) for old, told in vanished.items()}
    free = {new: seen_text(text) for new, text in homes.items()}
    places: dict[str, list[str]] = defaultdict(list)
    for new, text in free.items():
        places[text].append(new)
    found: list[Rename] = []
    for old, text in texts.items():
        fitting = [new for new in places.get(text, ()) if new in free and (_tells(text) or _same_name(old, new))]
        if fitting:
            new = min(fitting, key=lambda path: (not _same_name(old, path), path))
            found.append(Rename(old, new, vanished[old]))
            del free[new]
    taken = {rename.old for rename in found}
    looks = COMPARED_MAX
    for old in (path for path in texts if path not in taken):
        likely = _alike(old, texts[old], free)[:looks]
        looks -= len(likely)
        if fits := [
            (not _same_name(old, new), size, new) for new in likely if (size := _parting(texts[old], free[new]))
        ]:
            new = min(fits)[2]
            found.append(Rename(old, new, vanished[old]))
            del free[new]
    return found


def _tells(text: str) -> bool:
    return len("".join(text[: 10 * TELLING_CHARS_MIN].split())) >= TELLING_CHARS_MIN


def _same_name(one: str, other: str) -> bool:
    return posixpath.basename(one) == posixpath.basename(other)


def _alike(old: str, text: str, homes: Mapping[str, str]) -> list[str]:
    """Homes that share half of the lines, the likeliest first, a few at most. Cheap, before texts are compared."""
    lines = Counter(text.splitlines())
    total = sum(lines.values())
    suffix = posixpath.splitext(old)[1]
    ranked = []
    for new, other in homes.items():
        if not _tells(text) or not (_same_name(old, new) or posixpath.splitext(new)[1] == suffix):
            continue
        there = Counter(other.splitlines())
        common_lines = sum((lines & there).values())
        if common_lines * 2 >= max(total, sum(there.values())):
            ranked.append((not _same_name(old, new), -common_lines, new))
    return [new for _, _, new in sorted(ranked)][:CANDIDATES_MAX]


def _parting(one: str, other: str) -> int:
    """How long the difference is; 0 if it is too long for the two to be one file."""
    size = len(unified(one, other))
    return size if size <= SIMILAR * len(one) else 0


def groups(renames: Iterable[Rename]) -> list[list[Rename]]:
    """Files that were moved in the same way, from one folder to another, where they are many."""
    moves: dict[tuple[str, str], list[Rename]] = defaultdict(list)
    for rename in renames:
        moves[_move(rename)].append(rename)
    return [group for move, group in sorted(moves.items()) if len(group) >= FOLDER_FILES_MIN and all(move)]


def _move(rename: Rename) -> tuple[str, str]:
    """The folders between which a file was moved; both empty if its own name has changed."""
    old, new = rename.old.split("/"), rename.new.split("/")
    same = 0
    while same < min(len(old), len(new)) - 1 and old[-1 - same] == new[-1 - same]:
        same += 1
    return ("/".join(old[:-same]), "/".join(new[:-same])) if same else ("", "")


def common(group: Sequence[Rename], left: Collection[str]) -> str:
    """A line for files that were moved together. The folder was moved if none of the files that are known is left in
    it; else the files are named."""
    old, new = _move(group[0])
    if not any(path.startswith(f"{old}/") for path in left):
        return f"Folder {shown(old)} was renamed to {shown(new)} ({len(group):,} files).\n"
    names = ", ".join(sorted(shown(rename.old.removeprefix(f"{old}/")) for rename in group))
    return f"Files were moved from {shown(old)} to {shown(new)}: {names}.\n"
