"""``qmlx-lsp doctor --bench``: what this machine does, and what to expect of which model, in words.

Nothing is fetched, and no daemon is needed or started.

Invariant: estimates are marked as such wherever they stand beside what was measured.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from qmlx_lsp import paths
from qmlx_lsp.cli.model import describe
from qmlx_lsp.cli.output import bar, json_lines, size
from qmlx_lsp.daemon.socket import ask_daemon
from qmlx_lsp.errors import ModelError, QmlxError
from qmlx_lsp.paths import Paths
from qmlx_lsp.settings import GIB, Settings, load

if TYPE_CHECKING:
    from qmlx_lsp.measure.bench import Bench, Job, Shares
    from qmlx_lsp.measure.expect import Expectation
    from qmlx_lsp.measure.figures import Figure

BUSY_SHARE = 0.5  # of the cores; when others have more of them, it is said
FILE_BYTES = 1 << 30  # written to measure the disk at most
EXIT_INTERRUPTED = 130  # as the program's own
_EMBEDDED = "embedded"
_COMMUNITY = "mlx-community/"
_HELP = "measure this machine for two minutes at most, and say what to expect of which model"
# What figures are called. Others (``prefill_512``) are made of their names.
_WORDS = {
    "memory": "memory, read by MLX",
    "matmul": "matrices multiplied",
    "weights_row": "4-bit weights, one row",
    "weights_chunk": "4-bit weights, a chunk of rows",
    "weights_experts": "4-bit experts, a chunk of rows",
    "ssd_write": "SSD, written",
    "ssd_read": "SSD, read",
    "restore": "a checkpoint, restored",
    "restore_to_plain": "  against a plain read of it",
    "load": "loading",
    "decode": "writing",
    "prefill": "the model",
}
_FORMULAS = (
    "~ is an estimate, from what was measured above, and more often too good than too bad:",
    "  writes    4-bit weights, one row / (bytes of the active weights + bytes of the state at that length)",
    "  reads     4-bit weights (or experts), a chunk of rows / (2 x active parameters)",
    "  cold      the time to read it all, attention to what stands before included",
    "  restored  bytes of the state / speed of a restored checkpoint",
    "  on disk   what 1,000 more tokens write: their rows, and one snapshot where the model needs one",
)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bench", action="store_true", help=_HELP)
    parser.epilog = "\n".join(("With --bench:", *_FORMULAS))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def run(
    *,
    as_json: bool,
    clock: Callable[[], float] = time.monotonic,
    shares: Shares | None = None,
    file_bytes: int = FILE_BYTES,
) -> int:
    """0, or 130 when interrupted. Raises QmlxError when nothing can be measured."""
    where = paths.find()
    settings = load(where.config_file)
    where.prepare()
    for line in _warnings(where):
        print(line, file=sys.stderr)
    try:
        bench, job = _bench(where, settings, clock, shares, file_bytes)
        with bar() as shown:
            bench.tell = partial(_tell, shown, bench)
            with closing(bench.figures()) as figures:
                if as_json:
                    return _json(bench, job, figures)
                found = list(figures)
        _print(found, bench.expectations(), job)
    except KeyboardInterrupt:
        print("qmlx-lsp: interrupted; what it wrote to measure is removed.", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0


def _bench(
    where: Paths, settings: Settings, clock: Callable[[], float], shares: Shares | None, file_bytes: int
) -> tuple[Bench, Job]:
    from qmlx_lsp.cli.doctor import memory_bytes

    try:
        from qmlx_lsp.engine.mlx.blas import preload

        preload(where.blas)
        from qmlx_lsp.engine.mlx.backend import MlxBackend
        from qmlx_lsp.measure.bench import Bench, Job, Shares
    except ImportError as error:
        raise QmlxError(f"A package cannot be loaded: {error}. `qmlx-lsp doctor` says more.") from error
    name, nbytes = _chosen(where, settings)
    own = name == settings.model.name
    backend = partial(
        MlxBackend,
        where.models,
        kv_bits=settings.model.kv_bits,
        adapter=settings.model.adapter_folder if own else None,
        draft_rows=1,
    )
    job = Job(
        where.cache,
        backend,
        name,
        nbytes,
        settings.engine.prefill_chunk_tokens,
        memory_bytes(),
        int(settings.store.free_floor_gib * GIB),
        file_bytes,
    )
    return Bench(job, clock, shares or Shares()), job


def _chosen(where: Paths, settings: Settings) -> tuple[str | None, int]:
    """The model to measure and the bytes of its weights: the configured one, else the embedded one, else none."""
    for name in dict.fromkeys((settings.model.name, _EMBEDDED)):
        try:
            described = describe(name, where)
        except ModelError as error:
            print(f"{error}", file=sys.stderr)
            continue
        if described["installed"]:
            return name, int(described["bytes"])
        print(f"{name} is not on this disk, and is not measured.", file=sys.stderr)
    return None, 0


def _warnings(where: Paths) -> Iterator[str]:
    """What makes the figures worse than they need be."""
    if platform.system() != "Darwin":
        yield "Models run on the CPU here: fit for small ones, and for trying out. A Mac's figures are other ones."
    busy, cores = os.getloadavg()[0], os.cpu_count() or 1
    if busy > cores * BUSY_SHARE:
        yield f"Other programs keep {busy:.1f} of {cores} cores busy: the figures suffer."
    try:
        found = ask_daemon(where, "status")
    except QmlxError:
        found = {}
    if found is None:
        return
    model = found.get("model")
    loaded = f" with {model['name']} ({model['state']})" if isinstance(model, dict) else ""
    yield f"A daemon runs{loaded}: the figures suffer, and memory has to hold both. Without: qmlx-lsp daemon stop"


def _tell(shown: Any, bench: Bench, what: str) -> None:
    shown.update(int(bench.elapsed), int(bench.total_s), f"measuring {_word(what)}")


def _word(name: str) -> str:
    if name in _WORDS:
        return _WORDS[name].strip()
    kind, _, length = name.partition("_")
    return f"reading {int(length):,} tokens" if kind == "prefill" and length.isdigit() else name


def _json(bench: Bench, job: Job, figures: Iterable[Figure]) -> int:
    json_lines([{"kind": "machine", **_machine(job)}])
    json_lines({"kind": "figure", **asdict(one)} for one in figures)
    json_lines({"kind": "model", **asdict(one)} for one in bench.expectations())
    return 0


def _machine(job: Job) -> dict[str, Any]:
    from qmlx_lsp.engine.mlx.measuring import device, on_gpu

    return {
        "system": f"{platform.system()} {platform.machine()}",
        "device": device(),
        "gpu": on_gpu(),
        "cores": os.cpu_count(),
        "memory_bytes": job.memory_bytes,
        "usable_bytes": job.usable_bytes,
        "model": job.model,
    }


def _print(found: list[Figure], expected: list[Expectation], job: Job) -> None:
    machine = _machine(job)
    memory = size(job.memory_bytes) if job.memory_bytes else "unknown"
    usable = size(job.usable_bytes) if job.usable_bytes else "unknown"
    print(
        f"{machine['device']}, {machine['system']}, {machine['cores']} cores; memory {memory}, for models {usable}\n"
    )
    print("Measured")
    for line in measured_lines(found, job.model):
        print(line)
    print("\nTo expect of a conversation of 32,768 tokens")
    for line in (*table(expected), "", *_FORMULAS):
        print(line)
    print(f"Fetch and choose one: qmlx-lsp model pull {_COMMUNITY}NAME, then qmlx-lsp model use {_COMMUNITY}NAME")


def measured_lines(found: Iterable[Figure], model: str | None) -> Iterator[str]:
    """One figure a line, the model's under its name."""
    headed = False
    for one in found:
        if not headed and model is not None and one.name.startswith(("load", "prefill")):
            headed = True
            yield f"  {model}:"
        word = _WORDS.get(one.name) or _word(one.name)
        if one.value is None:
            yield f"  {word:32} –            {one.note}"
        else:
            yield f"  {word:32} {rate(one.value, one.unit):12} {'; '.join(filter(None, (one.over, one.note)))}"


