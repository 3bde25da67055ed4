"""Our own daemon, as an editor sees it: questions go to it, and it keeps the conversation itself.

Everything happens in a scratch home and in scratch projects, one for each conversation: the user's own are not
touched. A context is a file of the project that is open in the editor; an edit of it is a change of that document.
What a client of a stateless server does to the history cannot be done here, for a client sends none; it is reported
as impossible. Reading ahead is off, so that a cold turn is cold, and a file may take as much of the model's context
as there is; everything else is as it comes.

Invariant: only processes that were started here are ended, by their pid.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.cachecheck.context import edited
from benchmarks.cachecheck.conversation import (
    CUT,
    PREFILL_CUT,
    Change,
    CheckError,
    Context,
    Impossible,
    Restart,
    Turn,
)
from benchmarks.cachecheck.progress import Point, longest_pass
from qmlx_lsp.cli.client import REQUEST_CANCELLED, Client, RequestError
from qmlx_lsp.daemon.socket import ask_daemon, running, stop
from qmlx_lsp.errors import DaemonError, QmlxError
from qmlx_lsp.paths import Paths

GIB = 1 << 30
POLL_S = 0.05
PROGRESS = "reading"
"""The token of the progress that is asked for."""
GONE_S = 30.0
"""Seconds a killed daemon has to be gone."""

_NO_HISTORY = "the daemon keeps the history; a client sends none that could differ"
IMPOSSIBLE = {
    Change.REPEAT: "a question that is asked again is a new one behind the first",
    Change.DATE: "the system text is the daemon's own and has no date",
    Change.TOOL_ORDER: "a client declares no tools",
    Change.NO_TOOLS: "a client declares no tools",
}


class Own:
    """A daemon of its own on ``model``: a folder, ``scripted``, or whatever the settings take as ``model.name``.
    ``environment`` adds settings (``QMLX_…``)."""

    name = "qmlx"

    def __init__(
        self, model: str, *, timeout_s: float = 600.0, environment: dict[str, str] | None = None,
        clock: Callable[[], float] = time.perf_counter, sleep: Callable[[float], None] = time.sleep,
    ) -> None:  # fmt: skip
        self._base = Path(tempfile.mkdtemp(prefix="qmlx-"))
        self._home = self._base / "home"
        self._home.mkdir()
        self._model = model
        self._environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("QMLX_") or key == "QMLX_BLAS"},
            "QMLX_HOME": str(self._home), "QMLX_MODEL": model, "QMLX_READ_AHEAD": "false",
            "QMLX_SHARE": "0.9", "QMLX_FILE_SHARE": "0.9", "QMLX_FREE_FLOOR_GIB": "0", **(environment or {}),
        }  # fmt: skip
        self._timeout_s = timeout_s
        self.clock = clock
        self._sleep = sleep
        self.generation = 0
        self._connector: subprocess.Popen[bytes] | None = None
        self._client: Client | None = None

    def about(self) -> dict[str, Any]:
        store = self.client.request("qmlx/status", {})["store"]
        return {"kind": "qmlx", "model": Path(self._model).name, "store": store}  # a path is nobody's business

    @property
    def client(self) -> Client:
        """Connected to a daemon whose model is there."""
        if self._client is None:
            self._connector = subprocess.Popen(
                [sys.executable, "-m", "qmlx_lsp", "--stdio"], env=self._environment, cwd=self._base,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
            self._client = Client.over_stdio(self._connector)
            self._client.initialize([])
            self.generation += 1
            self._until_ready(self._client)
        return self._client

    def _until_ready(self, client: Client) -> None:
        deadline = self.clock() + self._timeout_s
        while (model := client.request("qmlx/status", {})["model"])["state"] != "ready":
            if model["state"] == "failed" or self.clock() > deadline:
                raise CheckError(f"The daemon has no model: {model.get('error') or model['state']}.")
            self._sleep(POLL_S)

    def new(self, name: str, context: Context | None, *, tools: bool = False) -> Kept:
        if tools:
            raise Impossible(IMPOSSIBLE[Change.TOOL_ORDER])
        root = self._base / "projects" / name
        root.mkdir(parents=True)
        if context is not None:
            (root / f"{context.name}.py").write_text(context.text, encoding="utf-8")
        return Kept(self, root, context)

    def request(self, method: str, params: Any, on_notify: Callable[[str, Any], None], cut_at: float | None) -> Any:
        """One request; cancelled after ``cut_at`` seconds, given up after the timeout."""
        client, connector = self.client, self._connector
        assert connector is not None
        client.on_notify = on_notify
        timers = [threading.Timer(self._timeout_s, connector.kill)]
        if cut_at is not None:
            timers.append(threading.Timer(cut_at, client.cancel))
        for timer in timers:
            timer.daemon = True
            timer.start()
        try:
            return client.request(method, params)
        except DaemonError as error:
            raise CheckError(f"The daemon did not answer within {self._timeout_s:g} s, or ended: {error}") from error
        finally:
            for timer in timers:
                timer.cancel()

    def restart(self, how: Restart) -> None:
        if how is Restart.KILL:
            found = ask_daemon(self._paths, "status")
            if found is None:
                raise CheckError("The daemon has ended by itself.")
            os.kill(int(found["pid"]), signal.SIGKILL)
            deadline = self.clock() + GONE_S
            while running(self._paths) and self.clock() < deadline:
                self._sleep(POLL_S)
        self._disconnect()
        stop(self._paths)

    def limit_store(self, share: float) -> None:
        self.restart(Restart.ORDERLY)
        stored = sum(file.stat().st_size for file in self._paths.cache.rglob("*") if file.is_file())
        self._environment["QMLX_QUOTA_GIB"] = f"{stored * share / GIB:.9f}"

    def close(self) -> None:
        with contextlib.suppress(QmlxError):  # what there is to say has been said; the scratch home goes
            self._disconnect()
            if self._paths.socket.exists():
                stop(self._paths)
        shutil.rmtree(self._base, ignore_errors=True)

    def _disconnect(self) -> None:
        if self._connector is not None:
            self._connector.kill()
            self._connector.communicate()
        self._connector = self._client = None

    @property
    def _paths(self) -> Paths:
        return Paths(*(self._home / name for name in ("config", "data", "cache", "run", "log")))


class Kept:
    """A conversation that the daemon keeps: a project, and the file it is about."""

    def __init__(self, daemon: Own, root: Path, context: Context | None) -> None:
        self._daemon = daemon
        self._root = root
        self._context = context
        self._text = "" if context is None else context.text
        self._opened_in = -1
        self._version = 1
        self.progress: list[Point] = []  # of the last turn's prefill

    @property
    def _file(self) -> Path | None:
        return None if self._context is None else self._root / f"{self._context.name}.py"

    def turn(
        self, question: str, *, max_tokens: int, cut_after: int | None = None, cut_prefill_at: float | None = None,
        cut_prefill_share: float | None = None,
    ) -> Turn:  # fmt: skip
        """``cut_prefill_share``: cancelled while the pass is computed that goes beyond this share of what is read."""
        self._open()
        params: dict[str, Any] = {
            "text": question, "root": str(self._root), "maxTokens": max_tokens, "workDoneToken": PROGRESS
        }  # fmt: skip
        if self._file is not None:
            params["textDocument"] = {"uri": self._file.as_uri()}
        began = self._daemon.clock()
        watch = _Watch(self._daemon, began, cut_after, cut_prefill_share)
        self.progress = watch.progress
        try:
            answer = self._daemon.request("qmlx/ask", params, watch, cut_prefill_at)
        except RequestError as error:
            if error.code != REQUEST_CANCELLED:
                raise
            answer = None
        total = self._daemon.clock() - began
        ttft = None if watch.first is None else watch.first - began
        if answer is None and watch.first is None:
            return Turn(None, None, None, total, "", PREFILL_CUT, None)
        finish = ""
        if answer is None:
            told = {"root": str(self._root), "limit": 1}
            answer = self._daemon.client.request("qmlx/conversation", told)["turns"][-1]
            finish = CUT
        usage = answer["usage"]
        cached = usage["context"] - usage["prefilled"]
        return Turn(
            usage["context"], cached, ttft, total, answer["text"], finish or answer["finish"], usage["generated"]
        )  # fmt: skip

    def changed(self, question: str, change: Change, *, max_tokens: int) -> Turn:
        if change is not Change.EARLY_EDIT or self._file is None:
            raise Impossible(IMPOSSIBLE.get(change, _NO_HISTORY))
        self._open()
        self._text = edited(self._text)
        self._version += 1
        self._daemon.client.notify("textDocument/didChange", {
            "textDocument": {"uri": self._file.as_uri(), "version": self._version},
            "contentChanges": [{"text": self._text}],
        })  # fmt: skip
        return self.turn(question, max_tokens=max_tokens)

    def measured(self, cut: Turn, follow_up: Turn) -> Turn:
        return cut

    def _open(self) -> None:
        """In the editor that is connected now."""
        client = self._daemon.client
        if self._file is None or self._opened_in == self._daemon.generation:
            return
        self._opened_in = self._daemon.generation
        document = {
            "uri": self._file.as_uri(), "languageId": "python", "version": self._version, "text": self._text
        }  # fmt: skip
        client.notify("textDocument/didOpen", {"textDocument": document})


class _Watch:
    """Sees the reply begin, and cuts it after some pieces, or the prefill at a share of it."""

    def __init__(self, daemon: Own, began: float, cut_after: int | None, cut_prefill_share: float | None) -> None:
        self._daemon = daemon
        self._began = began
        self._cut_after = cut_after
        self._share = cut_prefill_share
        self._pieces = 0
        self.progress: list[Point] = []
        self.first: float | None = None

    def __call__(self, method: str, params: Any) -> None:
        if method == "$/progress" and (percent := params["value"].get("percentage")) is not None:
            self._read(percent / 100)
        if method != "qmlx/stream" or not params["delta"]:
            return
        if self.first is None:
            self.first = self._daemon.clock()
        self._pieces += 1
        if self._pieces == self._cut_after:
            self._daemon.client.cancel()

    def _read(self, share: float) -> None:
        """``share`` of the prefill is done, after each pass; the longest so far says how far the next one goes, and
        how long it takes: the cancel comes in its middle."""
        self.progress.append((self._daemon.clock() - self._began, share))
        seconds, step = longest_pass(self.progress)
        if self._share is not None and share + step > self._share:
            self._share = None
            later = threading.Timer(seconds / 2, self._daemon.client.cancel)
            later.daemon = True
            later.start()
