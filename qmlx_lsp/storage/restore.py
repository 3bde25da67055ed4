"""Reading a checkpoint straight into the engine's memory, with every byte verified.

It must never copy through an intermediate buffer, and never keep a view of the lent memory after ``fill``.

Invariant: ``fill`` returns only if every id is the one that was asked for and every tensor has the checksum that
it was written with. Otherwise it raises CheckpointRejected, after every reader has let go of the memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from itertools import pairwise, zip_longest
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import xxhash

from qmlx_lsp.errors import CheckpointRejected
from qmlx_lsp.state import RowBuffer, RowSpec, TensorSpec
from qmlx_lsp.storage.files import MAX_PIECES, FileSystem, as_bytes_view, read_into
from qmlx_lsp.storage.lookup import Found
from qmlx_lsp.storage.row import Row
from qmlx_lsp.storage.segment import FileRejected, Header, open_file, read_header
from qmlx_lsp.transcript.tokens import ids_to_bytes

READER_THREADS = 2  # measured on Linux; more did not help there
BATCH_BYTES = 4 << 20  # read this much, then verify it while it is still in the cache
JOB_BYTES = 64 << 20  # as much memory is lent before its reading begins, and as much is read by one job
MIN_READ_BYTES = 256 << 10  # of one file at a time, on average; a long chain of small files waits for more memory
MAX_HELD_FILES = 96  # files kept open; macOS gives a process 256 descriptors

# One tensor to read: its place in the file's header and the memory it goes to, piece by piece.
_Target = tuple[int, list[memoryview]]
# A file, the ids it must hold (or None when they are compared elsewhere), and what to read of it.
_Read = tuple["_File", bytes | None, Iterable[_Target]]
_T = TypeVar("_T")


class _File:
    """One file of an open checkpoint: its header verified, its descriptor held or opened again when needed."""

    def __init__(self, fs: FileSystem, path: Path, row: Row, *, hold: bool) -> None:
        self._fs = fs
        self._path = path
        self._fd: int | None = None
        fd = open_file(fs, path)
        try:
            self.header: Header = read_header(fs, fd, path.name)
            if self.header.row.id != row.id:
                raise FileRejected("corrupt", path.name, "the index knows it as something else")
            if hold:
                fs.will_need(fd)
                self._fd = fd
        finally:
            if self._fd is None:
                fs.close(fd)

    @property
    def name(self) -> str:
        return self._path.name

    @contextmanager
    def descriptor(self) -> Iterator[int]:
        if self._fd is not None:
            yield self._fd
            return
        fd = open_file(self._fs, self._path)
        try:
            yield fd
        finally:
            self._fs.close(fd)

    def close(self) -> None:
        if self._fd is not None:
            self._fs.close(self._fd)
            self._fd = None

    def read(self, targets: Iterable[_Target], stop: threading.Event) -> int:
        """Read and verify ``targets``, neighbours in the file; return the bytes. Raises FileRejected."""
        total = 0
        with self.descriptor() as fd:
            for batch in _batches(targets):
                if stop.is_set():
                    return total
                pieces = [piece for _, views in batch for piece in views]
                try:
                    total += read_into(self._fs, fd, pieces, self.header.offsets[batch[0][0]])
                except EOFError as error:
                    raise FileRejected("truncated", self.name, str(error)) from None
                except OSError as error:
                    raise FileRejected("unreadable", self.name, error.strerror or "cannot be read") from None
                for index, views in batch:
                    self._verify(index, views)
        return total

    def _verify(self, index: int, pieces: Iterable[memoryview]) -> None:
        hasher = xxhash.xxh3_128()
        for piece in pieces:
            hasher.update(piece)
        if hasher.digest() != self.header.sums[index]:
            name = self.header.tensors[index].name
            raise FileRejected("corrupt", self.name, f"tensor {name} does not have its checksum")

    def check_ids(self, wanted: bytes) -> int:
        """Compare the stored ids, which stand last, with ``wanted``; return the bytes read."""
        stored = bytearray(len(wanted))
        count = self.read([(len(self.header.tensors) - 1, [memoryview(stored)])], threading.Event())
        if stored != wanted:
            raise FileRejected("ids", self.name, "it holds the state of other tokens")
        return count


def _batches(targets: Iterable[_Target]) -> Iterator[list[_Target]]:
    batch: list[_Target] = []
    size = pieces = 0
    for target in targets:
        batch.append(target)
        size += sum(map(len, target[1]))
        pieces += len(target[1])
        if size >= BATCH_BYTES or pieces >= MAX_PIECES:
            yield batch
            batch, size, pieces = [], 0, 0
    if batch:
        yield batch


class OpenCheckpoint:
    """A ``StoredState``: the headers are verified, the payload is verified while it is read.

    ``paths`` and ``rows`` are those of ``found.files``, in the same order. Raises FileRejected.
    """

    def __init__(self, fs: FileSystem, found: Found, paths: Sequence[Path], rows: Sequence[Row]) -> None:
        self._found = found
        self._stack = ExitStack()
        with ExitStack() as undo:
            files: list[_File] = []
            for path, row in zip(paths, rows, strict=True):
                file = _File(fs, path, row, hold=len(files) < MAX_HELD_FILES)
                undo.callback(file.close)
                files.append(file)
            self._segments = files[: len(found.segments)]
            self._side = files[len(found.segments)] if found.snapshot is not None else None
            self._rows = _layout(self._segments, found.position)
            self._stack = undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def position(self) -> int:
        return self._found.position

    @property
    def rows(self) -> Sequence[RowSpec]:
        return self._rows

    @property
    def snapshot(self) -> Sequence[TensorSpec] | None:
        return self._side.header.tensors if self._side else None

    def fill(self, rows: Iterable[RowBuffer], snapshot: Iterable[memoryview]) -> int:
        """See ``StoredState.fill``. Buffers of another layout than the file's are a foreign checkpoint."""
        stop = threading.Event()
        futures: list[Future[int]] = []
        with ThreadPoolExecutor(READER_THREADS, thread_name_prefix="restore") as pool:
            try:
                for job in self._jobs(rows, snapshot, stop):
                    if stop.is_set():  # one has failed: no more memory is asked for
                        break
                    futures.append(pool.submit(job))
                    del job
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
        return _sum_or_raise(futures)

    def _jobs(
        self, rows: Iterable[RowBuffer], snapshot: Iterable[memoryview], stop: threading.Event
    ) -> Iterator[Callable[[], int]]:
        """The work in pieces that do not touch each other's memory, each as soon as its memory has been lent."""
        enough = max(JOB_BYTES, MIN_READ_BYTES * len(self._segments))
        first = 0
        for group in _groups(self._checked(rows), enough):
            yield from self._row_jobs(first, group, stop)
            first += len(group)
        if not first:
            yield from self._row_jobs(0, [], stop)  # the ids are compared in any case
        first = 0
        for views in _groups(self._checked_side(snapshot), JOB_BYTES):
            assert self._side is not None
            targets = [(first + at, [as_bytes_view(view)]) for at, view in enumerate(views)]
            first += len(views)
            yield _job([(self._side, None, targets)], stop)

    def _row_jobs(self, first: int, group: Sequence[RowBuffer], stop: threading.Event) -> Iterator[Callable[[], int]]:
        """Read the tensors of ``group``, of which the first is number ``first``, from every segment."""
        flat = [as_bytes_view(buffer.data) for buffer in group]
        row_bytes = sum(buffer.spec.heads * buffer.spec.row_bytes for buffer in group)
        reads: list[_Read] = []
        size = 0
        for file in self._segments:
            a, b = file.header.row.a, file.header.row.b
            ids = None if first else ids_to_bytes(self._found.log.ids(a, b))
            reads.append((file, ids, _targets(first, group, flat, a, b)))
            size += (b - a) * row_bytes
            if size >= JOB_BYTES:
                yield _job(reads, stop)
                reads, size = [], 0
        if reads:
            yield _job(reads, stop)

    def _checked(self, rows: Iterable[RowBuffer]) -> Iterator[tuple[RowBuffer, int]]:
        """The buffers with their bytes, if they are those of this checkpoint."""
        for buffer, spec in zip_longest(rows, self._rows):
            if buffer is None or buffer.spec != spec:
                raise self._foreign()
            need = spec.heads * buffer.capacity * spec.row_bytes
            assert buffer.capacity >= self.position, "the lent memory has too few rows"
            assert buffer.data.nbytes >= need, "the lent memory is smaller than it says"
            yield buffer, need

    def _checked_side(self, snapshot: Iterable[memoryview]) -> Iterator[tuple[memoryview, int]]:
        for view, spec in zip_longest(snapshot, self.snapshot or ()):
            if view is None or spec is None or view.nbytes != spec.nbytes:
                raise self._foreign()
            yield view, spec.nbytes

    def _foreign(self) -> FileRejected:
        name = (self._side or self._segments[0]).name
        return FileRejected("foreign", name, "its tensors are not laid out like this model's")


