"""The figures of what editors and the model are told: ``python -m benchmarks.workspace``.

* typing: a keystroke's round trip (``didChange`` and the answer to a request behind it) through the real daemon,
  while the embedded model reads, writes and is saved, and while it rests; and 200 changes of a file of 1 MB;
* edits: tokens told of every change of every text file in this repository's history, against a minimal unified diff.

``--json FILE`` writes all of it. The exit code is 1 when a gate is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.store.figure import Figure, table, tell
from qmlx_lsp import paths
from qmlx_lsp.cli.client import Client, RequestError, connect
from qmlx_lsp.daemon.socket import stop
from qmlx_lsp.engine.mlx import embedded
from qmlx_lsp.transcript.encoder import Codec
from qmlx_lsp.workspace.told import Limits
from qmlx_lsp.workspace.told import tell as told_of

ROOT = Path(__file__).parents[1]
KEYSTROKES_PER_S = 25
LIMITS = Limits(max_file_bytes=512 * 1024, max_diff_share=0.6)
COMMITS = 400
FILE_LINES = 300
QUESTIONS = 2


def main() -> int:
    given = _arguments()
    parts = {"typing": typing, "edits": edits}
    found: list[Figure] = []
    for name in given.only or parts:
        tell(f"{name} …")
        found += parts[name]()
    print(table(found))
    if given.json:
        when = datetime.now(UTC).date().isoformat()
        report = {"when": when, "machine": machine(), "figures": [figure.as_dict() for figure in found]}
        Path(given.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return int(any(figure.verdict == "MISS" for figure in found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=["typing", "edits"], help="one part")
    parser.add_argument("--json", help="write all figures to this file")
    return parser.parse_args()


# --- typing ---------------------------------------------------------------------------------------------------------


def typing() -> Iterator[Figure]:
    """Keystrokes in one editor while another one asks."""
    model = embedded.ensure(paths.find().models, lambda _done, _total, _what: None, lambda: False)
    with tempfile.TemporaryDirectory(prefix="qmlx-") as base, _home(Path(base), model) as root:
        where = paths.find()
        asking = connect(where, [root], lambda _method, _params: None)
        editor = _Editor(connect(where, [root], lambda _method, _params: None), root / "typed.py")
        while editor.client.request("qmlx/status", {})["model"]["state"] != "ready":
            time.sleep(0.1)
        resting = editor.type_for(4.0)
        busy, saved = _while_asking(editor, asking, root)
        yield _figure("keystroke at rest, median", statistics.median(resting), "ms")
        yield _figure("keystroke while asked, median", statistics.median(busy), "ms", 2.0, 4.0, keystrokes=len(busy))
        p99 = statistics.quantiles(busy, n=100)[98]
        yield _figure("keystroke while asked, p99", p99, "ms", 10.0, 40.0, worst=max(busy), saved_mib=saved)
        yield _figure("200 changes of 1 MB", editor.large(), "s", 1.0, 2.0)
        asking.close()
        editor.client.close()
        stop(where)


def _figure(
    name: str, value: float, unit: str, goal: float | None = None, gate: float | None = None, **more: Any
) -> Figure:
    rounded = {key: round(number, 2) for key, number in more.items()}
    return Figure(name, round(value, 3), unit, goal, gate, more=rounded)


@contextlib.contextmanager
def _home(base: Path, model: Path) -> Iterator[Path]:
    """A home with a project in it; the settings make checkpoints frequent."""
    root = base / "project"
    root.mkdir()
    kept = dict(os.environ)
    os.environ |= {
        "QMLX_HOME": str(base / "home"), "QMLX_MODEL": str(model), "QMLX_POINT_TOKENS": "1024",
        "QMLX_RESTORE_GAIN_TOKENS": "1", "QMLX_FREE_FLOOR_GIB": "0", "QMLX_READ_AHEAD": "false",
    }  # fmt: skip
    try:
        yield root
    finally:
        os.environ.clear()
        os.environ |= kept


def _while_asking(editor: _Editor, asking: Client, root: Path) -> tuple[list[float], float]:
    """Round trips while questions are read, answered and saved, and how much was saved."""
    written: list[int] = []
    done = threading.Event()

    def ask() -> None:
        try:
            for number in range(QUESTIONS):
                file = root / f"asked{number}.py"
                file.write_text("".join(f"value_{number}_{line} = {line} * {number}\n" for line in range(60)))
                params = {"text": "Explain it.", "textDocument": {"uri": file.as_uri()}, "maxTokens": 60}
                written.append(asking.request("qmlx/ask", {**params, "root": str(root)})["usage"]["written_bytes"])
        finally:
            done.set()

    thread = threading.Thread(target=ask)
    thread.start()
    took: list[float] = []
    while not done.is_set():
        took.append(editor.keystroke())
        done.wait(1 / KEYSTROKES_PER_S)
    thread.join()
    return took, sum(written) / (1 << 20)


class _Editor:
    """Types into one file of ordinary length."""

    def __init__(self, client: Client, file: Path) -> None:
        self.client = client
        self.uri = file.as_uri()
        self.version = 1
        self._open(self.uri, "".join(f"name_{line} = {line}  # a line of a file\n" for line in range(FILE_LINES)))

    def _open(self, uri: str, text: str) -> None:
        document = {"uri": uri, "languageId": "python", "version": 1, "text": text}
        self.client.notify("textDocument/didOpen", {"textDocument": document})

    def keystroke(self) -> float:
        """Milliseconds until a change has been taken in and a request behind it answered."""
        self.version += 1
        began = time.perf_counter()
        self._change(self.uri, self.version, self.version % FILE_LINES)
        with contextlib.suppress(RequestError):  # there is no such method, which takes no time to say
            self.client.request("qmlx/ping", {})
        return (time.perf_counter() - began) * 1000

    def _change(self, uri: str, version: int, line: int) -> None:
        place = {"line": line, "character": 3}
        changes = [{"range": {"start": place, "end": place}, "text": "x"}]
        self.client.notify(
            "textDocument/didChange", {"textDocument": {"uri": uri, "version": version}, "contentChanges": changes}
        )

    def type_for(self, seconds: float) -> list[float]:
        took, until = [], time.monotonic() + seconds
        while time.monotonic() < until:
            took.append(self.keystroke())
            time.sleep(1 / KEYSTROKES_PER_S)
        return took

    def large(self) -> float:
        """Seconds for 200 changes all over a file of 1 MB."""
        uri, lines = f"{self.uri}.large", 20_000
        self._open(uri, "".join(f"name_{line:05} = {line:05}  # a line of 50 characters\n" for line in range(lines)))
        with contextlib.suppress(RequestError):
            self.client.request("qmlx/ping", {})
        began = time.perf_counter()
        for number in range(200):
            self._change(uri, number + 2, number * 97 % lines)
        with contextlib.suppress(RequestError):
            self.client.request("qmlx/ping", {})
        return time.perf_counter() - began


# --- edits ----------------------------------------------------------------------------------------------------------


def edits() -> Iterator[Figure]:
    """What is told of each change in the history, against git's minimal diff of it behind a line with its name."""
    model = embedded.ensure(paths.find().models, lambda _done, _total, _what: None, lambda: False)
    codec = Codec("SmolLM2", (model / "tokenizer.json").read_text(encoding="utf-8"))
    ours: list[int] = []
    theirs: dict[int, list[int]] = {0: [], 1: [], 2: [], 3: []}
    for path, before, after in _history():
        telling = told_of(path, before, after, LIMITS)
        if telling is None:
            continue
        ours.append(len(codec.encode_data(telling.text)))
        for context, counts in theirs.items():
            diff = _minimal(before, after, context)
            counts.append(len(codec.encode_data(f"Change in {path}:\n```diff\n{diff}```\n")))
    for context in (0, 1, 2, 3):
        ratio = sum(ours) / sum(theirs[context])
        goal, gate = (1.1, 1.1) if context == 2 else (None, None)
        median = statistics.median(a / b for a, b in zip(ours, theirs[context], strict=True))
        name = f"tokens told of an edit / minimal diff with {context} lines around"
        yield Figure(
            name, round(ratio, 4), goal=goal, gate=gate, more={"edits": len(ours), "median": round(median, 4)}
        )


