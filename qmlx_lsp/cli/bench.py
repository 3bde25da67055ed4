"""``qmlx-lsp doctor --bench``: what this machine can do, in two minutes, and what to expect of which model.

Measured are memory, matrix products, the disk that checkpoints go to, and the chosen model if it is on this disk
(else the embedded one, if that is): how fast it reads and writes, and its state through the real checkpoint store.

It never fetches a model, and what it writes it removes again, also when it is interrupted.

Invariant: the longest part, reading, takes what the others have left of ``LIMIT_S``, and ``READ_S`` at most; every
part says how much it measured.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qmlx_lsp.cli.expectations import CONTEXT_TOKENS, KNOWN, Expectation, Machine, expect
from qmlx_lsp.cli.model import describe
from qmlx_lsp.cli.output import json_lines, size
from qmlx_lsp.errors import QmlxError
from qmlx_lsp.paths import Paths
from qmlx_lsp.settings import GIB, Settings

if TYPE_CHECKING:
    from qmlx_lsp.engine.mlx.probe import Probe

LIMIT_S = 120.0
MEMORY_S, PRODUCT_S, READ_S, REST_S = 5.0, 5.0, 60.0, 20.0
"""Shares of the time; the last is what writing and restoring may take behind the reading."""
READ_TOKENS, WRITTEN_TOKENS = 2_048, 32
DISK_BYTES = 256 << 20
DISK_ROUNDS = 3
BLOCK_BYTES = 8 << 20

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Measured:
    """``value`` in ``unit`` a second or as it says; ``over`` says how much was measured."""

    what: str
    value: float
    unit: str
    over: str


def run(where: Paths, settings: Settings, *, as_json: bool, clock: Clock = time.perf_counter) -> int:
    """Measure and print; 0. Raises QmlxError."""
    where.prepare()
    found: list[Measured] = []
    for one in measure(where, settings, clock):
        found.append(one)
        if not as_json:
            print(f"{one.what:22} {_number(one.value):>8} {one.unit:14} {one.over}", flush=True)
    expected = [expect(model, machine_of(found, memory())) for model in KNOWN]
    if as_json:
        json_lines([{"measured": asdict(one)} for one in found] + [{"expected": asdict(one)} for one in expected])
    else:
        print(table(expected))
    return 0


def memory() -> int | None:
    """Bytes of memory, where the system says so."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


# --- measuring ------------------------------------------------------------------------------------------------------


def measure(where: Paths, settings: Settings, clock: Clock) -> Iterator[Measured]:
    """Everything, part by part. Loads MLX."""
    from qmlx_lsp.engine.mlx import blas

    blas.preload(where.blas)
    from qmlx_lsp.engine.mlx import probe

    _tell("memory and matrix products")
    kind = str(probe.numbers()).rpartition(".")[2]
    began = clock()
    yield Measured("memory, read", probe.memory_bytes_per_s(MEMORY_S, clock) / 1e9, "GB/s", size(probe.READ_BYTES))
    yield Measured("matrix product", probe.multiplications_per_s(PRODUCT_S, clock) / 1e12, "TFLOP/s", kind)
    if _room(where, settings) < 2 * DISK_BYTES:
        _tell(f"the disk is not measured: less than {size(2 * DISK_BYTES)} may be written there")
    else:
        _tell("the disk")
        with tempfile.TemporaryDirectory(prefix="bench-", dir=where.cache) as folder:
            yield from disk(Path(folder), clock)
    name = _model_here(where, settings)
    if name is None:
        _tell(f"no model on this disk to measure; fetch one: qmlx-lsp model pull {settings.model.name}")
        return
    _tell(f"loading {name}")
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=where.cache) as folder,
        _loaded(name, where, settings) as it,
    ):
        yield from model_speed(it, name, min(READ_S, LIMIT_S - REST_S - (clock() - began)))
        yield from restored(it, Path(folder), clock)


