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

    def homes(self, path: str) -> Sequence[str]:
        changes = self._pending.changes
        name = posixpath.basename(path)
        same = [other for other in sorted(changes.added) if posixpath.basename(other) == name]
        return list(dict.fromkeys([*self._watch.index.alike(path, changes), *same]))[:NEW_HOMES_MAX]

    def named(self, name: str) -> Sequence[str]:
        return [path for path in self._watch.index.paths() if posixpath.basename(path) == name]

    def summary(self, stale: Sequence[str], said: Mapping[str, str | None]) -> str | None:
        changes, spoken = self._pending.changes, said.keys() - set(stale)
        left = Changes(changes.added - spoken, changes.changed - spoken, changes.removed - spoken)
        if len(left) <= self._burst and not stale:
            return None
        self._said = True
        because = f"The branch is now {self._branch}." if self._branch and self._branch != self._before else ""
        text = summary(left, because=because) if len(left) > self._burst else ""
        return text + out_of_date(stale)

    def told(self) -> None:
        self._watch.told(self._pending)
        if self._said:
            self._told_of(self._branch)
