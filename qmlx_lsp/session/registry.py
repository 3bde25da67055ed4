"""All conversations of this daemon, the model they share, and what editors have open.

The one door for ``lsp``: documents come in synchronously, questions are awaited, everything that goes out is plain
data.

Invariant: a document's change is applied before the handler that brought it returns, so that a question sees every
change that was sent before it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

from qmlx_lsp.errors import QuestionError
from qmlx_lsp.session import context, forgetting, overview
from qmlx_lsp.session.event import Answer, Ask, Job, Step
from qmlx_lsp.session.idle import IdleWork
from qmlx_lsp.session.inline import Inline
from qmlx_lsp.session.live_states import LiveStates
from qmlx_lsp.session.loading import Loader, Phase, seen
from qmlx_lsp.session.project import Project
from qmlx_lsp.session.results import Results
from qmlx_lsp.session.running import Running
from qmlx_lsp.session.session import Services, Session, open_session
from qmlx_lsp.session.sight import UNSAVED, relative
from qmlx_lsp.session.tools import Tools
from qmlx_lsp.session.turn import CANCELLED_EARLY, run_turn
from qmlx_lsp.session.watch import Watch
from qmlx_lsp.settings import GIB
from qmlx_lsp.storage.answers import Answers
from qmlx_lsp.transcript.entry import Finish
from qmlx_lsp.workspace.cells import Notebooks
from qmlx_lsp.workspace.changes import Changes
from qmlx_lsp.workspace.mirror import Mirror, canonical_uri, uri_to_path
from qmlx_lsp.workspace.notebook import shown_as_text

logger = logging.getLogger(__name__)


class Registry:
    """Everything that lives as long as the daemon. Used on the event loop only."""

    def __init__(self, services: Services, loader: Loader) -> None:
        self.services = services
        self.loader = loader
        self.mirror = Mirror()
        self.notebooks = Notebooks(self.mirror)
        self._projects: dict[Path, Project] = {}
        self.make_watch: Callable[..., Watch] = Watch
        self.leave: Callable[[], object] = lambda: None  # ends the process that all this lives in, in good order
        self._sessions: dict[Path, asyncio.Task[Session]] = {}
        self._forgetting: dict[Path, asyncio.Task[dict[str, Any]]] = {}
        self.running = Running()
        self.tools = Tools(services.settings.tools)
        self.answers: Answers | None = None  # where editors without a panel are shown answers
        self._notice_listeners: list[Callable[[str], None]] = []
        self._amiss: dict[str, str] = {}
        self.live_states = LiveStates(lambda: self.sessions, services.settings.memory.live_gib * GIB)
        self.inline = Inline(
            services, self.session, lambda root: self.project(root).known_privacy(),
            lambda one: one in self.sessions, self.live_states.bound,
        )  # fmt: skip
        self.idle = IdleWork(
            services.settings, lambda: self.sessions, self.session, self.live_states.bound, self.inline.warm
        )
        self._results = Results(self.session, lambda: self.sessions, self.idle.interrupt, self._rest_again)

    # --- what editors are told ----------------------------------------------------------------------------------

    def listen_notices(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call ``listener`` with what is amiss now, and with every notice from now on; returns how to stop."""
        self._notice_listeners.append(listener)
        for text in self._amiss.values():
            listener(text)
        return lambda: self._notice_listeners.remove(listener)

    def notice(self, about: str, text: str | None) -> None:
        """Tell every editor once what is amiss ``about`` something; None says that it is well again, silently."""
        if text is None:
            self._amiss.pop(about, None)
        elif about not in self._amiss:
            self._amiss[about] = text
            logger.warning("%s", text)
            for listener in tuple(self._notice_listeners):
                listener(text)

    # --- what editors have open ---------------------------------------------------------------------------------

    def open_texts(self, root: Path) -> dict[str, str]:
        """Texts of the open documents below ``root`` by relative path, the latest used first; and of those that have
        no file yet, by URI.

        A document whose text is not known for certain (changes came without their beginning) is left out. A
        notebook is its script.
        """
        texts: dict[str, str] = {}
        for uri, text in self.notebooks.texts():
            file = uri_to_path(uri)
            path = relative(root, file) if file is not None else canonical_uri(uri)
            if path is not None and (file is not None or path.startswith(UNSAVED)):
                shown = shown_as_text(path, text)
                if shown is not None:
                    texts.setdefault(path, shown)
        return texts

    def project(self, root: Path) -> Project:
        """The folder ``root``, a real path."""
        if root not in self._projects:
            self._projects[root] = Project(
                root, self.services.settings.watch, self._on_disk_change, self.notice,
                lambda: [self._projects[above] for above in root.parents if above in self._projects], self.make_watch,
            )  # fmt: skip
        return self._projects[root]

    def stirred(self, client: Hashable, root: Path, *, typing: bool = False) -> None:
        """The user of ``client`` does something in ``root``."""
        self.project(root).works_here(client)
        self.idle.stirred(root, typing=typing)

    def _on_disk_change(self, root: Path, changes: Changes) -> None:
        """What the model was told may have changed: it is looked at when nothing happens any more."""
        session = next((s for s in self.sessions if s.root == root), None)
        if session is not None and not session.told.keys().isdisjoint(changes.changed | changes.removed):
            self.idle.noticed(root)

    # --- questions ----------------------------------------------------------------------------------------------

    async def ask(self, root: Path, ask: Ask, job: Job) -> Answer:
        """Answer ``ask`` in the conversation of ``root``. Turns of one conversation wait for each other.

        Raises:
            QmlxError: one line; nothing was recorded.
        """
        self._check(ask)
        answer: Answer | None = None
        self.running.begin(job, root)
        self.idle.interrupt()
        try:
            job.on_progress(Step.WAITING, 0, 0)
            session = await job.unless_cancelled(self.session(root))
            if session is None or await job.unless_cancelled(session.lock.acquire()) is None:
                answer = Answer(None, "", Finish.CANCELLED, CANCELLED_EARLY)
                return answer
            try:
                session.last_used = time.monotonic()
                answer = await run_turn(session, ask, job)
                self.live_states.bound(session)
                return answer
            finally:
                session.lock.release()
        finally:
            self.running.end(job, answer)
            self._rest_again()

    async def tell_result(self, root: Path, text: str) -> int:
        """Append the block ``text`` to the conversation of ``root``; returns its tokens. Raises QmlxError."""
        return await self._results.tell(root, text)

    def _check(self, ask: Ask) -> None:
        if not ask.text.strip():
            raise QuestionError("The question is empty: type what you want to know.")
        limit = self.services.settings.context.question_max_kb
        if len(ask.text.encode("utf-8", "replace")) > limit * 1024:
            raise QuestionError(
                f"The question has {len(ask.text):,} characters, more than {limit} KiB: ask about a file instead, or "
                "raise context.question_max_kb."
            )
        if ask.max_tokens is not None and ask.max_tokens < 1:
            raise QuestionError(f"maxTokens is {ask.max_tokens}, but must be 1 or more.")

    async def session(self, root: Path) -> Session:
        """The session of ``root``; the model is loaded first if need be.

        Raises:
            ModelError: the model cannot be loaded.
            StoreError: the conversation log cannot be read.
        """
        loading = self.loader.start()
        await self.project(root).configured()
        model = await asyncio.shield(loading)
        if model.info.not_persisted is not None and self.services.store is not None:
            why = f"{model.info.name} starts cold after every restart: {model.info.not_persisted}"
            self.notice("not persisted", f"States of this model are not kept on disk. {why}.")
        while root in self._forgetting:
            await asyncio.wait({self._forgetting[root]})
        task = self._sessions.get(root)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            project = self.project(root)
            opening = open_session(
                root, self.services, model, project.rules, lambda: self.open_texts(root), project.news
            )
            task = asyncio.create_task(opening)
            task.add_done_callback(seen)
            self._sessions[root] = task
        return await asyncio.shield(task)

    # --- what can be read ---------------------------------------------------------------------------------------

    @property
    def sessions(self) -> Sequence[Session]:
        """The sessions that are open in this process."""
        done = (task for task in self._sessions.values() if task.done() and not task.cancelled())
        return [task.result() for task in done if task.exception() is None]

    async def conversation(self, root: Path, limit: int | None) -> dict[str, Any]:
        """The newest ``limit`` turns of ``root`` over all epochs. See ``overview``. Needs no model."""
        return await overview.conversation(self.services, root, limit)

    async def context(self, root: Path, file: str | None) -> dict[str, Any]:
        """What the conversation of ``root`` knows of its files, or the text held for one of them. See ``context``."""
        model = self.loader.loaded
        codec = model.renderer.codec if model is not None else None
        count = None if codec is None else lambda text: len(codec.encode_data(text))
        project = self.project(root)
        place = context.Place(
            root, self.open_texts(root), project.rules(), project.excluded, count, project.news().homes
        )
        if file is not None:
            return await context.held(self.services, place, file)
        return await context.context(self.services, place)

    async def status(self, clients: int) -> dict[str, Any]:
        """Model, live conversations, store, queue and last usage, as JSON data."""
        return await overview.status(
            self.services, self.loader, self.sessions, lambda root: self.project(root).status(),
            lambda: len(self.running), clients, self.inline.status(),
        )  # fmt: skip

    # --- beginning anew and forgetting ----------------------------------------------------------------------------

    async def new_conversation(self, root: Path) -> dict[str, Any]:
        """Begin a new, empty epoch of ``root``, once the turn that runs has ended. See ``forgetting``."""
        self.idle.interrupt()
        work = asyncio.ensure_future(forgetting.begin_anew(self.services, root, self._sessions.get(root)))
        work.add_done_callback(lambda _work: self._rest_again())
        return await asyncio.shield(work)

    async def forget(self, root: Path) -> dict[str, Any]:
        """Delete the conversation of ``root`` for good, with what is running in it. See ``forgetting``."""
        if root not in self._forgetting:
            opening = self._sessions.pop(root, None)
            for job in self.running.within(root):
                job.cancel()
            task = asyncio.create_task(forgetting.forget(self.services, root, opening, self.idle.quiet))
            task.add_done_callback(seen)
            task.add_done_callback(lambda _task: self._forgotten(root))
            self._forgetting[root] = task
        return await asyncio.shield(self._forgetting[root])

    def _forgotten(self, root: Path) -> None:
        del self._forgetting[root]
        self._rest_again()

    def _rest_again(self) -> None:
        """Go on with what was broken off, unless somebody waits."""
        if not self.running:
            self.idle.begin()

    # --- the end ------------------------------------------------------------------------------------------------

    def drop_client(self, client: Hashable) -> None:
        """An editor has gone: its open documents are no longer the truth."""
        self.notebooks.drop_client(client)
        self.mirror.drop_client(client)
        self.inline.drop_client(client)
        for project in self._projects.values():
            project.drop_client(client)

    @property
    def busy(self) -> bool:
        return (
            bool(self.running or self._forgetting or self._results.busy)
            or self.loader.progress.phase is Phase.LOADING
        )

    async def stop(self, timeout_s: float) -> None:
        """Cancel what runs and wait until it is recorded, at most ``timeout_s`` seconds."""
        self.loader.closing = True
        ending = asyncio.create_task(self.tools.stop(timeout_s))  # while turns end
        self.inline.cancel()
        self.running.cancel()
        deadline = time.monotonic() + timeout_s
        await self.running.rested(timeout_s)
        await ending
        await self._results.settled(max(0.0, deadline - time.monotonic()))
        await self.idle.stop(max(0.0, deadline - time.monotonic()))
        await asyncio.gather(*(project.stop() for project in self._projects.values()))


def root_for(path: str, roots: Sequence[Path]) -> Path:
    """The deepest of ``roots`` that contains ``path``.

    Raises:
        QuestionError: none does.
    """
    holding = [root for root in roots if relative(root, path) is not None]
    if not holding:
        known = ", ".join(str(root) for root in roots) or "none is open"
        raise QuestionError(f"{path} is outside every workspace folder ({known}): open a folder that contains it.")
    return max(holding, key=lambda root: len(root.parts))
