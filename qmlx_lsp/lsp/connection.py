"""One editor's connection: its folders, its encoding, the work it has running.

Invariant: when the connection ends, its open documents leave the mirror and its running work is cancelled and
recorded; other connections notice nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lsprotocol import types

from qmlx_lsp.errors import QuestionError
from qmlx_lsp.lsp.checked import Checked
from qmlx_lsp.lsp.client import Client
from qmlx_lsp.session.event import Job
from qmlx_lsp.session.registry import Registry, root_for
from qmlx_lsp.session.sight import relative
from qmlx_lsp.workspace.mirror import canonical_uri, uri_to_path
from qmlx_lsp.workspace.positions import Encoding

T = TypeVar("T")


ROOTS_KEPT = 1_000  # documents of which it is remembered in which folder they lie


@dataclass(frozen=True, slots=True)
class InlineOptions:
    """What an editor's settings say of completions; None where the daemon's own hold. ``in_list``: whether an editor
    that does not know inline completions gets them in its list."""

    enable: bool | None = None
    debounce_ms: int | None = None
    max_tokens: int | None = None
    max_lines: int | None = None
    in_list: bool = True


@dataclass(frozen=True, slots=True)
class Held:
    """By what an editor can cancel a job: its id, and the token of its progress."""

    job_id: str
    work_done_token: str | int | None


class Connection:
    """State of one connection, hashable by identity. ``clients()`` counts the connections of the daemon.

    ``trusted``: whether tools may run here. An editor that knows of trust says so; one that says nothing is taken to
    trust, because a tool only ever runs when its user asks for it by name. ``exclude``: patterns of what its user
    wants left out.
    """

    def __init__(self, registry: Registry, protocol: Any, clients: Callable[[], int]) -> None:
        self.registry = registry
        self.protocol = protocol
        self.clients = clients
        self.roots: list[Path] = []
        self._root_of: dict[str, Path | None] = {}
        self._paths: dict[str, str | None] = {}
        self.encoding = Encoding.UTF16
        self.capabilities: types.ClientCapabilities | None = None
        self.client = Client()
        self.process_id: int | None = None
        self.folder: str | None = None  # that the editor was started in
        self.trusted = True
        self.exclude: list[str] = []
        self.checked = Checked()
        self.inline = InlineOptions()
        self.editing = asyncio.Lock()  # edits of ours go out one after another
        self.followed: list[Callable[[], None]] = []  # how to stop being told what happens
        self.background: set[asyncio.Task[Any]] = set()
        self._jobs: dict[Job, Held] = {}
        self._turns: set[asyncio.Task[Any]] = set()
        self._watching: dict[str, list[Callable[[], None]]] = {}

    @property
    def job_id(self) -> str:
        """The running request's own id as text, by which its editor knows the stream. Inside a handler only."""
        return str(self.protocol.msg_id)

    def root_of(self, uri: str) -> Path | None:
        """The workspace folder that a document lies in; None when it lies in none, or is no file."""
        if uri not in self._root_of:  # asked at every keystroke, and finding it out looks at the disk
            if len(self._root_of) >= ROOTS_KEPT:  # a long day opens many documents
                self._root_of.clear()
            path = uri_to_path(uri)
            try:
                self._root_of[uri] = None if path is None else root_for(path, self.roots)
            except QuestionError:
                self._root_of[uri] = None
        return self._root_of[uri]

    def place_of(self, uri: str) -> tuple[Path, str] | None:
        """The workspace folder that a file lies in, and its path there; None when it lies in none, or is no file."""
        root, path = self.root_of(uri), uri_to_path(uri)
        if root is None or path is None:
            return None
        if uri not in self._paths:
            if len(self._paths) >= ROOTS_KEPT:
                self._paths.clear()
            self._paths[uri] = relative(root, path)
        found = self._paths[uri]
        return None if found is None else (root, found)

    def set_roots(self, roots: list[Path]) -> None:
        """The workspace folders from now on."""
        for root in set(self.roots) - set(roots):
            self.registry.project(root).drop_client(self)
        self.roots = roots
        self._root_of.clear()
        self._paths.clear()

    def adopt(self, root: Path) -> None:
        """A request is about ``root``, which need be none of the editor's folders: what its user wants left out
        everywhere holds there as well."""
        project = self.registry.project(root)
        if self.exclude and root not in self.roots and not project.has_said(self):
            project.exclude(self, self.exclude)

    def watch(self, uri: str, seen: Callable[[], None]) -> Callable[[], None]:
        """Call ``seen`` behind every change of this editor's copy of the document, its end included; returns how to
        stop."""
        key = canonical_uri(uri)
        watchers = self._watching.setdefault(key, [])
        watchers.append(seen)

        def stop() -> None:
            watchers.remove(seen)
            if not watchers and self._watching.get(key) is watchers:
                del self._watching[key]

        return stop

    def changed(self, uri: str) -> None:
        """This editor's copy of the document has changed."""
        for seen in tuple(self._watching.get(canonical_uri(uri), ())):
            seen()

    def own(self, job: Job, job_id: str, work_done_token: str | int | None) -> None:
        self._jobs[job] = Held(job_id, work_done_token)

    def disown(self, job: Job) -> None:
        self._jobs.pop(job, None)

    def cancel_by_token(self, token: str | int) -> None:
        """The user pressed cancel on a progress of ours."""
        for job, held in self._jobs.items():
            if held.work_done_token == token:
                job.cancel()

    def cancel_jobs(self, job_id: str | None) -> list[str]:
        """Cancel the job of that id, or all; returns the ids of those that ran."""
        found = [job for job, held in self._jobs.items() if job_id in (None, held.job_id) and not job.cancelled]
        for job in found:
            job.cancel()
        return [self._jobs[job].job_id for job in found]

    async def see_through(self, turn: asyncio.Task[T], job: Job) -> T:
        """Await ``turn``. Cancelled, cancel ``job``, wait until the turn has been recorded, and raise.

        However often the request is cancelled meanwhile, the turn itself never is: it ends by its job alone.
        """
        self._turns.add(turn)
        turn.add_done_callback(self._turns.discard)
        try:
            return await asyncio.shield(turn)
        except asyncio.CancelledError:
            job.cancel()
            while not turn.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait({turn})
            raise

    def run(self, work: Any) -> None:
        """Keep a background task until it ends."""
        task = asyncio.ensure_future(work)
        self.background.add(task)
        task.add_done_callback(self.background.discard)

    @property
    def shows_progress(self) -> bool:
        window = self.capabilities.window if self.capabilities else None
        return bool(window and window.work_done_progress)

    @property
    def knows_inline(self) -> bool:
        """Whether the editor shows inline completions by itself."""
        document = self.capabilities.text_document if self.capabilities else None
        return bool(document and document.inline_completion)

    async def close(self) -> None:
        """See the module's invariant."""
        for stop in self.followed:
            stop()
        running = self.protocol.cancel_requests()
        for task in tuple(self.background):
            task.cancel()
        for job in tuple(self._jobs):
            job.cancel()
        waits = {*running, *self.background, *self._turns}
        if waits:
            await asyncio.wait(waits)
        self.registry.drop_client(self)
