"""Which paths have changed on disk: the net effect of any number of looks, and which names never count.

A change is about a path, not about its contents: a file that was written with the bytes it had has changed too, and
whoever reads it finds nothing to say.

Invariant: the three sets of ``Changes`` have nothing in common.
Invariant: ``a.merge(b)`` says of every path what comparing the state before ``a`` with the state after ``b`` says,
but that a path which went and came back counts as changed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_IN_FLIGHT = re.compile(
    r".+~|~\$.*|#.*#|\.#.*|4913|\.goutputstream-.*|\._.*|\.DS_Store|\.(?:nfs|fuse_hidden)[0-9a-f]+"
    r"|.*\.(?:tmp|temp|vsctmp|sw[nopx]|kate-swp|crdownload|part|partial)"
    r"|.*\.tmp[.-]?[0-9a-f]{4,}|.*___jb_(?:tmp|old)___",
    re.DOTALL,
)


def in_flight(name: str) -> bool:
    """Whether the last part of a path is only a save on its way, an editor's lock or a system's litter."""
    return bool(_IN_FLIGHT.fullmatch(name))


@dataclass(frozen=True, slots=True)
class Changes:
    """Relative POSIX paths of files."""

    added: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)

    def __len__(self) -> int:
        return len(self.added) + len(self.changed) + len(self.removed)

    def merge(self, later: Changes) -> Changes:
        """The net effect of these and then ``later``."""
        if not self or not later:
            return self or later
        back = self.removed & later.added
        gone = self.added & later.removed
        added = (self.added | (later.added - back)) - gone
        changed = ((self.changed | later.changed | back) - later.removed) - added
        removed = (self.removed - back) | (later.removed - gone)
        return Changes(added, changed, removed)


NOTHING = Changes()
