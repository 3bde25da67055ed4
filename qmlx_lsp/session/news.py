"""What has happened on the disk since the model was last told, as a turn needs it.

Invariant: what is in here does not change while a turn looks at it; it counts as told when the turn has been
recorded, and not before.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence

from qmlx_lsp.session.session import News
from qmlx_lsp.session.watch import Watch
from qmlx_lsp.workspace.changes import Changes
from qmlx_lsp.workspace.summary import out_of_date, summary

NEW_HOMES_MAX = 20
"""New files that may each be a vanished one under another name, at most."""


class DiskNews(News):
    """News of a folder that ``watch`` watches. More than ``burst`` files that have changed are told as one summary;
    ``branch`` is the one that the model knows of, and ``told_of(branch)`` is called when it was told another."""

    def __init__(self, watch: Watch, burst: int, branch: str | None, told_of: Callable[[str | None], None]) -> None:
        self._watch = watch
        self._pending = watch.pending
        self._burst = burst
        self._before, self._branch = branch, watch.branch
        self._told_of = told_of
        self._said = False
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
        left = Changes(changes.added - spoken, changes.changed - spoken, changes.removed - spoken)
        because = f"The branch is now {self._branch}." if self._branch and self._branch != self._before else ""
        if len(left) <= self._burst:
            return out_of_date(stale, lost) or None
        self._said = True
        return summary(left, because=because) + out_of_date(stale, lost)

    def told(self) -> None:
        self._watch.told(self._pending)
        if self._said:
            self._told_of(self._branch)
