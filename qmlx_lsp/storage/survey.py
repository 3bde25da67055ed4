"""Looking at a store without taking part in it: what lies there, what the index says of it, what is damaged.

It must never create, change, lock or delete anything in the folder, and never fail because another process does so
meanwhile: what is gone when it is looked at was not there.

Invariant: a file is damaged only if it is still there, under its name, after it was found so.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import xxhash

from qmlx_lsp.storage import index
from qmlx_lsp.storage.catalog import INDEX_NAME, LOCK_NAME
from qmlx_lsp.storage.files import TEMP_PREFIX, FileSystem, abandoned_temp, read_into
from qmlx_lsp.storage.leases import FOLDER as OWNERS
from qmlx_lsp.storage.leases import owners
from qmlx_lsp.storage.row import Row
from qmlx_lsp.storage.segment import IDS, FileRejected, Header, open_file, read_header
from qmlx_lsp.storage.shelf import file_path, file_sizes
from qmlx_lsp.transcript.tokens import ids_from_bytes

READ_BYTES = 4 << 20  # of a file in memory at a time
KINDS = ("segments", "snapshots", "quarantine", "temporary", "owners", "index", "other")

Progress = Callable[[int, int], None]  # bytes done, bytes in all


class Amount(NamedTuple):
    """How many files, and how many bytes they have."""

    files: int
    bytes: int

    def plus(self, size: int) -> Amount:
        return Amount(self.files + 1, self.bytes + size)


@dataclass(frozen=True, slots=True)
class Survey:
    """``rows``: every file that can be used, as far as its header tells. ``index``: ``ok``, ``missing`` or what is
    wrong with it. ``unlisted``: files without a row; ``fileless``: rows without a file, both by name."""

    rows: list[Row]
    index: str
    unlisted: list[str]
    fileless: list[str]


@dataclass(frozen=True, slots=True)
class Findings:
    """What a verification has found. ``contradicted``: files whose row says something else than they do."""

    read: Amount
    damaged: list[FileRejected]
    index: str
    unlisted: list[str] = field(default_factory=list)
    fileless: list[str] = field(default_factory=list)
    contradicted: list[str] = field(default_factory=list)

    @property
    def index_usable(self) -> bool:
        """One that is not there is made by the next one who opens the store."""
        return self.index in ("ok", "missing") and not self.contradicted


def usage(folder: Path) -> dict[str, Amount]:
    """Everything below ``folder``, by kind (KINDS)."""
    found = dict.fromkeys(KINDS, Amount(0, 0))
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # gone since it was listed
                kind = _kind(Path(where).relative_to(folder).as_posix(), name)
                found[kind] = found[kind].plus((Path(where) / name).lstat().st_size)
    return found


def _kind(place: str, name: str) -> str:
    if place == ".":
        return "index" if name.startswith(INDEX_NAME) else "owners" if name.startswith(LOCK_NAME) else "other"
    if place in ("segments", "snapshots") and name.startswith(TEMP_PREFIX):
        return "temporary"
    return place if place in ("segments", "snapshots", "quarantine", OWNERS) else "other"


def leftovers(folder: Path) -> Amount:
    """What dead processes have left: unfinished files, and files that said what they held."""
    found = Amount(0, 0)
    places = [folder / name for name in ("segments", "snapshots")]
    left = [place / name for place in places if place.is_dir() for name in abandoned_temp(os.listdir(place))]
    left += [folder / OWNERS / name for name in owners(folder)[1]]
    for path in left:
        with suppress(FileNotFoundError):
            found = found.plus(path.lstat().st_size)
    return found


def survey(fs: FileSystem, folder: Path) -> Survey:
    """What the index knows, and for the files it does not know, what their headers say. Raises OSError."""
    present = _present(fs, folder)
    known, state = _listed(folder)
    rows: list[Row] = []
    for name, size in present.items():
        row = known.get(name)
        if row is None:
            row = _from_header(fs, folder, name)
        if row is not None and row.size == size:
            rows.append(row)
    unlisted = sorted(present.keys() - known.keys())
    return Survey(rows, state, unlisted, sorted(known.keys() - present.keys()))


def _present(fs: FileSystem, folder: Path) -> dict[str, int]:
    try:
        return file_sizes(fs, folder)
    except FileNotFoundError:
        return {}  # no store, or one that has just been made


def _listed(folder: Path) -> tuple[dict[str, Row], str]:
    """The rows of the index by file name, and what state it is in."""
    path = folder / INDEX_NAME
    if not path.exists():
        return {}, "missing"
    try:
        return {row.name: row for row in index.look(path)}, "ok"
    except sqlite3.Error as error:
        return {}, str(error)


def _from_header(fs: FileSystem, folder: Path, name: str) -> Row | None:
    try:
        fd = open_file(fs, file_path(folder, name))
        try:
            row = read_header(fs, fd, name).row
        finally:
            fs.close(fd)
        written = fs.stat(file_path(folder, name)).st_mtime
    except (FileRejected, FileNotFoundError):
        return None
    return replace(row, last_used=written, created=written)


# --- verification ---------------------------------------------------------------------------------------------------


def verify(fs: FileSystem, folder: Path, progress: Progress = lambda _done, _total: None) -> Findings:
    """Read every file, in pieces, and compare every checksum; then the index with the files. Raises OSError."""
    present = _present(fs, folder)
    before, _ = _listed(folder)
    total, done, read = sum(present.values()), 0, Amount(0, 0)
    damaged: list[FileRejected] = []
    headers: dict[str, Row] = {}
    for name, size in sorted(present.items()):
        at = done

        def on_read(count: int, at: int = at) -> None:
            progress(min(at + count, total), total)

        header, error = check(fs, file_path(folder, name), on_read)
        if header is not None:
            headers[name] = header.row
        if error is None:
            read = read.plus(size)
        elif error.reason != "missing" and os.path.lexists(file_path(folder, name)):
            read = read.plus(size)
            damaged.append(error)
        done += size
        progress(done, total)
    after, state = _listed(folder)
    still = _present(fs, folder)
    return Findings(
        read,
        damaged,
        state,
        sorted((present.keys() & still.keys()) - before.keys() - after.keys()),
        sorted((before.keys() & after.keys()) - present.keys() - still.keys()),
        sorted(name for name, row in headers.items() if name in after and not _same(after[name], row)),
    )


def _same(listed: Row, row: Row) -> bool:
    return replace(row, last_used=listed.last_used, created=listed.created) == listed


def check(
    fs: FileSystem, path: Path, on_read: Callable[[int], None] = lambda _count: None
) -> tuple[Header | None, FileRejected | None]:
    """The header of a file of the store, if it can be trusted; and what is wrong with the file, if anything is."""
    header: Header | None = None
    try:
        fd = open_file(fs, path)
        try:
            header = read_header(fs, fd, path.name)
            _check_tensors(fs, fd, path.name, header, on_read)
        finally:
            fs.close(fd)
    except FileRejected as error:
        return header, error
    return header, None


def _check_tensors(fs: FileSystem, fd: int, name: str, header: Header, on_read: Callable[[int], None]) -> None:
    memory = memoryview(bytearray(READ_BYTES))
    for spec, offset, wanted in zip(header.tensors, header.offsets, header.sums, strict=True):
        hasher = xxhash.xxh3_128()
        for at in range(0, spec.nbytes, READ_BYTES):
            piece = memory[: min(READ_BYTES, spec.nbytes - at)]
            _read(fs, fd, name, piece, offset + at)
            hasher.update(piece)
            on_read(offset + at + len(piece))
        if hasher.digest() != wanted:
            raise FileRejected("corrupt", name, f"tensor {spec.name} does not have its checksum")


def _read(fs: FileSystem, fd: int, name: str, piece: memoryview, offset: int) -> None:
    try:
        read_into(fs, fd, [piece], offset)
    except EOFError as error:
        raise FileRejected("truncated", name, str(error)) from None
    except OSError as error:
        raise FileRejected("unreadable", name, error.strerror or "cannot be read") from None


def stored_ids(fs: FileSystem, folder: Path, row: Row) -> tuple[int, ...]:
    """The ids that a segment holds, verified. Raises FileRejected."""
    fd = open_file(fs, file_path(folder, row.name))
    try:
        header = read_header(fs, fd, row.name)
        spec, offset, wanted = header.tensors[-1], header.offsets[-1], header.sums[-1]
        assert spec.name == IDS, "ids stand last in a segment"
        memory = bytearray(spec.nbytes)
        _read(fs, fd, row.name, memoryview(memory), offset)
    finally:
        fs.close(fd)
    if xxhash.xxh3_128_digest(memory) != wanted:
        raise FileRejected("corrupt", row.name, "its ids do not have their checksum")
    return ids_from_bytes(bytes(memory))
