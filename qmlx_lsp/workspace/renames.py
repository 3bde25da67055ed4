"""Which files that have vanished are still there under another name.

Invariant: a new name is given to one old one at most, and equal texts are paired before similar ones.
Invariant: a text of a few characters proves nothing: only the same last name makes such files one.
"""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from qmlx_lsp.workspace.diff import unified
from qmlx_lsp.workspace.shown import shown
from qmlx_lsp.workspace.told import seen_text

SIMILAR = 0.5
"""A difference of at most this share of the text (characters over characters) leaves it the same file."""

TELLING_CHARS_MIN = 20
"""Characters that a text must have, less spaces, for its equality to mean something."""

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
    found: list[Rename] = []
    free = dict(homes)
    for same in (True, False):
        taken = {rename.old for rename in found}
        for old, told in vanished.items():
            if old in taken:
                continue
            text = seen_text(told)
            new = _best(old, text, free, same=same)
            if new is not None:
                found.append(Rename(old, new, told))
                del free[new]
    return found


def _best(old: str, text: str, homes: Mapping[str, str], *, same: bool) -> str | None:
    name = posixpath.basename(old)
    telling = len("".join(text.split())) >= TELLING_CHARS_MIN
    fitting = []
    for path, other in homes.items():
        named = posixpath.basename(path) == name
        if not telling and not named:
            continue
        after = seen_text(other)
        if same and text == after:
            fitting.append((not named, 0, path))
        elif not same and _near(text, after) and (named or posixpath.splitext(path)[1] == posixpath.splitext(old)[1]):
            fitting.append((not named, len(unified(text, after)), path))
    fitting = [fit for fit in fitting if same or fit[1] <= SIMILAR * max(len(text), 1)]
    return min(fitting)[2] if fitting else None


def _near(one: str, other: str) -> bool:
    """Whether two texts are of a length at all; cheap, before they are compared."""
    return min(len(one), len(other)) * 2 >= max(len(one), len(other))


def folders(renames: Sequence[Rename]) -> tuple[list[str], Collection[Rename]]:
    """A line for each folder that was moved with what is in it, and the renames that the lines say all about."""
    groups: dict[tuple[str, str], list[Rename]] = defaultdict(list)
    for rename in renames:
        old, new = rename.old.split("/"), rename.new.split("/")
        common = 0
        while common < min(len(old), len(new)) - 1 and old[-1 - common] == new[-1 - common]:
            common += 1
        if common:
            groups["/".join(old[:-common]), "/".join(new[:-common])].append(rename)
    lines, covered = [], []
    for (old_folder, new_folder), members in sorted(groups.items()):
        if len(members) >= FOLDER_FILES_MIN and old_folder and new_folder:
            lines.append(f"Folder {shown(old_folder)} was renamed to {shown(new_folder)} ({len(members):,} files).\n")
            covered += members
    return lines, covered
