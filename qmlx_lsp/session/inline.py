"""Inline completions: what might come next at a cursor, as a branch of the conversation that leaves no trace.

The way of one: is it what is left of a suggestion that its user types through? Then no model is asked. Else a moment
is waited for a newer request; the prompt is made; a branch is read and generated between whatever else the engine
does (``engine.branch``); what came out is cut to what fits (``workspace.ghost``).

Invariant: of one client and document the newest request counts. One that is superseded is answered at once, with
nothing, and costs the model nothing if it had not begun, and a pass at most if it had.
Invariant: an automatic completion changes neither the log nor the live state. One that is to stay (``inline.record``)
is a turn like any other, and is recorded as far as it came before it is answered.
Invariant: nothing fails. Where nothing can be offered, nothing is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from qmlx_lsp.engine.branch import Completed
from qmlx_lsp.engine.worker import EngineBusy, EngineClosed, Priority
from qmlx_lsp.errors import ModelError, QmlxError
from qmlx_lsp.session.apart import Apart
from qmlx_lsp.session.completing import Filling, Wanted, completed, recorded, written
from qmlx_lsp.session.event import Job
from qmlx_lsp.session.model import LoadedModel
from qmlx_lsp.session.session import Services, Session
from qmlx_lsp.session.window import Place, Window, window
from qmlx_lsp.workspace.document import Document
from qmlx_lsp.workspace.ghost import fitted
from qmlx_lsp.workspace.suggestion import Fate, Shown, fate, remainder

logger = logging.getLogger(__name__)

# Of what completions have taken, how much is waited for a newer request; and how much the latest one counts.
_DEBOUNCE_SHARE = 0.25
_LATEST_SHARE = 0.3
# How often a completion is tried whose conversation goes on under it.
_TRIES = 3
# Suggestions that are remembered at most, by client and document.
_SHOWN_MAX = 64

_COUNTED = ("shown", "typed_through", "superseded", Fate.ACCEPTED.value, Fate.PARTLY.value, Fate.REJECTED.value)

Key = tuple[Hashable, str]
# Why a path is private; None if it is not.
Privacy = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Request:
    """``client`` and ``uri`` are the editor and the document; ``place.path`` is relative to ``root``. Limits that are
    None are those of the settings."""

    client: Hashable
    uri: str
    root: Path
    place: Place
    max_tokens: int | None = None
    max_lines: int | None = None
    debounce_ms: int | None = None

    @property
    def key(self) -> Key:
        return self.client, self.uri


class Inline:
    """``session(root)`` opens a session, ``rules(root)`` gives what is private there once editors have said it,
    ``is_open(session)`` whether that is still the session of its conversation. ``bound(session)`` is called when the
    memory of its state may have grown. ``sleep`` is for tests."""

    def __init__(
        self,
        services: Services,
        session: Callable[[Path], Awaitable[Session]],
        rules: Callable[[Path], Awaitable[Privacy]],
        is_open: Callable[[Session], bool],
        bound: Callable[[Session], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._settings = services.settings.inline
        self._notice = services.notice
        self._apart = Apart(services.settings, services.worker) if self._settings.model else None
        self._session = session
        self._rules = rules
        self._is_open = is_open
        self._bound = bound
        self.sleep = sleep
        self._newest: dict[Key, Job] = {}
        self._shown: dict[Key, tuple[Shown, Fate]] = {}
        self._latest: dict[Path, Request] = {}
        self._typical_ms = 0.0
        self._counts: Counter[str] = Counter()
        self.last: Completed | None = None
        self._filling: tuple[LoadedModel, asyncio.Future[Filling]] | None = None

    @property
    def counts(self) -> dict[str, int]:
        """How many suggestions were shown, answered without the model, and what became of them."""
        return {name: self._counts[name] for name in _COUNTED}

    def status(self) -> dict[str, Any]:
        """The counts, and what the model did for the last one, as JSON data."""
        last = self.last
        cost = None if last is None else {
            "prefilled": last.prefilled, "kept": last.kept, "generated": len(last.ids), "passes": last.passes,
            "prefill_ms": round(last.prefill_ms, 2), "decode_ms": round(last.decode_ms, 2),
        }  # fmt: skip
        return {**self.counts, "last": cost}

    async def complete(self, request: Request, job: Job) -> str:
        """What to insert at the place (behind what is selected there); empty for nothing. Cancelled by ``job``."""
        key = request.key
        if (former := self._newest.get(key)) is not None:
            former.cancel()
            self._counts["superseded"] += 1
        self._newest[key] = job
        try:
            return await self._complete(request, job)
        except (EngineBusy, EngineClosed):
            return ""
        except QmlxError as error:
            logger.info("nothing was completed in %s: %s", request.root, error)
            return ""
        except Exception as error:  # noqa: BLE001 - whatever the model's code raises, typing goes on
            # What an unforeseen error says may be what was typed.
            logger.warning("nothing was completed in %s: %s", request.root, type(error).__name__)
            return ""
        finally:
            if self._newest.get(key) is job:
                del self._newest[key]

    def changed(self, client: Hashable, uri: str, document: Document) -> None:
        """A client's document has another text: what became of what was shown there?"""
        known = self._shown.get((client, uri))
        if known is None:
            return
        shown, before = known
        now, _ = fate(shown, document.lines)
        if now is before:
            return
        if before is not Fate.ACCEPTED:  # whoever goes on typing behind it has accepted it
            self._counts[now] += 1
        if now is Fate.REJECTED:
            del self._shown[(client, uri)]
        else:
            self._shown[(client, uri)] = shown, now

    def closed(self, client: Hashable, uri: str) -> None:
        """A client shows a document no more."""
        self._latest = {root: one for root, one in self._latest.items() if one.key != (client, uri)}
        self._shown.pop((client, uri), None)
        if self._apart is not None:
            self._apart.forget((client, uri))

    def cancel(self) -> None:
        """Nothing is wanted any more."""
        for job in self._newest.values():
            job.cancel()

    def drop_client(self, client: Hashable) -> None:
        """An editor has gone."""
        self._latest = {root: one for root, one in self._latest.items() if one.client is not client}
        for key in [key for key in self._shown if key[0] is client]:
            self.closed(*key)
        for key, job in self._newest.items():
            if key[0] is client:
                job.cancel()
        if self._apart is not None:
            self._apart.forget_all(lambda key: isinstance(key, tuple) and key[0] is client)

    async def _complete(self, request: Request, job: Job) -> str:
        place = request.place
        left = self._left(request)
        if left:
            self._counts["typed_through"] += 1
            return left
        if (seconds := self._pause_s(request)) > 0:
            await job.unless_cancelled(self._sleep(seconds))
        if job.cancelled:
            return ""
        shown = window(place, self._settings, request.max_lines or self._settings.max_lines)
        if shown is None:
            return ""
        self._latest[request.root] = request
        written_text = await self._written(request, shown, job)
        text = "" if written_text is None or job.cancelled else fitted(written_text, shown.cursor)
        if text:
            self._show(request, text)
        return text

    # --- asking -----------------------------------------------------------------------------------------------------

    async def _written(self, request: Request, shown: Window, job: Job) -> str | None:
        """What a model writes at the cursor; None when none can be asked now."""
        ready = await job.unless_cancelled(self._ready(request.root))
        if ready is None or job.cancelled:
            return None
        rules, model, session = ready
        most = request.max_tokens or self._settings.max_tokens
        allowed = partial(_allowed, request, rules)
        wanted = Wanted(shown, most, request.place.invoked, await self._fill(model), allowed)
        began = time.perf_counter()
        if session is not None:
            found = await self._ask(session, wanted, job)
            self._bound(session)
        else:
            assert self._apart is not None
            found = await self._apart.completed(request.key, wanted, job)
        if found is None:
            return None
        self.last = found
        self._took((time.perf_counter() - began) * 1000)
        return written(model.renderer.codec, wanted, found)

    async def _model_apart(self, apart: Apart) -> LoadedModel | None:
        """The second model; None when it cannot be had, which is said once, and the first one serves."""
        try:
            found = await apart.model()
        except ModelError as error:
            self._notice("inline.model", f"Completions are made by the model of answers: {error}")
            return None
        self._notice("inline.model", None)
        return found

    async def _ask(self, session: Session, wanted: Wanted, job: Job) -> Completed | None:
        """What the conversation's model writes."""
        session.last_used = time.monotonic()
        if self._stays(wanted) and not session.lock.locked():
            async with session.lock:
                found = await recorded(session, wanted, job) if self._is_open(session) else None
            if found is not None:
                return found  # else there is no place for it in the log, and it leaves no trace
        for _ in range(_TRIES):
            found = await completed(session, wanted, job, partial(self._is_open, session))
            if found is not None or job.cancelled:
                return found
        return None

    def _stays(self, wanted: Wanted) -> bool:
        record = self._settings.record
        return record == "always" or (record == "invoked" and wanted.invoked)

    async def _ready(self, root: Path) -> tuple[Privacy, LoadedModel, Session | None]:
        """What is private there, the model to ask, and the session if it is the conversation's."""
        rules = await self._rules(root)
        apart = None if self._apart is None else await self._model_apart(self._apart)
        if apart is not None:
            return rules, apart, None
        session = await self._session(root)
        return rules, session.model, session

    async def _fill(self, model: LoadedModel) -> Filling:
        if self._filling is None or self._filling[0] is not model:
            self._filling = model, asyncio.ensure_future(asyncio.to_thread(Filling.of, model, self._settings.fim))
        return await asyncio.shield(self._filling[1])

    async def _sleep(self, seconds: float) -> None:
        await self.sleep(seconds)

    def _pause_s(self, request: Request) -> float:
        """Seconds to wait for a newer request."""
        if request.place.invoked:
            return 0.0
        least, most = self._settings.debounce_ms, self._settings.debounce_max_ms
        ms = min(max(least, self._typical_ms * _DEBOUNCE_SHARE), max(least, most))
        return (ms if request.debounce_ms is None else request.debounce_ms) / 1000

    def _took(self, ms: float) -> None:
        self._typical_ms += (ms - self._typical_ms) * (_LATEST_SHARE if self._typical_ms else 1.0)

    async def warm(self, session: Session, job: Job) -> None:
        """Read again what was read for the latest completion there, behind what the conversation has been told since:
        so that the next keystroke need not. Nobody waits for it; never raises."""
        request = self._latest.get(session.root)
        if request is None or self._apart is not None or session.live is None:
            return
        shown = window(request.place, self._settings, self._settings.max_lines)
        try:
            allowed = partial(_allowed, request, await self._rules(request.root))
            if shown is None:
                return
            wanted = Wanted(shown, 0, False, await self._fill(session.model), allowed)
            await completed(session, wanted, job, partial(self._is_open, session), Priority.BACKGROUND)
        except (EngineBusy, EngineClosed):
            return
        except Exception as error:  # noqa: BLE001 - nobody asked for this
            logger.warning("nothing was read for completions in %s: %s", session.root, type(error).__name__)

    # --- what was shown -------------------------------------------------------------------------------------------

    def _left(self, request: Request) -> str | None:
        """What is left of the suggestion that was shown, at this place; None or empty when a new one is wanted."""
        known, place = self._shown.get(request.key), request.place
        if known is None or place.selected:
            return None
        return remainder(known[0], place.lines, place.line, place.column)

    def _show(self, request: Request, text: str) -> None:
        self._counts["shown"] += 1
        place = request.place
        self._shown.pop(request.key, None)
        if not place.selected:
            self._shown[request.key] = Shown(place.lines, place.line, place.column, text), Fate.OPEN
        while len(self._shown) > _SHOWN_MAX:
            del self._shown[next(iter(self._shown))]


def _allowed(request: Request, privacy: Privacy) -> bool:
    """Whether the document may be shown to a model. Looks at the disk."""
    return privacy(request.place.path) is None
