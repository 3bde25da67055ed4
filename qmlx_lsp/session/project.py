"""One workspace folder, as long as an editor has it open or a conversation is about it: what of it is private, and
what happens on its disk.

Invariant: what any client wants excluded is excluded for all of them: there is one conversation.
Invariant: the disk is watched while a client works in the folder, and no longer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from qmlx_lsp.session.news import DiskNews, Known
from qmlx_lsp.session.rules import Seen, ignore_rules
from qmlx_lsp.session.session import News
from qmlx_lsp.session.sight import private
from qmlx_lsp.session.watch import Watch
from qmlx_lsp.settings import Watch as WatchSettings
from qmlx_lsp.workspace.changes import Changes
from qmlx_lsp.workspace.ignore import Ignore

Notice = Callable[[str, str | None], None]


class Project:
    """``root`` is a real path. ``on_change(root, changes)`` is called for what happens on its disk, ``notice`` is the
    registry's. ``around()`` are the folders around this one, whose exclusions hold here as well. ``make_watch`` is
    there for tests."""

    def __init__(
        self,
        root: Path,
        settings: WatchSettings,
        on_change: Callable[[Path, Changes], None],
        notice: Notice,
        around: Callable[[], Iterable[Project]] = tuple,
        make_watch: Callable[..., Watch] = Watch,
    ) -> None:
        self.root = root
        self._settings = settings
        self._on_change = on_change
        self._notice = notice
        self._around = around
        self._make_watch = make_watch
        self._of_clients: dict[Hashable, tuple[str, ...]] = {}
        self._held: tuple[tuple[str, ...], Mapping[str, Sequence[str]], Seen, Ignore] | None = None
        self._looking = threading.Lock()  # an ``Ignore`` is for one thread at a time
        self._former: tuple[str, ...] = ()  # what clients wanted that have left
        self._asked: set[asyncio.Future[None]] = set()
        self._workers: set[Hashable] = set()
        self._watch: Watch | None = None
        self._known = Known()
        self._changing: set[asyncio.Task[None]] = set()

    # --- what is private ----------------------------------------------------------------------------------------

    def wait_for(self, settings: asyncio.Future[None]) -> None:
        """A client has been asked for its settings, which may say what is private."""
        self._asked.add(settings)
        settings.add_done_callback(self._asked.discard)

    async def configured(self) -> None:
        """Until every client that was asked has answered, or has taken too long."""
        while asked := [one for project in (self, *self._around()) for one in project._asked]:
            await asyncio.wait(asked)

    async def known_rules(self) -> Ignore:
        """The rules, once every client that was asked has said what is private."""
        await self.configured()
        return self.rules()

    async def known_privacy(self) -> Callable[[str], str | None]:
        """What says, on a thread, why a path below the folder is private; None if it is not. As ``known_rules``, but
        the rules' files are read again only when one of them has changed: it is asked at every keystroke."""
        await self.configured()
        around = {str(project.root): project._patterns() for project in self._around()}
        return partial(self._private, self._patterns(), around)

    def _private(self, patterns: tuple[str, ...], around: Mapping[str, Sequence[str]], path: str) -> str | None:
        with self._looking:
            if self._held is None or self._held[:2] != (patterns, around) or not self._held[2].unchanged():
                seen = Seen()
                self._held = patterns, around, seen, ignore_rules(self.root, patterns, around, seen)
            return private(self.root, path, self._held[3])

    def exclude(self, client: Hashable, patterns: Sequence[str]) -> None:
        """What ``client`` wants excluded from now on, in place of what it wanted before. What clients wanted that
        have left holds no more."""
        before = self._patterns()
        self._of_clients[client] = tuple(patterns)
        self._former = ()
        self._rules_changed(before)

    def has_said(self, client: Hashable) -> bool:
        """Whether ``client`` has said what it wants excluded here."""
        return client in self._of_clients

    def rules(self) -> Ignore:
        """What must not be told, read anew when first asked. An ``Ignore`` is for one thread at a time."""
        around = {str(project.root): project._patterns() for project in self._around()}
        return ignore_rules(self.root, self._patterns(), around)

    def _patterns(self) -> tuple[str, ...]:
        wanted = (self._former, *self._of_clients.values())
        return tuple(dict.fromkeys(pattern for patterns in wanted for pattern in patterns))

    def _rules_changed(self, before: tuple[str, ...]) -> None:
        """The watch has rules of its own, for its thread: with others it begins anew."""
        if self._watch is not None and self._patterns() != before:
            self._close_watch()
            self._open_watch()

    # --- who works here -----------------------------------------------------------------------------------------

    def works_here(self, client: Hashable) -> None:
        """``client`` has something of this folder open: from now on its disk is watched."""
        if client not in self._workers:
            self._workers.add(client)
            if self._watch is None and self._settings.mode != "off":
                self._open_watch()

    def drop_client(self, client: Hashable) -> None:
        """``client`` is gone. What it wanted excluded stays so until another one says what it wants: whoever asks
        from a terminal next does not know of it."""
        self._former = (*self._former, *self._of_clients.pop(client, ()))
        self._workers.discard(client)
        if not self._workers and self._watch is not None:
            self._close_watch()

    def _open_watch(self) -> None:
        self._watch = self._make_watch(
            self.root, self.rules, self._settings, lambda changes: self._on_change(self.root, changes), self._notice
        )
        self._later(self._watch.start())

    def _close_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            self._later(watch.stop())

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._changing.add(task)
        task.add_done_callback(self._changing.discard)

    async def stop(self) -> None:
        """Watch no more, and wait until nothing does."""
        self._close_watch()
        while self._changing:
            await asyncio.wait(set(self._changing))

    # --- what is known of the disk ------------------------------------------------------------------------------

    @property
    def excluded(self) -> Mapping[str, str]:
        """The top-most paths that are left out, as far as they are known, and why; folders end in a slash."""
        return self._watch.excluded if self._watch is not None else {}

    def status(self) -> dict[str, object] | None:
        """How the disk is watched, as JSON data; None if it is not."""
        watch = self._watch
        if watch is None:
            return None
        return {
            "state": watch.state,
            "reason": watch.reason,
            "files": len(watch.index),
            "ready": watch.ready.is_set(),
        }

    def news(self) -> News:
        """What has happened on the disk since it was last told."""
        watch = self._watch
        if watch is None or not watch.ready.is_set():
            return News()
        if self._known.branch is None:
            self._known = replace(self._known, branch=watch.branch)
        return DiskNews(watch, self._settings.burst_files, self._known, self._learned)

    def _learned(self, known: Known) -> None:
        self._known = known
