"""What has happened on the disk since the model was last told, as a turn needs it.

Invariant: what is in here does not change while a turn looks at it; it counts as told when the turn has been
recorded, and not before.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from qmlx_lsp.session.session import News
from qmlx_lsp.session.watch import Watch
from qmlx_lsp.workspace.changes import Changes
from qmlx_lsp.workspace.summary import out_of_date, summary

NEW_HOMES_MAX = 20
"""New files that may each be a vanished one under another name, at most."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the model knows of a disk: the ``branch``, and the files that it was told have ``changed`` there, which it
    has not been shown since."""

    branch: str | None = None
    changed: frozenset[str] = frozenset()


class DiskNews(News):
    """News of a folder that ``watch`` watches. More than ``burst`` files that have changed are told as one summary;
    ``known`` is what the model knows, and ``learned(known)`` is called when that has changed.

    That a file has changed again which the model has not seen is no news: what some program writes over and over is
    told once.
    """

    def __init__(self, watch: Watch, burst: int, known: Known, learned: Callable[[Known], None]) -> None:
        self._watch = watch
        self._pending = watch.pending
        self._burst = burst
        self._known, self._branch = known, watch.branch
        self._learned = learned
        self._learns: Known | None = None
        self._grouped: tuple[dict[int, list[str]], dict[str, list[str]]] | None = None

    def homes(self, path: str) -> Sequence[str]:
        was, (by_size, by_name) = self._watch.index.last_seen(path), self._new_files()
        of_its_size = by_size.get(was.size, []) if was is not None else []
        same = by_name.get(posixpath.basename(path), [])
        return list(dict.fromkeys([*of_its_size[:NEW_HOMES_MAX], *same[:NEW_HOMES_MAX]]))

    def _new_files(self) -> tuple[dict[int, list[str]], dict[str, list[str]]]:
        """What has come into being, by size and by last name."""
        if self._grouped is None:
            by_size: dict[int, list[str]] = {}
            by_name: dict[str, list[str]] = {}
            for path in sorted(self._pending.changes.added):
                by_name.setdefault(posixpath.basename(path), []).append(path)
                if (seen := self._watch.index.seen(path)) is not None:
                    by_size.setdefault(seen.size, []).append(path)
            self._grouped = by_size, by_name
        return self._grouped

    def named(self, name: str) -> Sequence[str]:
        return [path for path in self._watch.index.paths() if posixpath.basename(path) == name]

    def summary(self, stale: Sequence[str], lost: Sequence[str], said: Mapping[str, str | None]) -> str | None:
        changes, spoken = self._pending.changes, said.keys() - {*stale, *lost}
        switched = bool(self._branch) and self._branch != self._known.branch
        known = frozenset() if switched else self._known.changed
        left = Changes(changes.added - spoken, changes.changed - spoken - known, changes.removed - spoken)
        if len(left) <= self._burst:
            self._learns = replace(self._known, changed=self._known.changed - spoken)
            return out_of_date(stale, lost) or None
        self._learns = Known(self._branch, (known | left.changed | left.added) - spoken - left.removed)
        because = f"The branch is now {self._branch}." if switched else ""
        return summary(left, because=because) + out_of_date(stale, lost)

    def told(self) -> None:
        self._watch.told(self._pending)
        if self._learns is not None:
            self._learned(self._learns)
