"""``qmlx-lsp demo``: the point of the program in six questions, through a real connector, daemon and model.

Everything happens in a temporary home on a copy of real source files (modules of Python's standard library). The
last question is asked twice after the daemon was killed: once with its checkpoints, and once in a second home that
has the same conversation and no checkpoint, which is the cold start that the others are measured against.

Invariant: figures come from ``usage``, where the daemon counted them; only the factor is computed here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qmlx_lsp import paths
from qmlx_lsp.cli.client import REQUEST_CANCELLED, Client, RequestError
from qmlx_lsp.cli.output import bar, json_lines
from qmlx_lsp.daemon.socket import ask_daemon, stop
from qmlx_lsp.errors import DaemonError, QmlxError

SOURCES = ("reprlib.py", "bisect.py")  # some 2,700 tokens
RESTORED_SHARE_MIN = 0.95
CANCEL_AFTER_DELTAS = 10
TABLE_COLUMNS = 104  # where the output is no terminal


@dataclass(frozen=True, slots=True)
class Question:
    """One step. ``edit`` changes the file first, ``cancel`` cuts the reply, ``kill`` ends the daemon first."""

    name: str
    text: str
    max_tokens: int = 24
    edit: bool = False
    cancel: bool = False
    kill: bool = False


STEPS = (
    Question("cold question", "What does the function bisect_left do? Answer in one sentence."),
    Question("follow-up", "And what does insort_left do?"),
    Question("edit, then question", "I have just renamed something. What is the new name?", edit=True),
    Question("reply cancelled half-way", "Explain the class Repr line by line.", max_tokens=96, cancel=True),
    Question("question after it", "Which module were you explaining?"),
    Question("kill -9, then question", "Name one function of bisect.py.", kill=True),
)


class DemoFailed(QmlxError):
    """A step did more work than it should; says which and how much."""


def add(verbs: Any) -> None:
    parser = verbs.add_parser("demo", help="show on this machine what qmlx-lsp saves (some minutes on a CPU)")
    parser.add_argument("--json", action="store_true", help="one JSON object per step")
    parser.add_argument("--model", default="embedded", help="embedded, a folder or a Hugging Face id")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    model = _model(given.model)
    with tempfile.TemporaryDirectory(prefix="qmlx-") as folder:
        rows = _Demo(Path(folder), model, quiet=given.json).run()
    if given.json:
        json_lines(rows)
    else:
        _table(rows)
    check(rows)
    return 0


def _model(name: str) -> Path:
    """The model's folder, fetched into the user's own cache, so that the demo's home can be thrown away."""
    from qmlx_lsp.engine.mlx.source import resolve

    where = paths.find()
    where.prepare()
    with bar() as shown:
        return resolve(name, where.models, shown.update, lambda: False)


