"""One workspace folder, as long as an editor has it open or a conversation is about it: what of it is private, and
what happens on its disk.

Invariant: what any client wants excluded is excluded for all of them: there is one conversation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

from qmlx_lsp.session.session import News
from qmlx_lsp.workspace.ignore import Ignore


class Project:
    """``root`` is a real path; ``exclude`` are the daemon's own patterns, those of editors come on top."""

    def __init__(self, root: Path, exclude: Sequence[str] = ()) -> None:
        self.root = root
        self._exclude = tuple(exclude)
        self._of_clients: dict[Hashable, tuple[str, ...]] = {}
        self._asked: set[asyncio.Future[None]] = set()

    def wait_for(self, settings: asyncio.Future[None]) -> None:
        """A client has been asked for its settings, which may say what is private."""
        self._asked.add(settings)
        settings.add_done_callback(self._asked.discard)

    async def configured(self) -> None:
        """Until every client that was asked has answered, or has taken too long."""
        while self._asked:
            await asyncio.wait(set(self._asked))

    def exclude(self, client: Hashable, patterns: Sequence[str]) -> None:
        """What ``client`` wants excluded from now on, in place of what it wanted before."""
        self._of_clients[client] = tuple(patterns)

    def drop_client(self, client: Hashable) -> None:
        self._of_clients.pop(client, None)

    def rules(self) -> Ignore:
        """What must not be told, read anew when first asked. An ``Ignore`` is for one thread at a time."""
        patterns = dict.fromkeys([*self._exclude, *(p for more in self._of_clients.values() for p in more)])
        return Ignore(str(self.root), _read_ignore_file, tuple(patterns))

    @property
    def excluded(self) -> Mapping[str, str]:
        """The top-most paths that are left out, as far as they are known, and why; folders end in a slash."""
        return {}

    def news(self) -> News:
        """What has happened on the disk since it was last told."""
        return News()


def _read_ignore_file(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
