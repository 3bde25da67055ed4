"""Every measurement in its order, each within its share of the time.

The disk comes before what is restored from it, and what was measured of it decides how much is restored and whether
a model is loaded.

Invariant: whatever a measurement raises is its finding, and the next one is made.
Invariant: the folder that holds the files is gone at the end, however it ends; what a killed one left behind is
removed by the next.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from qmlx_lsp.engine.mlx import measuring
from qmlx_lsp.engine.mlx.backend import MlxBackend
from qmlx_lsp.errors import QmlxError, StoreError
from qmlx_lsp.measure import disk, passes, states
from qmlx_lsp.measure.expect import Expectation, expect
from qmlx_lsp.measure.figures import BYTES_S, FLOP_S, TOKENS_S, Deadline, Figure, figure, gigabytes
from qmlx_lsp.measure.model import ModelMeasure, too_large

MIB = 1 << 20
FOLDER = "bench"  # in the cache folder: that is the disk that counts
MEMORY_SHARE = 1 / 16  # of the memory, for what a measurement holds at once
HELD_BYTES_MAX = 1 << 30
CHUNK_ROWS_MAX = 2_048  # rows of a chunk at most, whatever the program reads at once
CHUNKS_OF_A_PASS = 8
UNKNOWN_MEMORY = 4 << 30  # bytes that are reckoned with where the system does not say what it has
USABLE_SHARE = 0.75  # of the memory, for a model and its state, where the device does not say


@dataclass(frozen=True, slots=True)
class Shares:
    """Seconds: of everything, and of each measurement at most."""

    total_s: float = 120.0
    memory_s: float = 4.0
    matmul_s: float = 6.0
    weights_s: float = 8.0  # each of the three kinds of passes
    write_s: float = 8.0
    read_s: float = 8.0
    restore_s: float = 24.0
    model_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be measured. ``model`` is a name, and ``model_bytes`` its weights; the name is None where no model
    is on the disk. ``free_floor_bytes`` stay free on it. ``file_bytes`` are written at most."""

    cache: Path
    backend: Callable[[], MlxBackend]
    model: str | None
    model_bytes: int
    chunk: int
    memory_bytes: int | None
    free_floor_bytes: int
    file_bytes: int

    @property
    def held_bytes(self) -> int:
        return min(HELD_BYTES_MAX, int((self.memory_bytes or UNKNOWN_MEMORY) * MEMORY_SHARE))

    @property
    def usable_bytes(self) -> int | None:
        """Memory for a model and its state."""
        if self.memory_bytes is None:
            return measuring.working_set_bytes()
        return measuring.working_set_bytes() or int(self.memory_bytes * USABLE_SHARE)


