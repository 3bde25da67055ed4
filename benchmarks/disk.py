"""The disk's figures on this machine: ``python -m benchmarks.disk``.

A project of 50,000 files in 5,000 folders, with nested ``.gitignore`` files, beside 20,000 files in ``node_modules``,
in a git repository with a branch in which 5,000 of the files are different.

* ready: seconds until every path is known and watched, and how late the event loop runs meanwhile;
* memory: what the index and the watchers add to a fresh process, and the index alone;
* idle: share of a core while nothing happens, with everything watched and with nothing but looking;
* change: from a file's being written to its being known, in milliseconds;
* switch: ``git switch`` to that branch: until all of it is known, as how much text.

``--json FILE`` writes all of it. The exit code is 1 when a gate is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.store.figure import Figure, apart, resident, table, tell
from qmlx_lsp.session.rules import ignore_rules
from qmlx_lsp.session.scan import Scanner
from qmlx_lsp.session.watch import Watch
from qmlx_lsp.settings import Watch as Settings
from qmlx_lsp.workspace.changes import NOTHING, Changes
from qmlx_lsp.workspace.index import Index
from qmlx_lsp.workspace.summary import summary

sys.setswitchinterval(0.001)  # as the daemon does (qmlx_lsp/app.py)
FILES, FOLDERS, MODULES, SWITCHED = 50_000, 5_000, 20_000, 5_000
IDLE_S, WRITES, SETTLE_S = 20, 40, 6
MIB = 1 << 20
_WORDS = ("parser", "render", "token", "cache", "view", "model", "client", "server", "store", "graph", "config")


def main() -> int:
    given = _arguments()
    parts = {"ready": ready, "memory": memory, "idle": idle, "change": change, "switch": switch}
    found: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="qmlx-") as folder:
        root = Path(folder).resolve() / "project"
        tell("making the project …")
        make(root)
        for name in given.only or parts:
            tell(f"{name} …")
            found += parts[name](root)
    print(table(found))
    if given.json:
        about = {"when": datetime.now(UTC).date().isoformat(), "machine": machine()}
        text = json.dumps(about | {"figures": [figure.as_dict() for figure in found]}, indent=1)
        Path(given.json).write_text(text + "\n", encoding="utf-8")
    return int(any(figure.verdict == "MISS" for figure in found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.disk", description=__doc__.splitlines()[0])
    names = ["ready", "memory", "idle", "change", "switch"]
    parser.add_argument("--only", action="append", choices=names, help="only this part")
    parser.add_argument("--json", metavar="FILE", help="write all figures to this file")
    return parser.parse_args()


def make(root: Path) -> None:
    """The project, its branch ``main`` checked out, and the branch ``other``. File names are all different."""
    numbers = random.Random(1)

    def name(n: int) -> str:
        return f"{numbers.choice(_WORDS)}_{numbers.choice(_WORDS)}_{n}"

    tops = [root / name(n) for n in range(20)]
    middle = [tops[n % 20] / name(n) for n in range(480)]
    folders = [*middle, *(middle[n % 480] / name(n) for n in range(FOLDERS - 500))]
    files = [folders[n % len(folders)] / f"{name(n)}.ts" for n in range(FILES)]
    others = [root / "node_modules" / f"package{n % 2_000}" / f"{n}.js" for n in range(MODULES)]
    for folder in {file.parent for file in files + others}:
        folder.mkdir(parents=True, exist_ok=True)
    for n, file in enumerate(files + others):
        file.write_text(f"export const n = {n};\n", encoding="utf-8")
    (root / ".gitignore").write_text("*.log\n/build/\nnode_modules/\n*.o\n!keep.o\n.coverage\n", encoding="utf-8")
    for folder in folders[::100]:
        (folder / ".gitignore").write_text("*.gen.ts\n/tmp/\n", encoding="utf-8")
    _git(root, "init", "-q", "-b", "main")
    _git(root, "add", ".")
    _git(root, "commit", "-q", "-m", "one")
    _git(root, "switch", "-q", "-c", "other")
    for n, file in enumerate(files[::10]):
        if n % 10:
            file.write_text(f"export const other = {n};\n", encoding="utf-8")
        else:
            file.rename(file.with_name(f"new_{n}.ts"))
    _git(root, "add", ".")
    _git(root, "commit", "-q", "-m", "two")
    _git(root, "switch", "-q", "main")


def _git(root: Path, *words: str) -> None:
    who = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false", "-c", "gc.auto=0"]
    subprocess.run(["git", *who, *words], cwd=root, check=True, stdout=subprocess.DEVNULL)


class Late:
    """How much later than asked for the event loop comes back, in milliseconds."""

    def __init__(self) -> None:
        self.all: list[float] = []

    async def measure(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            self.all.append((time.perf_counter() - began) * 1000 - 1)

    def figures(self, name: str) -> Iterator[Figure]:
        ordered = sorted(self.all)
        p99 = ordered[len(ordered) * 99 // 100]
        more = {"median": statistics.median(ordered), "worst": ordered[-1]}
        yield Figure(f"… {name}: the event loop's delay, p99", p99, "ms", goal=10, gate=20, more=more)


class Heard:
    def __init__(self) -> None:
        self.net: Changes = NOTHING
        self.steps = 0
        self.at = 0.0
        self.news = asyncio.Event()

    def __call__(self, changes: Changes) -> None:
        self.at = time.perf_counter()
        self.net = self.net.merge(changes)
        self.steps += 1
        self.news.set()


@asynccontextmanager
async def watching(root: Path, heard: Heard, **settings: Any) -> AsyncIterator[Watch]:
    about = replace(Settings(), **settings)
    watch = Watch(root, lambda: ignore_rules(root), about, heard, lambda _, text: tell(str(text)))
    await watch.start()
    await watch.ready.wait()
    try:
        yield watch
    finally:
        await watch.stop()


# --- ready ----------------------------------------------------------------------------------------------------------


def ready(root: Path) -> Iterator[Figure]:
    yield from apart(_ready, root)


def _ready(root: Path) -> list[Figure]:
    async def run() -> list[Figure]:
        late, heard = Late(), Heard()
        measuring = asyncio.create_task(late.measure())
        await asyncio.sleep(0.2)
        late.all.clear()
        began = time.perf_counter()
        async with watching(root, heard) as watch:
            took = time.perf_counter() - began
            scanning = late.all
            more = {"files": len(watch.index), "state": watch.state, "watches": _watches(), "watchers": _instances()}
            await asyncio.sleep(0)
            late.all = []  # what counting the watches took is ours
            await asyncio.sleep(SETTLE_S)
            measuring.cancel()
            again, late.all = late.all, scanning
            figures = [Figure(f"{FILES:,} files known and watched", took, "s", goal=2, gate=4, more=more)]
            figures += late.figures("until then")
            late.all = again
            figures += late.figures(f"the {SETTLE_S} s after, with the second look")
            assert heard.net == NOTHING
        return figures

    return asyncio.run(run())


def _watches() -> int:
    """Folders that this process has the system watch (Linux)."""
    folder = Path("/proc/self/fdinfo")
    return sum(_read(file).count("inotify wd:") for file in folder.iterdir()) if folder.is_dir() else 0


def _instances() -> int:
    folder = Path("/proc/self/fdinfo")
    return sum("inotify wd:" in _read(file) for file in folder.iterdir()) if folder.is_dir() else 0


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii")
    except OSError:
        return ""


# --- memory ---------------------------------------------------------------------------------------------------------


def memory(root: Path) -> Iterator[Figure]:
    yield apart(_all_memory, root)
    yield apart(_index_memory, root)


def _all_memory(root: Path) -> Figure:
    async def run() -> Figure:
        gc.collect()
        before = resident()
        async with watching(root, Heard()):
            await asyncio.sleep(SETTLE_S)
            gc.collect()
            grown = resident() - before
        return Figure("resident memory of index, rules and watchers", grown / MIB, "MiB", goal=25, gate=40)

    return asyncio.run(run())


def _index_memory(root: Path) -> Figure:
    rules, index = ignore_rules(root), Index()
    gc.collect()
    before = resident()
    for folder, files in Scanner(root, rules, FILES * 2).scan():
        index.update(folder, files or {})
    gc.collect()
    return Figure("… of rules and index alone", (resident() - before) / MIB, "MiB", more={"files": len(index)})


# --- idle -----------------------------------------------------------------------------------------------------------


def idle(root: Path) -> Iterator[Figure]:
    yield apart(_idle, root, "auto")
    yield apart(_idle, root, "poll")


def _idle(root: Path, mode: str) -> Figure:
    async def run() -> Figure:
        async with watching(root, Heard(), mode=mode) as watch:
            await asyncio.sleep(SETTLE_S)
            spent, began = time.process_time(), time.perf_counter()
            await asyncio.sleep(IDLE_S)
            share = (time.process_time() - spent) / (time.perf_counter() - began)
            more = {"seconds": IDLE_S, "next_look_s": watch._disk._pace._look_at - time.monotonic()}
        return Figure(f"idle, {watch.state}: share of a core", share * 100, "%", goal=0.5, gate=1, more=more)

    return asyncio.run(run())


# --- change ---------------------------------------------------------------------------------------------------------


def change(root: Path) -> Iterator[Figure]:
    yield apart(_change, root)


def _change(root: Path) -> Figure:
    async def run() -> Figure:
        heard, numbers, times = Heard(), random.Random(2), []
        async with watching(root, heard) as watch:
            await asyncio.sleep(SETTLE_S)
            paths = sorted(watch.index.paths())
            for path in numbers.sample(paths, WRITES):
                await asyncio.sleep(numbers.random() * 0.3)
                heard.news.clear()
                file = root / path
                text = file.read_text(encoding="utf-8")
                began = time.perf_counter()
                file.write_text(text, encoding="utf-8")
                await asyncio.wait_for(heard.news.wait(), 10)
                times.append((heard.at - began) * 1000)
        name = f"from a write to its being known, median of {WRITES}"
        return Figure(name, statistics.median(times), "ms", goal=300, gate=600, more={"worst": max(times)})

    return asyncio.run(run())


# --- switch ---------------------------------------------------------------------------------------------------------


def switch(root: Path) -> Iterator[Figure]:
    yield from apart(_switch, root)


def _switch(root: Path) -> list[Figure]:
    async def run() -> list[Figure]:
        heard, late = Heard(), Late()
        async with watching(root, heard) as watch:
            await asyncio.sleep(SETTLE_S)
            git = ["git", "switch", "-q", "other"]
            measuring = asyncio.create_task(late.measure())
            process = await asyncio.create_subprocess_exec(*git, cwd=root)
            await process.wait()
            began = time.perf_counter()
            await asyncio.wait_for(_all_heard(heard), 120)
            took = heard.at - began
            measuring.cancel()
            net = watch.pending.changes
            text = summary(net, because=f"The branch is now {watch.branch}.")
            tell(text)
            more = {
                "added": len(net.added), "changed": len(net.changed), "removed": len(net.removed),
                "steps": heard.steps, "lines": text.count("\n"), "characters": len(text),
                "branch": watch.branch,
            }  # fmt: skip
        name = f"git switch over {SWITCHED:,} files: from its end until all is known"
        return [Figure(name, took, "s", goal=5, gate=10, more=more), *late.figures("from its beginning on")]

    try:
        return asyncio.run(run())
    finally:
        _git(root, "switch", "-q", "main")


async def _all_heard(heard: Heard) -> None:
    while len(heard.net.changed) + len(heard.net.added) < SWITCHED:
        heard.news.clear()
        await heard.news.wait()


if __name__ == "__main__":
    raise SystemExit(main())