def _groups(sized: Iterable[tuple[_T, int]], enough: int) -> Iterator[list[_T]]:
    """Runs of things whose sizes add up to ``enough``; the last run may be smaller."""
    group: list[_T] = []
    size = 0
    for thing, bytes_ in sized:
        group.append(thing)
        size += bytes_
        if size >= enough:
            yield group
            group, size = [], 0
    if group:
        yield group


def _job(reads: Sequence[_Read], stop: threading.Event) -> Callable[[], int]:
    """For each file: compare the ids, where there are any to compare, then read and verify its tensors."""

    def run() -> int:
        total = 0
        try:
            for file, ids, targets in reads:
                if stop.is_set():
                    break
                total += (0 if ids is None else file.check_ids(ids)) + file.read(targets, stop)
        except BaseException:
            stop.set()
            raise
        return total

    return run


def _targets(first: int, group: Sequence[RowBuffer], flat: Sequence[memoryview], a: int, b: int) -> Iterator[_Target]:
    """Where rows ``[a, b)`` of some tensors go: one piece per head. Made as they are read, for there may be many."""
    for at, buffer in enumerate(group):
        row, step = buffer.spec.row_bytes, buffer.capacity * buffer.spec.row_bytes
        begins = range(a * row, buffer.spec.heads * step, step)
        yield first + at, [flat[at][begin : begin + (b - a) * row] for begin in begins]


