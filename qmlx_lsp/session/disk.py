"""What happens to a project's files on disk, one step at a time: look at events, look at what they are about.

Events are hints: what is true is what the file system says when it is asked. They may be lost (the system's queue
holds 16,384, and watchfiles says nothing when it overflows), so very many of them, and a watcher that breaks, lead to
a look at everything, and once in a while everything is looked at anyway. Where there are no events, looking at
everything is all there is, at a price that stays below half a percent of a core.

It blocks and belongs to one thread; contents are never read.

Invariant: when the disk is quiet, the index equals the disk, at the latest after the next look at everything.
Invariant: a folder is watched before it is looked through for the last time, so that nothing falls in between.
Invariant: a root that is not there (unplugged, unmounted) is no news about its files: what was known stays.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

from qmlx_lsp.session.eyes import WATCHERS_MAX, Event, Eyes, Look, remedy
from qmlx_lsp.session.pace import Pace
from qmlx_lsp.session.scan import Excluded, Scanner, TooManyFiles, branch_of, git_folder, kind_of
from qmlx_lsp.settings import Watch as WatchSettings
from qmlx_lsp.workspace.changes import NOTHING, Changes, in_flight
from qmlx_lsp.workspace.ignore import UNTOLD_FOLDERS, Ignore
from qmlx_lsp.workspace.index import Index, merged, outermost

State = Literal["starting", "watching", "polling", "off"]

SETTLE_MAX = 5  # rounds of looking through folders that are new

_RULES = frozenset({".gitignore", ".qmlxignore"})


class Disk:
    """``notice(text)`` says once what the user should know, ``notice(None)`` that it is over.

    ``index``, ``state``, ``reason``, ``branch`` and ``excluded`` may be read from any thread.
    """

    def __init__(
        self,
        root: Path,
        ignore: Ignore,
        settings: WatchSettings,
        look: Look,
        notice: Callable[[str | None], None],
        *,
        stopped: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.thread_time,
        recursive: bool = sys.platform == "darwin",
    ) -> None:
        self.root = root
        self.index = Index()
        self.state: State = "starting"
        self.reason = ""
        self.branch: str | None = None
        self._top = os.fspath(root)
        self._ignore = ignore
        self._settings = settings
        self._notice = notice
        self._clock, self._cpu = clock, cpu
        self._recursive = recursive
        self._scanner = Scanner(root, ignore, settings.max_files, stopped)
        self._eyes = Eyes(look, recursive=recursive)
        self._watched: set[str] = set()
        self._git: Path | None = None
        self._pace = Pace(settings.poll_s, settings.step_ms / 1000)
        self._blinked = False  # watchers were made anew, and not everything was looked at since

    @property
    def excluded(self) -> Excluded:
        return self._scanner.excluded

    @property
    def wait_s(self) -> float | None:
        """Seconds until the next step is due; None when there is none."""
        if self.state == "off":
            return None
        return self._pace.wait_s(self._clock(), events=self.state == "watching")

    def begin(self) -> None:
        """The first look at everything, and watch from then on. The index is complete, but for what happens while
        the watchers are made: that is a change, and the first step's."""
        if self._settings.mode == "off":
            self._become("off", "watch.mode is off")
            return
        try:
            self._everything()
        except TooManyFiles as error:
            self._give_up(error)

    def step(self) -> Changes:
        """What has changed since the last step."""
        changes = NOTHING
        try:
            if self.state == "watching":
                changes = self._events()
            if self.state != "off" and self._pace.due(self._clock()):
                changes = changes.merge(self._everything())
        except TooManyFiles as error:
            self._give_up(error)
        return changes

    def close(self) -> None:
        self._eyes.close()

    # --- events -------------------------------------------------------------------------------------------------

    def _events(self) -> Changes:
        try:
            events = self._eyes.events()
        except (OSError, RuntimeError) as error:
            self._broken(error)
            return NOTHING
        changes = self._happened(events)
        self._scanner.check(len(self.index))
        return changes

    def _happened(self, events: set[Event]) -> Changes:
        if self._recursive:
            events = {event for event in events if self._matters(event[1])}
        burst = self._pace.burst(self._clock(), len(events))
        if burst == "none":
            return self._each(events)
        if burst == "goes on":
            return NOTHING
        self._watched.clear()  # a folder may have gone and come, and its watch is dead
        return self._everything()

    def _matters(self, path: str) -> bool:
        parts = path[len(self._top) + 1 :].split("/")
        return UNTOLD_FOLDERS.isdisjoint(parts[:-1]) or self._about_git(path)

    def _about_git(self, path: str) -> bool:
        return self._git is not None and path in {str(self._git / "HEAD"), str(self._git / "info" / "exclude")}

    def _each(self, events: set[Event]) -> Changes:
        changes, tops = NOTHING, set()
        for kind, path in sorted(events):
            if path == self._top or (self._git is None and path == f"{self._top}/.git"):
                self._pace.soon(self._clock())
            elif self._about_git(path):
                self.branch = branch_of(self._git)
                if path.endswith("exclude"):
                    self._pace.soon(self._clock())
            elif path.startswith(f"{self._top}/"):
                relative = path[len(self._top) + 1 :]
                folder, _, name = relative.rpartition("/")
                if name in _RULES and self.index.has_folder(folder):
                    self._ignore.forget()
                    tops.add(folder)
                changes = changes.merge(self._one(relative, name, tops, there=kind == 1))
        return changes.merge(self._look_through(outermost(tops))) if tops else changes

    def _one(self, path: str, name: str, tops: set[str], *, there: bool) -> Changes:
        """What one path is now. Folders to look through are added to ``tops``."""
        if not self.index.has_folder(path.rpartition("/")[0]):
            return NOTHING
        kind, seen = kind_of(f"{self._top}/{path}")
        if kind == "unknown":
            return NOTHING
        if kind == "folder":
            reason = self._ignore.excluded(f"{path}/")
            if reason is None and (there or not self.index.has_folder(path)):
                self._watched = {
                    known for known in self._watched if known != path and not known.startswith(f"{path}/")
                }
                tops.add(path)
            if reason is None:
                return self.index.discard(path) if path in self.index else NOTHING  # it was a file
            self.excluded.note(f"{path}/", reason)
        elif kind == "file" and not in_flight(name):
            assert seen is not None
            reason = self._ignore.excluded(path)
            if reason is None:
                gone = self.index.discard(path) if self.index.has_folder(path) else NOTHING
                return gone.merge(self.index.put(path, seen))
            self.excluded.note(path, reason)
        return self.index.discard(path)

    # --- looking ------------------------------------------------------------------------------------------------

    def _everything(self) -> Changes:
        began = self._cpu()
        self._ignore.forget()
        git = git_folder(self.root)
        if git != self._git:
            self._git = git
            self._watched.clear()
        self.branch = branch_of(git)
        changes = self._look_through([""])
        cost = self._cpu() - began
        if self.state in ("starting", "polling") and self._root_is_there():
            if self._settings.mode == "poll":
                self._become("polling", "watch.mode is poll")
            elif self._pace.may_make(self._clock()):
                self._open()
        self._pace.looked(self._clock(), cost, events=self.state == "watching")
        if self._blinked:
            self._pace.made(self._clock())
        return changes

    def _look_through(self, tops: Iterable[str]) -> Changes:
        """Look through folders; those that are new get watched and are looked through again."""
        changes = NOTHING
        for _ in range(SETTLE_MAX):
            changes = changes.merge(merged([self._scan(top) for top in tops]))
            new = [folder for folder in self.index.folders() if folder not in self._watched]
            if self.state != "watching" or not new:
                break
            self._watch_also(new)
            if self._blinked:
                break  # the next step looks at everything
            tops = outermost(new)
        return changes

    def _scan(self, top: str) -> Changes:
        found: set[str] = set()
        parts = []
        self._blinked = self._blinked and bool(top)
        for folder, files in self._scanner.scan(top):
            found.add(folder)
            if files is None:
                found.update(self.index.folders(folder))
            elif self.state == "starting":
                self.index.fill(folder, files)
            else:
                parts.append(self.index.update(folder, files))
        if not top and top not in found:
            self._eyes.close()
            self._watched.clear()
            self._become("polling", "the folder is not there or cannot be read")
            return NOTHING
        parts.append(self.index.keep(top, found))
        self._watched.intersection_update(self.index.folders())
        return merged(parts)

    def _root_is_there(self) -> bool:
        return os.access(self._top, os.R_OK | os.X_OK) and kind_of(self._top)[0] == "folder"

    # --- watchers -----------------------------------------------------------------------------------------------

    def _folders(self, folders: Iterable[str]) -> list[str]:
        return [f"{self._top}/{folder}" if folder else self._top for folder in folders]

    def _open(self) -> None:
        """Watch everything anew, or say why not."""
        folders = self.index.folders()
        paths = [self._top] if self._recursive else self._folders(folders)
        if self._git is not None:
            outside = not self._recursive or self._git.parent != self.root
            paths += [str(one) for one in (self._git, self._git / "info") if outside and one.is_dir()]
        try:
            self._eyes.open(paths)
        except (OSError, RuntimeError) as error:
            self._blind(error)
            return
        self._watched = set(folders)
        self._blinked = True
        self._pace.made(self._clock())
        self._become("watching", "")
        self._notice(None)

    def _watch_also(self, folders: list[str]) -> None:
        if len(folders) == len(self.index.folders()) or len(self._eyes) > 2 * WATCHERS_MAX:
            self._open()
            return
        try:
            self._eyes.also(self._folders(folders))
        except (OSError, RuntimeError) as error:
            self._blind(error)
            return
        self._watched.update(folders)

    def _broken(self, error: Exception) -> None:
        """A watcher that worked does not any more: one file's name in bytes that are no text is enough for that."""
        self._eyes.close()
        self._watched.clear()
        self._become("polling", f"the system's events ended: {error}")
        self._pace.broke(self._clock())

    def _blind(self, error: Exception) -> None:
        """No watcher can be made: look instead, and say so, unless it is only that folders come and go too fast."""
        if isinstance(error, OSError) and error.errno == errno.EAGAIN:
            self._broken(error)
            return
        self._eyes.close()
        self._watched.clear()
        self._become("polling", remedy(error))
        self._pace.refused(self._clock())
        self._notice(f"Changes in {self._top} are looked for now and then, not noticed at once: {self.reason}.")

    def _give_up(self, error: TooManyFiles) -> None:
        self._eyes.close()
        self.index = Index()
        self._become("off", str(error))
        self._notice(str(error))

    def _become(self, state: State, reason: str) -> None:
        self.state, self.reason = state, reason