def _history() -> Iterator[tuple[str, str, str]]:
    """Path, text before and text after of every change of a text file, the newest first."""
    log = _git("log", "--no-merges", "--format=%H", f"-{COMMITS}").split()
    for commit in log:
        for line in _git("diff-tree", "-r", "--no-renames", "--diff-filter=M", commit).splitlines()[1:]:
            meta, path = line.split("\t", 1)
            old, new = meta.split()[2:4]
            texts = [_blob(name) for name in (old, new)]
            if texts[0] is not None and texts[1] is not None:
                yield path, texts[0], texts[1]


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True)
    return done.stdout.decode("utf-8", "replace")


def _blob(name: str) -> str | None:
    done = subprocess.run(["git", "cat-file", "blob", name], cwd=ROOT, capture_output=True, check=True)
    try:
        text = done.stdout.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text or len(done.stdout) > LIMITS.max_file_bytes else text


def _minimal(before: str, after: str, context: int) -> str:
    """The hunks of git's minimal diff, without its headers."""
    with tempfile.TemporaryDirectory(prefix="qmlx-") as folder:
        a, b = Path(folder, "a"), Path(folder, "b")
        a.write_text(before, encoding="utf-8", newline="")
        b.write_text(after, encoding="utf-8", newline="")
        done = subprocess.run(
            ["git", "diff", "--no-index", "--minimal", f"-U{context}", str(a), str(b)],
            capture_output=True,
            check=False,
        )
    lines = done.stdout.decode().split("\n")
    start = next((at for at, line in enumerate(lines) if line.startswith("@@ ")), len(lines))
    return "\n".join(
        line if not line.startswith("@@ ") else line[: line.index(" @@", 3) + 3] for line in lines[start:]
    )


if __name__ == "__main__":
    raise SystemExit(main())