class _Demo:
    def __init__(self, base: Path, model: Path, *, quiet: bool) -> None:
        self._base = base
        self._model = model
        self._quiet = quiet
        self._project = base / "project"
        self._texts: dict[str, str] = {}

    def run(self) -> list[dict[str, Any]]:
        self._project.mkdir()
        for name in SOURCES:
            text = (Path(os.__file__).parent / name).read_text(encoding="utf-8")
            (self._project / name).write_text(text, encoding="utf-8")
            self._texts[name] = text
        home, cold_home = self._base / "home", self._base / "cold"
        rows = []
        with self._editor(home) as editor:
            for number, step in enumerate(STEPS[:-1], 1):
                rows.append(self._step(editor, number, step))
            self._say("kill -9")
            _kill(home)
        shutil.copytree(home / "data", cold_home / "data")
        for place in (home, cold_home):
            with self._editor(place) as editor:
                rows.append(self._step(editor, len(STEPS), STEPS[-1], cold=place is cold_home))
        return _with_factors(rows)

    def _step(self, editor: Client, number: int, step: Question, *, cold: bool = False) -> dict[str, Any]:
        self._say(f"{number} {step.name}{' (again, without its checkpoint)' if cold else ''}: {step.text}")
        if step.edit:
            self._edit(editor)
        tokens = editor.request("qmlx/conversation", {"root": str(self._project), "limit": 0})["totals"]["tokens"]
        params = {
            "text": step.text, "maxTokens": step.max_tokens,
            "textDocument": {"uri": (self._project / SOURCES[-1]).as_uri()},
        }  # fmt: skip
        editor.on_notify = _Canceller(editor) if step.cancel else lambda _method, _params: None
        try:
            answer = editor.request("qmlx/ask", params)
        except RequestError as error:
            if error.code != REQUEST_CANCELLED:
                raise
            last = editor.request("qmlx/conversation", {"root": str(self._project), "limit": 1})["turns"][-1]
            answer = {key: last[key] for key in ("text", "finish", "usage")}
        shown = {"step": number, "name": step.name, "finish": answer["finish"], "usage": answer["usage"]}
        return {**shown, "new_tokens": answer["usage"]["context"] - tokens, "text": answer["text"]}

    def _edit(self, editor: Client) -> None:
        """Rename a parameter in the open file, as typing would."""
        name = SOURCES[-1]
        old = self._texts[name]
        new = old.replace("def insort_right(a, x,", "def insort_right(items, x,", 1)
        self._texts[name] = new
        editor.notify("textDocument/didChange", {
            "textDocument": {"uri": (self._project / name).as_uri(), "version": 2},
            "contentChanges": [{"text": new}],
        })  # fmt: skip

    @contextmanager
    def _editor(self, home: Path) -> Iterator[Client]:
        """An editor: a connector process that is spoken to over stdio, with the project's files open."""
        home.mkdir(exist_ok=True)
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("QMLX_") or key == "QMLX_BLAS"},
            "QMLX_HOME": str(home), "QMLX_MODEL": str(self._model),
        }  # fmt: skip
        connector = subprocess.Popen(
            [sys.executable, "-m", "qmlx_lsp", "--stdio"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
        )  # fmt: skip
        editor = Client.over_stdio(connector)
        try:
            editor.initialize([self._project])
            for name, text in self._texts.items():
                document = {
                    "uri": (self._project / name).as_uri(), "languageId": "python", "version": 1, "text": text,
                }  # fmt: skip
                editor.notify("textDocument/didOpen", {"textDocument": document})
            yield editor
        finally:
            connector.kill()
            connector.communicate()
            _stop(home)

    def _say(self, text: str) -> None:
        if not self._quiet:
            print(text, file=sys.stderr, flush=True)


class _Canceller:
    """Cancels the running request when the reply is well under way, as a user would."""

    def __init__(self, editor: Client) -> None:
        self._editor = editor
        self._deltas = 0

    def __call__(self, method: str, params: Any) -> None:
        if method == "qmlx/stream" and params["delta"]:
            self._deltas += 1
            if self._deltas == CANCEL_AFTER_DELTAS:
                self._editor.cancel()


def _paths(home: Path) -> paths.Paths:
    return paths.Paths(home / "config", home / "data", home / "cache", home / "run", home / "log")


def _kill(home: Path) -> None:
    found = ask_daemon(_paths(home), "status")
    if found is None:
        raise DaemonError("The demo's daemon has ended by itself.")
    os.kill(found["pid"], signal.SIGKILL)


def _stop(home: Path) -> None:
    if _paths(home).socket.exists():
        stop(_paths(home))


def _with_factors(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Fold the cold repetition into its step and add each step's factor against a cold start of its context."""
    *rows, cold = rows
    per_token = cold["usage"]["ttft_ms"] / cold["usage"]["context"]
    rows[-1]["cold_ttft_ms"] = cold["usage"]["ttft_ms"]
    for row in rows:
        usage = row["usage"]
        row["factor"] = round(per_token * usage["context"] / usage["ttft_ms"], 1) if usage["ttft_ms"] else None
    return rows


def _table(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="What each question cost")
    for heading in ("step", "live", "restored", "prefilled", "generated", "first token", "against cold"):
        table.add_column(heading, justify="left" if heading == "step" else "right", no_wrap=True)
    for row in rows:
        usage = row["usage"]
        table.add_row(
            f"{row['step']} {row['name']}",
            *(f"{usage[key]:,}" for key in ("live", "restored", "prefilled", "generated")),
            f"{usage['ttft_ms'] / 1000:.2f} s",
            f"{row['factor']:,.0f} ×" if row["factor"] else "–",
        )
    Console(width=None if sys.stdout.isatty() else TABLE_COLUMNS).print(table)
    cold = rows[-1]["cold_ttft_ms"] / 1000
    print(f"Without its checkpoint the last question waited {cold:.1f} s for its first token.")


def check(rows: list[dict[str, Any]]) -> None:
    """Raises DemoFailed when a step did more work than it should."""
    for row in rows:
        usage, name = row["usage"], f"step {row['step']} ({row['name']})"
        if row["finish"] not in ("complete", "length", "cancelled"):
            raise DemoFailed(f"In {name} the reply ended as {row['finish']}.")
        if row["step"] > 1 and usage["prefilled"] > row["new_tokens"]:
            raise DemoFailed(f"In {name} {usage['prefilled']} tokens were read, {row['new_tokens']} were new.")
        if row["step"] in (2, 3, 4, 5) and usage["plan"] != "live":
            raise DemoFailed(f"In {name} the state was not live: {usage['plan']}, {usage['reason']}.")
    if rows[3]["finish"] != "cancelled":
        raise DemoFailed(f"In step 4 the reply ended as {rows[3]['finish']} before it could be cancelled.")
    last = rows[-1]["usage"]
    if last["restored"] < RESTORED_SHARE_MIN * last["context"]:
        raise DemoFailed(f"After kill -9, {last['restored']} of {last['context']} tokens were restored.")