class Bench:
    """One run: iterate ``figures()``, then ask for ``expectations()``. ``tell`` hears what is being measured."""

    def __init__(self, job: Job, clock: Callable[[], float], shares: Shares) -> None:
        self.tell: Callable[[str], None] = lambda _what: None
        self.total_s = shares.total_s
        self._job = job
        self._shares = shares
        self._deadline = Deadline(clock, clock() + shares.total_s)
        self._found: dict[str, Figure] = {}
        self._model: ModelMeasure | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since it began."""
        return self.total_s - self._deadline.left

    def expectations(self) -> list[Expectation]:
        loaded = self._model.loaded if self._model else None
        return expect(self._found, self._job.usable_bytes, loaded)

    def figures(self) -> Generator[Figure, None, None]:
        """Raises StoreError when another run is going on or its folder cannot be made."""
        shares = self._shares
        with folder(self._job.cache / FOLDER) as place:
            yield from self._step("memory", BYTES_S, shares.memory_s, self._memory)
            yield from self._step("matmul", FLOP_S, shares.matmul_s, self._matmul)
            yield from self._step("weights_row", BYTES_S, shares.weights_s, self._weights_row)
            yield from self._step("weights_chunk", FLOP_S, shares.weights_s, self._weights_chunk)
            yield from self._step("weights_experts", FLOP_S, shares.weights_s, self._weights_experts)
            lacking = self._lacking(place)
            if lacking:
                for name in ("ssd_write", "ssd_read", "restore"):
                    yield self._note(Figure(name, None, BYTES_S, note=lacking))
            else:
                yield from self._on_disk(place)
        if self._job.model is not None:
            yield from self._step("prefill", TOKENS_S, shares.model_s, self._measure_model)

    def _step(
        self, name: str, unit: str, seconds: float, measure: Callable[[Deadline], Iterator[Figure]]
    ) -> Iterator[Figure]:
        self.tell(name)
        deadline = self._deadline.within(seconds)
        if deadline.over:
            yield self._note(Figure(name, None, unit, note="no time was left"))
            return
        try:
            for found in measure(deadline):
                yield self._note(found)
        except (QmlxError, OSError, RuntimeError, ValueError, MemoryError) as error:  # the latter are MLX's
            said = next(iter(str(error).splitlines()), type(error).__name__)
            yield self._note(Figure(name, None, unit, note=said))
        finally:
            measuring.let_go()

    def _note(self, found: Figure) -> Figure:
        self._found[found.name] = found
        return found

    def _memory(self, deadline: Deadline) -> Iterator[Figure]:
        sizes = [size for size in (64, 256, 1_024) if size * MIB <= self._job.held_bytes] or [16]
        yield passes.grown(
            "memory", BYTES_S, lambda size: measuring.reading(size * MIB), sizes, "{0:,} MiB", deadline
        )

    def _matmul(self, deadline: Deadline) -> Iterator[Figure]:
        sizes = (256, 512, 1_024, 2_048, 4_096)
        words = "{0:,} × {0:,}, " + ("bfloat16" if measuring.on_gpu() else "float32")
        yield passes.grown("matmul", FLOP_S, measuring.multiplying, sizes, words, deadline, power=3)

    def _weights_row(self, deadline: Deadline) -> Iterator[Figure]:
        sizes = [size for size in (16, 64, 256, 1_024) if size * MIB <= self._job.held_bytes] or [16]
        yield passes.grown(
            "weights_row", BYTES_S, lambda size: measuring.one_row(size * MIB), sizes, "{0:,} MiB", deadline
        )

    def _weights_chunk(self, deadline: Deadline) -> Iterator[Figure]:
        yield passes.grown("weights_chunk", FLOP_S, self._chunked(measuring.chunk), *self._rows(), deadline)

    def _weights_experts(self, deadline: Deadline) -> Iterator[Figure]:
        yield passes.grown("weights_experts", FLOP_S, self._chunked(measuring.expert_chunk), *self._rows(), deadline)

    def _chunked(self, make: Callable[[int, int], measuring.Pass]) -> Callable[[int], measuring.Pass]:
        return lambda count: make(count, self._rows_max)

    @property
    def _rows_max(self) -> int:
        return min(self._job.chunk, CHUNK_ROWS_MAX)

    def _rows(self) -> tuple[list[int], str]:
        """Growing to a chunk of the program's and on to several, and the words for them."""
        most = self._rows_max
        sizes = [*(size for size in (4, 16, 64) if size < most), most, most * CHUNKS_OF_A_PASS]
        return sizes, f"{{0:,}} rows, {most:,} at once at most"

    def _lacking(self, place: Path) -> str:
        """Why nothing is written, or nothing: what is written leaves the disk above its floor."""
        free, needed = shutil.disk_usage(place).free, self._job.free_floor_bytes + self._disk_bytes
        if free >= needed:
            return ""
        return f"{gigabytes(needed)} must be free for it, store.free_floor_gib included, and {gigabytes(free)} are"

    @property
    def _disk_bytes(self) -> int:
        """On the disk at once. One file may lie there twice while it is taken out of the cache."""
        return 2 * max(self._job.file_bytes, self._job.held_bytes)

    def _on_disk(self, place: Path) -> Iterator[Figure]:
        job, shares, file = self._job, self._shares, place / "file"
        yield from self._step(
            "ssd_write", BYTES_S, shares.write_s, lambda end: iter([disk.writing(file, job.file_bytes, end)])
        )
        yield from self._step("ssd_read", BYTES_S, shares.read_s, lambda end: iter([disk.reading(file, end)]))
        file.unlink(missing_ok=True)
        speed = figure(self._found, "ssd_write")
        yield from self._step(
            "restore",
            BYTES_S,
            shares.restore_s,
            lambda end: states.restoring(place / "store", job.held_bytes, speed, end),
        )

    def _measure_model(self, deadline: Deadline) -> Iterator[Figure]:
        job = self._job
        assert job.model is not None
        reason = too_large(job.model_bytes, job.usable_bytes, figure(self._found, "ssd_read"), deadline.left)
        if reason:
            yield Figure("prefill", None, TOKENS_S, note=f"{job.model} is not measured: {reason}")
            return
        backend = job.backend()
        try:
            self._model = ModelMeasure(backend, job.model, job.chunk, self.tell)
            yield from self._model.figures(deadline)
        finally:
            backend.close()


@contextmanager
def folder(place: Path) -> Iterator[Path]:
    """An empty folder for one run at a time, gone afterwards. Raises StoreError."""
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise StoreError(f"{place} cannot be used ({error.strerror}): make its folder writable.") from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreError("Another `doctor --bench` runs: wait until it has finished.") from None
        try:
            _empty(place)
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
    finally:
        os.close(handle)


def _empty(place: Path) -> None:
    for left in place.iterdir():
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)
