"""Which files a project has on disk, and what tells that one of them is another now. It never holds contents.

A project may have 200,000 files, and every project that is open has an index: a path is kept as its name in its
folder's table, beside 24 packed bytes.

Invariant: after ``update`` of every folder of a scan and ``keep``, the index holds what the scan has found; the
changes that they returned, merged, lead from the former state to this one.
Invariant: one thread changes an index; any thread may look something up meanwhile. So a folder's table is replaced
by its successor in one step and never changed in place.
"""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from qmlx_lsp.workspace.changes import NOTHING, Changes

GONE_MAX = 10_000  # files that are no more and of which it is still known what they were
NAMES_MAX = 4_096  # names of which it is looked after that equal ones are one string
_PACKED = struct.Struct("<QqQ")
_MAX_U64, _MAX_I64 = (1 << 64) - 1, (1 << 63) - 1


class Seen(NamedTuple):
    """What a look at a file's entry gives: bytes, nanoseconds since 1970 and the number of the file itself."""

    size: int
    mtime_ns: int
    inode: int

    def pack(self) -> bytes:
        return pack(self.size, self.mtime_ns, self.inode)

    @classmethod
    def unpack(cls, packed: bytes) -> Seen:
        return cls(*_PACKED.unpack(packed))


def pack(size: int, mtime_ns: int, inode: int) -> bytes:
    """24 bytes; a clock or a number beyond what fits counts as the last one that does."""
    try:
        return _PACKED.pack(size, mtime_ns, inode)
    except struct.error:
        when = max(-_MAX_I64, min(mtime_ns, _MAX_I64))
        return _PACKED.pack(min(size, _MAX_U64), when, inode & _MAX_U64)


class Index:
    """Relative POSIX paths of files. A folder is spelled without a slash at its end; the root is ``""``."""

    def __init__(self) -> None:
        self._folders: dict[str, dict[str, bytes]] = {}
        self._gone: dict[str, bytes] = {}
        self._names: dict[str, str] = {}
        self._count = 0

    # --- looking up ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and self._packed(path) is not None

    def seen(self, path: str) -> Seen | None:
        """What a file was when it was last looked at; ``None`` if there is none."""
        packed = self._packed(path)
        return None if packed is None else Seen.unpack(packed)

    def last_seen(self, path: str) -> Seen | None:
        """The same, also of a file that is gone, unless very many have gone since."""
        packed = self._packed(path) or self._gone.get(path)
        return None if packed is None else Seen.unpack(packed)

    def paths(self, below: str = "") -> list[str]:
        """All files at or below a folder, in no order."""
        found: list[str] = []
        for folder in self.folders(below):
            prefix = f"{folder}/" if folder else ""
            found += [prefix + name for name in self._folders.get(folder, ())]
        return found

    def folders(self, below: str = "") -> list[str]:
        """All folders at or below a folder, those without files as well."""
        known = list(self._folders)
        return known if not below else [name for name in known if name == below or name.startswith(f"{below}/")]

    def has_folder(self, folder: str) -> bool:
        return folder in self._folders

    # --- changing -----------------------------------------------------------------------------------------------

    def update(self, folder: str, files: Mapping[str, bytes]) -> Changes:
        """A folder holds exactly these files now, by name (``Seen.pack``); its subfolders are not touched."""
        old = self._folders.get(folder)
        if old is not None and old == files:
            return NOTHING
        self.fill(folder, files)
        return self._noted(folder, old or {}, files)

    def fill(self, folder: str, files: Mapping[str, bytes]) -> None:
        """The same when nobody wants to know what has changed; no file counts as gone."""
        self._count += len(files) - len(self._folders.get(folder, _NO_FILES))
        self._folders[self._name(folder)] = {self._name(name): packed for name, packed in files.items()}

    def put(self, path: str, seen: Seen) -> Changes:
        """One file is there."""
        folder, _, name = path.rpartition("/")
        return self.update(folder, {**self._folders.get(folder, {}), name: seen.pack()})

    def discard(self, path: str) -> Changes:
        """Neither a file nor a folder of that path is there any more."""
        changes = self.keep(path, ()) if self.has_folder(path) else NOTHING
        folder, _, name = path.rpartition("/")
        old = self._folders.get(folder, {})
        if name not in old:
            return changes
        return changes.merge(self.update(folder, {other: packed for other, packed in old.items() if other != name}))

    def keep(self, top: str, found: Container[str]) -> Changes:
        """Of the folders at or below ``top`` only those ``found`` are there."""
        lost: list[str] = []
        for folder in [name for name in self.folders(top) if name not in found]:
            files = self._folders.pop(folder)
            self._count -= len(files)
            lost += self._noted(folder, files, {}).removed
        return Changes(removed=frozenset(lost)) if lost else NOTHING

    # --- inside -------------------------------------------------------------------------------------------------

    def _packed(self, path: str) -> bytes | None:
        folder, _, name = path.rpartition("/")
        return self._folders.get(folder, _NO_FILES).get(name)

    def _name(self, name: str) -> str:
        """One string for all its uses: many names are in many folders."""
        if len(self._names) >= NAMES_MAX:
            self._names.clear()
        return self._names.setdefault(name, name)

    def _noted(self, folder: str, old: Mapping[str, bytes], new: Mapping[str, bytes]) -> Changes:
        prefix = f"{folder}/" if folder else ""
        removed = [name for name in old if name not in new]
        for name in removed:
            self._gone.pop(prefix + name, None)
            self._gone[prefix + name] = old[name]
        for path in _first(self._gone, len(self._gone) - GONE_MAX):
            del self._gone[path]
        changes = Changes(
            frozenset(prefix + name for name in new if name not in old),
            frozenset(prefix + name for name, packed in new.items() if name in old and old[name] != packed),
            frozenset(prefix + name for name in removed),
        )
        return changes or NOTHING


_NO_FILES: dict[str, bytes] = {}


def _first(names: Mapping[str, bytes], count: int) -> list[str]:
    return [name for name, _ in zip(names, range(count), strict=False)]


def merged(parts: Iterable[Changes]) -> Changes:
    """The net effect of many changes to different folders, in one go."""
    added: set[str] = set()
    changed: set[str] = set()
    removed: set[str] = set()
    for part in parts:
        added |= part.added
        changed |= part.changed
        removed |= part.removed
    return Changes(frozenset(added), frozenset(changed), frozenset(removed)) or NOTHING


def outermost(folders: Iterable[str]) -> list[str]:
    """The folders that lie in none of the others."""
    found: list[str] = []
    for folder in sorted(folders, key=lambda name: f"{name}/" if name else ""):
        if not found or (found[-1] and not folder.startswith(f"{found[-1]}/")):
            found.append(folder)
    return found
