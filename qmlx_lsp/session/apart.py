"""A second model for completions: small, quick, and with no part in the conversation.

It has a live state for every document that was completed lately, which stands at the beginning: what it reads is the
window around the cursor, as a branch, so that here too typing reads what was typed only.

Invariant: nothing is loaded until it is asked for, and nothing of it is ever stored.
Invariant: what cannot be loaded is not tried again before ``RETRY_S``: answers wait while it is tried, and somebody
types.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Hashable

from qmlx_lsp.engine.backend import StateId
from qmlx_lsp.engine.branch import Completed
from qmlx_lsp.engine.worker import Beside, Calls, EngineClosed, Priority
from qmlx_lsp.errors import ModelError
from qmlx_lsp.session.completing import Wanted, branch_for, on_engine, prompt_for
from qmlx_lsp.session.event import Job
from qmlx_lsp.session.loading import Loader
from qmlx_lsp.session.model import LoadedModel
from qmlx_lsp.settings import Settings
from qmlx_lsp.transcript.transcript import Transcript

# Documents whose state is kept; each holds a window of a file.
STATES_MAX = 4
RETRY_S = 60.0  # seconds after which a model that could not be loaded is tried again


class Apart:
    """``settings.inline.model`` on the companion of ``worker``'s backend. ``clock`` gives seconds, for tests."""

    def __init__(self, settings: Settings, worker: Calls) -> None:
        self._settings = settings
        self._worker = Beside(worker)
        self._loader = Loader(self._worker, settings.inline.model, thinking=False)
        self._states: dict[Hashable, StateId] = {}
        self.clock: Callable[[], float] = time.monotonic
        self._failed: tuple[float, str] | None = None  # when, and why

    async def model(self) -> LoadedModel:
        """Raises ModelError when it cannot be loaded, or could not be a moment ago."""
        if self._failed is not None and self.clock() - self._failed[0] < RETRY_S:
            raise ModelError(self._failed[1])
        try:
            return await self._loader.ready()
        except ModelError as error:
            self._failed = self.clock(), str(error)
            raise

    async def completed(self, key: Hashable, wanted: Wanted, job: Job) -> Completed | None:
        """What it writes in the document ``key``. None when ``job`` is cancelled, or when there is no room."""
        model = await self.model()
        transcript = Transcript(model.renderer)
        prompt = await asyncio.to_thread(prompt_for, transcript, model, wanted, [0], bare=True)
        branch = branch_for(model, self._settings, await self._state(key), wanted, prompt, model.info.context_tokens)
        return None if branch is None or job.cancelled else await on_engine(self._worker, branch, job)

    async def _state(self, key: Hashable) -> StateId:
        state = self._states.pop(key, None)
        if state is None:
            state = await self._worker.call(lambda backend: backend.new_state(), Priority.SHORT)
        self._states[key] = state
        while len(self._states) > STATES_MAX:
            self.forget(next(iter(self._states)))
        return state

    def forget_all(self, of: Callable[[Hashable], bool]) -> None:
        """Documents are not worked on any more: those whose key is one ``of`` them."""
        for key in [key for key in self._states if of(key)]:
            self.forget(key)

    def forget(self, key: Hashable) -> None:
        """The document is not worked on any more. Does not wait for the engine."""
        state = self._states.pop(key, None)
        if state is not None:
            with contextlib.suppress(EngineClosed):
                self._worker.submit(lambda backend: backend.drop_state(state), Priority.SHORT)
