"""A large burst of changes on disk (a branch switch, a generator) as one short text for the model.

It names files where few have changed and counts them by folder where many have: as long as there are lines, the
folder with the most changes gets one of its own, taken from the line that it was counted in; then the files of a
folder are named, all or none. Pure, and the same for the same changes.

Invariant: the text has at most ``limit_lines`` lines and ``limit_chars`` characters, begins with no whitespace and
ends with exactly one line break. Every changed file is counted in exactly one line.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from qmlx_lsp.workspace.changes import Changes
from qmlx_lsp.workspace.shown import shown

LINES_MIN, CHARS_MIN = 4, 400  # what a summary needs in any case
BECAUSE_MAX = 200  # characters of a reason

STALE_NAMES_MAX = 20  # files that are out of date for the model and are named

_WORDS = ("changed", "new", "deleted")


@dataclass(slots=True)
class _Folder:
    """``files`` by name with what happened to them; ``count`` is of all files at or below."""

    count: int = 0
    files: dict[str, str] = field(default_factory=dict)
    folders: dict[str, _Folder] = field(default_factory=dict)


def summary(changes: Changes, limit_lines: int = 40, limit_chars: int = 4_000, because: str = "") -> str:
    """What has changed, by folder. ``because`` is a sentence that comes first, as "The branch is now main."."""
    assert limit_lines >= LINES_MIN
    assert limit_chars >= CHARS_MIN
    sets = (changes.changed, changes.added, changes.removed)
    counts = [f"{len(paths):,} {word}" for paths, word in zip(sets, _WORDS, strict=True) if paths]
    head = [shown(because.strip())[:BECAUSE_MAX].strip()] if because.strip() else []
    head.append(f"On disk {_files(len(changes))} changed ({', '.join(counts)}){':' if changes else ''}")
    if not changes:
        head[-1] = "On disk nothing changed."
    places = _opened(_tree(dict(zip(_WORDS, sets, strict=True))), limit_lines - len(head)) if changes else []
    left = limit_chars - sum(len(line) + 1 for line in head)
    return "\n".join([*head, *_fitting(places, limit_lines - len(head), left)]) + "\n"


def out_of_date(changed: Sequence[str], deleted: Sequence[str]) -> str:
    """Lines about files whose text the model has, but not as it is now; empty for none."""
    lines = ""
    if changed:
        lines += f"Files that you were shown and that have changed, which is not shown here: {_names(changed)}.\n"
    if deleted:
        lines += f"Files that you were shown and that have been deleted: {_names(deleted)}.\n"
    return lines


def _names(paths: Sequence[str]) -> str:
    more = f", and {len(paths) - STALE_NAMES_MAX:,} more" if len(paths) > STALE_NAMES_MAX else ""
    return ", ".join(shown(path) for path in paths[:STALE_NAMES_MAX]) + more


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"


def _tree(sets: Mapping[str, Iterable[str]]) -> _Folder:
    top = _Folder()
    for word, paths in sets.items():
        for path in paths:
            *folders, name = path.split("/")
            here = top
            here.count += 1
            for part in folders:
                here = here.folders.setdefault(part, _Folder())
                here.count += 1
            here.files[name] = word
    return top


def _opened(top: _Folder, lines: int) -> list[tuple[int, str, str]]:
    """At most ``lines`` places as (count, path, what to say), the largest first."""
    left = {"": top.count}  # of every folder with a line of its own, what is counted in that line
    opened: set[str] = set()
    files: list[tuple[int, str, str]] = []
    used = 1
    waiting = _children("", top)
    heapq.heapify(waiting)
    while waiting:
        negative, path, parent, child = heapq.heappop(waiting)
        names = sorted(child) if isinstance(child, dict) else []
        count = len(names) or -negative
        more = (len(names) or 1) - (left[parent] == count)
        if used + more > lines:
            continue
        left[parent] -= count
        used += more
        opened.add(parent)
        if isinstance(child, dict):
            files += [(1, path + name, child[name]) for name in names]
            continue
        left[path] = count
        for place in _children(path, child):
            heapq.heappush(waiting, place)
    named = {path: f"elsewhere in {path}" if path else "elsewhere" for path in opened}
    named.setdefault("", "the top folder")
    folders = [(count, named.get(path, path), _files(count)) for path, count in left.items() if count]
    return sorted(folders + files, key=lambda place: (-place[0], place[1]))


_Place = tuple[int, str, str, "_Folder | dict[str, str]"]


def _children(path: str, folder: _Folder) -> list[_Place]:
    """As heap entries: the count, negative, the path, the parent's path, and what is there. Files come after folders,
    and all of a folder's together. No two have the same path, so that what is behind it is never compared."""
    below: list[_Place] = [(-inner.count, f"{path}{name}/", path, inner) for name, inner in folder.folders.items()]
    return [*below, (0, path, path, folder.files)] if folder.files else below


def _fitting(places: list[tuple[int, str, str]], lines: int, chars: int) -> list[str]:
    """As many lines as there is room for; what is left over is counted in the last one."""
    texts = [f"- {shown(path)}: {what}" for _, path, what in places]
    if len(texts) <= lines and sum(len(text) + 1 for text in texts) <= chars:
        return texts
    rest = sum(count for count, _, _ in places)
    kept: list[str] = []
    room = chars - len(_more(len(places), rest)) - 1
    for text, (count, _, _) in zip(texts, places, strict=True):
        if len(kept) == lines - 1 or len(text) + 1 > room:
            break
        kept.append(text)
        room -= len(text) + 1
        rest -= count
    return [*kept, _more(len(places) - len(kept), rest)]


def _more(places: int, files: int) -> str:
    return f"- {places:,} more place{'' if places == 1 else 's'}: {_files(files)}"
