"""Everything that is claimed, measured in one go: ``python -m benchmarks``, or ``make bench``. An hour and a half.

Each part is a command of its own (see README.md) and writes its raw data into one folder, ``results/DATE-MACHINE/``;
``report.md`` is made from these files. A part whose file is there is not measured again unless it is named with
``--only``, so a run that was stopped goes on where it was. Nothing else should run on the machine meanwhile.

``--readme`` puts the report's main table and picture into the README. The exit code is 1 when a gate is missed, with
a line for each, 2 when a part could not be measured; the others are measured all the same.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import report
from benchmarks.store.figure import tell

RESULTS = Path(__file__).parent / "results"
PARTS: dict[str, list[str]] = {
    "sidebyside": ["benchmarks.sidebyside"],
    "start": ["benchmarks.figures"],
    "store": ["benchmarks.store", "--quick"],
    "typing": ["benchmarks.workspace", "--only", "typing"],
    "inline": ["benchmarks.inline", "--only", "typing"],
}
MISSED, BROKEN = 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    given = parse(arguments)
    folder = Path(given.into) if given.into else RESULTS / _named(given)
    folder.mkdir(parents=True, exist_ok=True)
    worst = 0
    for name in [] if given.report else given.only or PARTS:
        file = folder / f"{name}.json"
        if file.exists() and not given.only:
            tell(f"{name}: {file} is there")
            continue
        worst = max(worst, _measure(name, file, given.more))
    report.write(folder)
    tell(f"{folder / report.NAME}")
    for line in report.missed(folder):
        tell(f"missed: {line}")
    if given.readme:
        report.put_into_readme(folder)
    return worst


def _measure(name: str, file: Path, more: Sequence[str]) -> int:
    """The part's exit code: 0, ``MISSED`` or ``BROKEN``. Its file is there only when it came to its end."""
    tell(f"{name} …")
    unfinished = file.with_suffix(".part")
    extra = ["--plot", str(file.with_suffix(".svg")), *more] if name == "sidebyside" else []
    code = subprocess.run(
        [sys.executable, "-m", *PARTS[name], "--json", str(unfinished), *extra], check=False
    ).returncode
    if code in (0, MISSED) and unfinished.exists():
        unfinished.replace(file)
        return code
    tell(f"{name} could not be measured: exit code {code}")
    return BROKEN


def _named(given: argparse.Namespace) -> str:
    machine = f"{platform.system()}-{platform.machine()}-{os.cpu_count()}-cores".lower()
    return f"{given.date or datetime.now(UTC).date().isoformat()}-{machine}"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--only", action="append", choices=PARTS, metavar="PART", help=f"measure this anew: {', '.join(PARTS)}")
    add("--into", metavar="FOLDER", help="where the files go (default: benchmarks/results/DATE-MACHINE)")
    add("--date", metavar="YYYY-MM-DD", help="go on with the run of that day")
    add("--report", action="store_true", help="measure nothing: make the report from the files again")
    add("--readme", action="store_true", help="put the main table and picture into the README")
    add("more", nargs="*", metavar="…", help="behind --: arguments for sidebyside, such as --model FOLDER")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