def _sum_or_raise(futures: Sequence[Future[int]]) -> int:
    """The bytes of all jobs, or the first failure, freed of the frames that still name the lent memory."""
    for future in futures:
        if not future.cancelled() and (error := future.exception()) is not None:
            if isinstance(error, CheckpointRejected):
                raise error.with_traceback(None) from None
            raise error
    return sum(future.result() for future in futures)


def _layout(segments: Sequence[_File], position: int) -> tuple[RowSpec, ...]:
    """The row tensors that all segments agree on. Raises FileRejected when they do not, or do not tile."""
    layouts: list[list[tuple[str, str, int, int]]] = []
    for file in segments:
        tokens = file.header.row.b - file.header.row.a
        layouts.append([])
        for tensor in file.header.tensors[:-1]:
            if len(tensor.shape) != 4 or tensor.shape[::2] != (1, tokens):
                raise FileRejected("corrupt", file.name, f"tensor {tensor.name} does not have a row per token")
            layouts[-1].append((tensor.name, tensor.dtype, tensor.shape[1], tensor.shape[3]))
        if layouts[-1] != layouts[0]:
            raise FileRejected("foreign", file.name, "its tensors are not laid out like those before it")
    spans = [(file.header.row.a, file.header.row.b) for file in segments]
    assert (spans[0][0], spans[-1][1]) == (0, position), "a chain covers its range"
    assert all(before[1] == behind[0] for before, behind in pairwise(spans)), "a chain has no gap"
    return tuple(RowSpec(*layout) for layout in layouts[0])