def disk(folder: Path, clock: Clock) -> Iterator[Measured]:
    """A file written to the disk and read from it, not from the page cache where that can be asked for."""
    file, block = folder / "file", os.urandom(BLOCK_BYTES)
    written, read = [], []
    for _ in range(DISK_ROUNDS):
        began = clock()
        with file.open("wb", buffering=0) as sink:
            for _ in range(DISK_BYTES // BLOCK_BYTES):
                sink.write(block)
            os.fsync(sink.fileno())
        written.append(clock() - began)
        with file.open("rb", buffering=0) as source:
            how = _uncached(source.fileno())
            held = bytearray(BLOCK_BYTES)
            began = clock()
            while source.readinto(held):
                pass
            read.append(clock() - began)
    over = f"{size(DISK_BYTES)}, best of {DISK_ROUNDS}"
    yield Measured("disk, written", DISK_BYTES / min(written) / 1e9, "GB/s", f"{over}, with fsync")
    yield Measured("disk, read", DISK_BYTES / min(read) / 1e9, "GB/s", f"{over}, {how}")


def _uncached(fd: int) -> str:
    """Have what is read come from the disk; says whether that could be asked for."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(fd, fcntl.F_NOCACHE, 1)
        return "not from memory"
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return "not from memory"
    return "perhaps from memory"


def model_speed(it: Probe, name: str, limit_s: float) -> Iterator[Measured]:
    speed, shown = it.speed(READ_TOKENS, WRITTEN_TOKENS, limit_s), Path(name).name
    yield Measured(f"{shown} reads", speed.prefill_per_s, "tokens/s", f"{speed.read:,} tokens")
    yield Measured(f"{shown} writes", speed.decode_per_s, "tokens/s", f"behind {speed.read:,} tokens")


def restored(it: Probe, folder: Path, clock: Clock) -> Iterator[Measured]:
    """The state through the real store. What is kept of it is verified by its checksums, as always."""
    from qmlx_lsp.storage.checkpoints import CheckpointStore, Key
    from qmlx_lsp.transcript.tokens import TokenLog

    backend, info, end = it.backend, it.info, it.backend.position(it.state)
    if info.not_persisted is not None:
        return
    store = CheckpointStore(folder, quota_bytes=1 << 40, free_floor_bytes=0, clock=time.time)
    try:
        log = TokenLog(it.ids[:end])
        saved = store.save(Key(info.fingerprint, log, info.needs_snapshot), backend.copy_state(it.state, 0))
        began = clock()
        found = store.find(info.fingerprint, log, needs_snapshot=info.needs_snapshot, limit=end)[0]
        with store.open(found) as stored:
            back = backend.restore(stored)
        took = max(clock() - began, 1e-9)
        assert backend.position(back.state) == found.position == end
        backend.drop_state(back.state)
    finally:
        store.close()
    yield Measured("restored", saved.written / took / 1e9, "GB/s", f"{end:,} tokens, {size(saved.written)}, verified")
    yield Measured("restored in", took * 1000, "ms", f"{end:,} tokens, instead of reading them")


@contextlib.contextmanager
def _loaded(name: str, where: Paths, settings: Settings) -> Iterator[Probe]:
    from qmlx_lsp.engine.mlx.backend import MlxBackend
    from qmlx_lsp.engine.mlx.probe import Probe

    backend = MlxBackend(where.models, kv_bits=settings.model.kv_bits)
    try:
        info = backend.load(name, lambda _done, _total, _what: None, lambda: False)
        yield Probe(backend, info, settings.engine.prefill_chunk_tokens, time.perf_counter)
    finally:
        backend.close()


def _model_here(where: Paths, settings: Settings) -> str | None:
    """The chosen model if it is on the disk, else the embedded one if that is."""
    for name in dict.fromkeys((settings.model.name, "embedded")):
        with contextlib.suppress(QmlxError):  # a damaged one is the check's finding, not this one's
            if name != "scripted" and describe(name, where)["installed"]:
                return name
    return None


def _room(where: Paths, settings: Settings) -> int:
    """Bytes that may be written where checkpoints go."""
    return shutil.disk_usage(where.cache).free - int(settings.store.free_floor_gib * GIB)


# --- telling --------------------------------------------------------------------------------------------------------


def machine_of(found: list[Measured], held: int | None) -> Machine:
    """What the expectations are computed from. Where no model was restored, the disk's own speed stands for it."""
    values = {one.what: one.value for one in found}
    restore = values.get("restored") or values.get("disk, read") or values["memory, read"]
    return Machine(held, values["memory, read"] * 1e9, values["matrix product"] * 1e12, restore * 1e9)


def table(expected: list[Expectation]) -> str:
    lines = [
        "",
        f"What to expect at best of models at 4 bits, of a question behind {CONTEXT_TOKENS:,} tokens:",
        "",
        f"{'model':22} {'needs':>9} {'fits':>5} {'writes':>9} {'reads':>10} {'cold':>9} {'restored':>9}",
    ]
    for one in expected:
        fits = "?" if one.fits is None else "yes" if one.fits else "no"
        lines.append(
            f"{one.model:22} {size(one.needs_bytes):>9} {fits:>5} {_number(one.decode_per_s):>7}/s "
            f"{_number(one.prefill_per_s):>8}/s {_seconds(one.cold_s):>9} {_seconds(one.restored_s):>9}"
        )
    lines += [
        "",
        "Tokens written a second: memory / active weights. Read: products / 2 x active weights. Cold: all tokens are",
        "read. Restored: the state's bytes at the restore's speed. Real models reach a good half of it.",
    ]
    if sys.platform != "darwin":
        lines.append("This is no Apple Silicon: models run on the CPU here, fit for small ones and for trying out.")
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _seconds(value: float) -> str:
    if value >= 5_400:
        return f"{value / 3_600:.0f} h"
    return f"{value / 60:.0f} min" if value >= 90 else f"{value:.2g} s"


def _tell(line: str) -> None:
    print(f"{line} …", file=sys.stderr, flush=True)
