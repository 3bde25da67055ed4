"""A reply while it grows: text in batches for people, ids in the journal for a crash.

Fed on the event loop with ids from the engine thread.

Invariant: the text shown is the exact text of the ids, less what only the model's format needs (``Shown``).
Invariant: at most ``journal_ms`` of ids are not yet in the journal while the reply grows.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from qmlx_lsp.errors import StoreError
from qmlx_lsp.transcript.showing import Shown


class GrowingReply:
    """``on_text(delta)`` gets the first text at once, for it is waited for, and then batches of ``batch_ms``;
    ``journal(ids, text)`` is awaited every ``journal_ms``."""

    def __init__(
        self,
        shown: Shown,
        on_text: Callable[[str], None],
        batch_ms: int,
    ) -> None:
        self.ids: list[int] = []
        self.text = ""
        self._showing = shown
        self._on_text = on_text
        self._batch_s = batch_ms / 1000
        self._shown = 0
        self._timer: asyncio.TimerHandle | None = None

    def feed(self, token: int) -> None:
        self.ids.append(token)
        self.text += self._showing.add(token)
        if self._timer is None and len(self.text) > self._shown:
            if not self._shown:
                self._flush()
                return
            self._timer = asyncio.get_running_loop().call_later(self._batch_s, self._flush)

    def finish(self) -> str:
        """The whole text, after the last batch has gone out."""
        self.text += self._showing.finish()
        if self._timer is not None:
            self._timer.cancel()
        self._flush()
        return self.text

    def _flush(self) -> None:
        self._timer = None
        if delta := self.text[self._shown :]:
            self._shown = len(self.text)
            self._on_text(delta)

    async def keep_journal(self, journal: Callable[[list[int], str], Any], journal_ms: int) -> None:
        """Journal what is new, again and again, until cancelled. What the log refuses is offered again."""
        written = 0
        while True:
            await asyncio.sleep(journal_ms / 1000)
            if len(self.ids) > written:
                ids = list(self.ids)
                with contextlib.suppress(StoreError):
                    await journal(ids, self.text)
                    written = len(ids)
