"""The disk beside the event loop: a thread that looks (``Disk``), and what it has found for whoever asks.

Only paths are found here. Whoever tells the model reads the files and compares: a save of the editor's or of our own
is a change here and no news there.

Invariant: nothing here blocks the event loop; looking at the disk is the thread's.
Invariant: what was ``pending`` stays so until it is ``told``, however often it is asked for in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path

import watchfiles

from qmlx_lsp.session.disk import Disk, State
from qmlx_lsp.session.eyes import Event, Look
from qmlx_lsp.session.scan import Stopped
from qmlx_lsp.settings import Watch as WatchSettings
from qmlx_lsp.workspace.changes import NOTHING, Changes
from qmlx_lsp.workspace.ignore import Ignore
from qmlx_lsp.workspace.index import Index

logger = logging.getLogger(__name__)
logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it logs the paths of private files

JOIN_S = 5.0  # seconds to wait for the thread at the end; it dies with the process


def system_events(*folders: str, recursive: bool) -> Generator[set[Event], None, None]:
    """The real ``Look``. The waits of a millisecond are the shortest there are: the thread sleeps elsewhere."""
    for changes in watchfiles.watch(
        *folders, recursive=recursive, watch_filter=None, yield_on_timeout=True, raise_interrupt=False,
        debounce=1, step=1, rust_timeout=1, force_polling=False, ignore_permission_denied=False,
    ):  # fmt: skip
        yield {(int(kind), path) for kind, path in changes}


@dataclass(frozen=True, slots=True)
class Pending:
    """``changes`` since the last ``told``; ``upto`` says to ``told`` which those were."""

    changes: Changes
    upto: int


class Watch:
    """``on_change(changes)`` is called on the event loop for every step that found some, after ``ready``.

    ``ignore`` makes the rules for the thread that looks. ``notice(about, text)`` is ``Registry.notice``.
    """

    def __init__(
        self,
        root: Path,
        ignore: Callable[[], Ignore],
        settings: WatchSettings,
        on_change: Callable[[Changes], None],
        notice: Callable[[str, str | None], None],
        look: Look = system_events,
    ) -> None:
        self.root = root
        self.ready = asyncio.Event()
        self._on_change = on_change
        self._notice = notice
        self._stop = threading.Event()
        self._disk = Disk(root, ignore(), settings, look, self._say, stopped=self._stop.is_set)
        self._thread = threading.Thread(target=self._run, name="qmlx-watch", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._parts: list[tuple[int, Changes]] = []
        self._number = self._asked = 0  # of the newest part, and of the newest when somebody last asked

    # --- what is known ------------------------------------------------------------------------------------------

    @property
    def index(self) -> Index:
        """The files there are; complete once ``ready`` is set, empty when the state is "off"."""
        return self._disk.index

    @property
    def state(self) -> State:
        return self._disk.state

    @property
    def reason(self) -> str:
        """Why the state is not "watching"."""
        return self._disk.reason

    @property
    def branch(self) -> str | None:
        """The branch that is checked out, where there is one."""
        return self._disk.branch

    @property
    def excluded(self) -> Mapping[str, str]:
        """Top-most excluded paths, folders with a slash at their end, and why; not more than some."""
        return dict(self._disk.excluded.paths)

    @property
    def pending(self) -> Pending:
        """The net effect of all changes since what was last told."""
        self._asked = self._number
        net = NOTHING
        for _, part in self._parts:
            net = net.merge(part)
        return Pending(net, self._number)

    def told(self, pending: Pending) -> None:
        """What was pending then has been told, durably."""
        self._parts = [part for part in self._parts if part[0] > pending.upto]

    # --- life ---------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to look; ``ready`` says when the first look is over."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Look no more. A look that runs ends within a folder."""
        self._stop.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, JOIN_S)

    def _arrived(self, changes: Changes) -> None:
        if self._parts and self._parts[-1][0] > self._asked:
            number, before = self._parts.pop()
            self._parts.append((number, before.merge(changes)))
        else:
            self._number += 1
            self._parts.append((self._number, changes))
        self._on_change(changes)

    # --- the thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._disk.begin()
            self._post(self.ready.set)
            while (wait_s := self._disk.wait_s) is not None and not self._stop.wait(wait_s):
                changes = self._disk.step()
                if changes:
                    self._post(self._arrived, changes)
        except Stopped:
            pass
        except Exception as error:  # a fault of ours must not look like a disk on which nothing happens
            logger.exception("looking at the disk failed")
            self._disk.state, self._disk.reason = "off", f"a fault in qmlx-lsp: {type(error).__name__}"
            self._say(f"Changes in {self.root} are not noticed any more because of {self._disk.reason}: see its log.")
            self._post(self.ready.set)
        finally:
            self._disk.close()

    def _say(self, text: str | None) -> None:
        self._post(self._notice, f"the disk: {self.root}", text)

    def _post(self, call: Callable[..., None], *args: object) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there to be told
            self._loop.call_soon_threadsafe(call, *args)
