"""The checkpoint store's figures on this machine: ``python -m benchmarks.store``.

* restore: verified restores against plain reads of the same files, warm and cold, and their memory;
* volume: bytes written against new rows and kept snapshots;
* small: 2,000 small turns against 20 large ones;
* lookup: ``find`` among 1,000 checkpoints, opening a store of 10,000 files;
* beside: stalls and decode speed while a save runs;
* memory: 500 turns of the whole program.

Each runs in processes of its own, on random states in the shapes of real models. ``--quick`` takes some minutes and
500 MB of disk, the whole a good while, 12 GB of disk at a time (in TMPDIR) and 8 GB of memory. The exit code is 1
when a gate is missed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.machine import machine
from benchmarks.store import beside, endurance, lookup, restoring, volume
from benchmarks.store.figure import Figure, table, tell

PARTS: dict[str, Callable[..., Iterator[Figure]]] = {
    "restore": restoring.figures,
    "volume": volume.amplification,
    "small": volume.small_turns,
    "lookup": lookup.figures,
    "beside": beside.figures,
    "memory": endurance.figures,
}


def main() -> int:
    given = _arguments()
    began, found = time.monotonic(), []
    for name in given.only or PARTS:
        for figure in PARTS[name](quick=given.quick):
            found.append(figure)
            passed = time.monotonic() - began
            tell(f"  {passed:5.0f} s  {figure.verdict:4}  {figure.value:.3f} {figure.unit} {figure.name}")
    print(table(found))
    if given.json:
        about = {"when": datetime.now(UTC).date().isoformat(), "quick": given.quick, "machine": machine()}
        text = json.dumps(about | {"figures": [figure.as_dict() for figure in found]}, indent=1)
        Path(given.json).write_text(text + "\n", encoding="utf-8")
    return int(any(figure.verdict == "MISS" for figure in found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller states and fewer rounds: some minutes")
    parser.add_argument(
        "--only", action="append", choices=PARTS, metavar="NAME", help=f"only this part: {', '.join(PARTS)}"
    )
    parser.add_argument("--json", metavar="FILE", help="write all figures to this file")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
