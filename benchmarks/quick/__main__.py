"""What must not get worse, in less than a minute: ``python -m benchmarks.quick``, ``make bench-quick``.

Counts of what tiny random models compute in the whole product, and ratios of two sides of this run; nothing is
fetched, no model is needed. The exit code is 1 when a figure misses its bound, 2 when one could not be measured.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from benchmarks.machine import machine
from benchmarks.quick import counts, keystrokes, ratios
from benchmarks.quick.bound import Bounded, Sense, exit_code, summary, table
from benchmarks.quick.desk import KINDS
from benchmarks.store.figure import tell

Part = Callable[[], Iterator[Bounded]]

PARTS: dict[str, Part] = {
    **{f"counts, {kind}": partial(counts.figures, kind) for kind in KINDS},
    **{f"keystrokes, {kind}": partial(keystrokes.figures, kind) for kind in KINDS},
    "drafting": ratios.drafting,
    "starts": ratios.starts,
    "restores": ratios.restores,
    "written": ratios.written,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quick", description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write all figures to this file")
    parser.add_argument("--only", action="append", choices=PARTS, metavar="PART", help=f"one of: {', '.join(PARTS)}")
    given = parser.parse_args(arguments)
    found = [figure for name in given.only or PARTS for figure in measured(name, PARTS[name])]
    print(table(found))
    print(summary(found))
    if given.json:
        about = {"when": datetime.now(UTC).date().isoformat(), "machine": machine()}
        text = json.dumps(about | {"figures": [figure.as_dict() for figure in found]}, indent=1, ensure_ascii=False)
        try:
            Path(given.json).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            print(f"{given.json} cannot be written: {error.strerror}.", file=sys.stderr)
            return 2
    return exit_code(found)


def measured(name: str, part: Part) -> list[Bounded]:
    """The figures of ``part``; one that could not be measured in place of those that an error took."""
    began = time.monotonic()
    found: list[Bounded] = []
    try:
        found.extend(part())
    except Exception as error:  # noqa: BLE001 - whatever broke, the others are measured and this one says so
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        found.append(Bounded(f"{name}: all of it", None, Sense.EXACT, 0, why=why))
    tell(f"{name}: {time.monotonic() - began:.1f} s")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