def rate(value: float, unit: str) -> str:
    """A value with its unit, for people."""
    if unit == "bytes/s":
        return f"{size(int(value))}/s"
    if unit == "flop/s":
        return f"{value / 1e12:.2f} TFLOP/s" if value >= 1e12 else f"{value / 1e9:.1f} GFLOP/s"
    if unit == "tokens/s":
        return f"{_number(value)} tok/s"
    return f"{value:.2f} ×" if unit == "times" else seconds(value)


def seconds(value: float) -> str:
    """A time, for people."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 100:
        return f"{value:.1f} s"
    return f"{value / 60:.0f} min" if value < 6_000 else f"{value / 3_600:,.0f} h"


def _number(value: float) -> str:
    if value < 1:
        return f"{value:.2g}"
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def table(expected: Iterable[Expectation]) -> Iterator[str]:
    """One model a line. What cannot be held is promised nothing."""
    yield (
        f"  {'model':36} {'weights':>8} {'fits':>5} {'writes tok/s':>13} {'reads tok/s':>12} {'cold':>8} "
        f"{'restored':>9} {'on disk':>9}"
    )
    for one in expected:
        name = one.name.removeprefix(_COMMUNITY)
        fits = {True: "yes", False: "no", None: "?"}[one.fits]
        head = f"  {name:36} {size(int(one.weight_bytes)):>8} {fits:>5}"
        if one.fits is False:
            yield f"{head}  needs {size(int(one.needed_bytes))} with its state"
            continue
        speed = "" if one.measured else "~"
        cells = (
            (_cell(one.decode, _number, speed), 13),
            (_cell(one.prefill, _number, speed), 12),
            (_cell(one.cold_s, seconds, "~"), 8),
            (_cell(one.restored_s, seconds, "~"), 9),
            (size(int(one.written_bytes)), 9),
        )
        yield " ".join((head, *(text.rjust(width) for text, width in cells)))
        yield from _beside(one)


def _beside(one: Expectation) -> Iterator[str]:
    """What was measured against what would have been estimated, and where the length is another."""
    behind = f" here, writing behind {one.behind:,} tokens" if one.behind is not None else " here"
    if one.estimated_decode and one.estimated_prefill:
        writes, reads = (_number(value) for value in (one.estimated_decode, one.estimated_prefill))
        expected = f"the estimate would be ~{writes} and ~{reads} tok/s"
        yield f"    measured{behind}; {expected}: expect of the others accordingly"
    elif one.measured:
        short = f"; it reads {one.tokens:,} tokens at most" if one.tokens < 32_768 else ""
        yield f"    speeds measured{behind}{short}"


def _cell(value: float | None, words: Callable[[float], str], mark: str) -> str:
    return "–" if value is None else f"{mark}{words(value)}"
