"""One project's conversation: what it was told, and the model's live state of it.

Invariant (state equals log): ``live_position`` tokens of the log are what the live state has read; the live state
is always a prefix of the log, or there is none.
Invariant: everything here changes under ``lock`` only, except what is read for display.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from qmlx_lsp.engine.backend import StateId
from qmlx_lsp.engine.worker import EngineClosed, Priority, Worker
from qmlx_lsp.session.event import Usage
from qmlx_lsp.session.model import LoadedModel, context_limit
from qmlx_lsp.settings import Settings
from qmlx_lsp.storage.checkpoints import CheckpointStore
from qmlx_lsp.storage.conversations import Conversation, ConversationLog
from qmlx_lsp.storage.writer import WriteBehind
from qmlx_lsp.transcript.epoch import Summary
from qmlx_lsp.transcript.transcript import Transcript
from qmlx_lsp.workspace.ignore import Ignore
from qmlx_lsp.workspace.summary import out_of_date

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Services:
    """What a turn works with. ``log_thread`` and ``store_thread`` have one thread each, so that what is queued on
    one of them happens in order; the store thread looks things up, ``writer`` alone writes checkpoints.
    ``notice(about, text)`` says something to the user once, without failing the turn, until ``notice(about, None)``
    says that it is well again. ``later(seconds, session)`` tries once more to checkpoint a session, unless a turn is
    running then."""

    settings: Settings
    worker: Worker
    log: ConversationLog
    log_thread: Executor
    store: CheckpointStore | None
    store_thread: Executor
    writer: WriteBehind | None
    later: Callable[[float, Session], None]
    notice: Callable[[str, str | None], None]

    async def on_log(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.log_thread, work, *args)

    async def on_store(self, work: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.store_thread, work, *args)


class News:
    """What has happened on the disk since it was last said. This one is for a folder that nobody watches."""

    def homes(self, path: str) -> Sequence[str]:
        """Files that have come into being and may be ``path``, which has vanished; the likeliest first."""
        return ()

    def named(self, name: str) -> Sequence[str]:
        """The files of the workspace with that last name."""
        return ()

    def summary(self, stale: Sequence[str], lost: Sequence[str], said: Mapping[str, str | None]) -> str | None:
        """A block about what is too much to be said file by file, or None. ``stale`` and ``lost`` files were told
        before and have changed or gone, ``said`` are those of which something is said now."""
        return out_of_date(stale, lost) or None

    def told(self) -> None:
        """It has been said."""


@dataclass(slots=True)
class Session:
    """``open_texts`` gives the texts that editors have open below ``root``, by relative path, latest used first.

    ``stored`` tokens have their rows in the store or on the way there, and a segment ends there; None when there is
    no store, or when it has to be asked. ``merge``: rows that lie in too many segments there (``Saved.merge``).
    ``saved`` is the deepest position of the live state that is known to be on the disk. After ``failures`` failed
    checkpoints in a row none is tried before ``retry_at`` (seconds of the monotonic clock).
    ``unfinished`` is a write to the log that the transcript has got ahead of; see ``catch_up``.
    ``rules`` gives what must not be told, as it is now; ``news`` what happened on the disk since the last telling.
    ``owner`` is the name under which the store keeps what this session stands on.

    ``standing`` are the positions from which branches can go on while a turn runs: where it began, and where its
    question begins.

    ``ahead`` is the epoch to come, while it is prepared: a session of its own that nobody can ask, with the opening
    as its transcript. It was made when this log had the digest ``ahead_of``; see ``ahead_fits``. ``summary`` is what
    the model wrote for it; see ``known_summary``. ``preparing`` names the step that runs.
    """

    root: Path
    services: Services
    model: LoadedModel
    rules: Callable[[], Ignore]
    open_texts: Callable[[], Mapping[str, str]]
    news: Callable[[], News]
    conversation: Conversation
    transcript: Transcript
    told: dict[str, str]
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    live: StateId | None = None
    live_position: int = 0
    live_bytes: int = 0
    stored: int | None = None
    merge: tuple[int, int] | None = None
    saved: int = 0
    failures: int = 0
    retry_at: float = 0.0
    unfinished: Callable[[], object] | None = None
    not_live: str = "start"  # why there is no live state, for usage.reason
    last_usage: Usage | None = None
    last_used: float = 0.0
    owner: str = ""
    ahead: Session | None = None
    ahead_of: bytes = b""
    summary: Summary | None = None
    preparing: str | None = None
    standing: tuple[int, ...] = ()
    completes: bool = False  # whether somebody wants completions here, and so places to stand

    def __post_init__(self) -> None:
        self.owner = self.owner or str(self.root)

    def __repr__(self) -> str:
        live = f"live at {self.live_position}" if self.live is not None else "not live"
        return f"<Session {self.root.name}, {len(self.transcript.log)} tokens, {live}>"

    @property
    def context_tokens(self) -> int:
        """Tokens that an epoch of this conversation may have."""
        return context_limit(self.model.info, self.services.settings)

    @property
    def ahead_fits(self) -> bool:
        """Whether the epoch to come was made from all that has been said, and nothing else."""
        log = self.transcript.log
        return self.ahead is not None and self.ahead_of == log.digest(len(log))

    @property
    def known_summary(self) -> Summary | None:
        """What the model wrote about this epoch, whatever became of the conversation since."""
        return self.summary if self.summary is not None and self.summary.is_of(self.transcript.log) else None

    @property
    def held_bytes(self) -> int:
        """Memory of the live states, that of the epoch to come included."""
        return self.live_bytes + (self.ahead.live_bytes if self.ahead is not None else 0)

    def settle(self, state: StateId | None, position: int | None, why: str = "") -> None:
        """Take ``state`` as the live state at ``position``; without one, ``why`` it is gone."""
        if state is None or position is None:
            self.live, self.live_position, self.live_bytes, self.not_live = None, 0, 0, why
            self.stored = self.merge = None
            self.saved = 0
        else:
            assert position <= len(self.transcript.log), f"state at {position}, log of {len(self.transcript.log)}"
            if state != self.live:
                self.saved = 0  # what is on the disk was another state, and may be gone
            self.live, self.live_position = state, position

    def drop_live(self, why: str) -> None:
        """Free the live state; the next turn restores or starts cold. Does not wait for the engine."""
        state = self.live
        self.settle(None, None, why)
        if state is not None:
            with contextlib.suppress(EngineClosed):  # which frees everything itself
                self.services.worker.submit(lambda backend: backend.drop_state(state), Priority.SHORT)

    def drop_ahead(self, why: str) -> None:
        """Give up the epoch to come, as far as it has been prepared; what was written of it may be evicted."""
        ahead, self.ahead = self.ahead, None
        if ahead is not None:
            ahead.drop_live(why)
            ahead.unpin()

    def unpin(self) -> None:
        """Let the store evict what was kept for ``owner``. Does not wait for it."""
        if (store := self.services.store) is not None:
            with contextlib.suppress(RuntimeError):  # the thread has ended, and the process will
                self.services.store_thread.submit(store.pin, self.owner, None)

    async def catch_up(self) -> None:
        """Do the write to the log that has failed, or has not been done yet. Until it succeeds, nothing is appended.

        Raises:
            StoreError: the log still cannot be written.
        """
        if self.unfinished is not None:
            await self.services.on_log(self.unfinished)
            self.unfinished = None


async def open_session(
    root: Path,
    services: Services,
    model: LoadedModel,
    rules: Callable[[], Ignore],
    open_texts: Callable[[], Mapping[str, str]],
    news: Callable[[], News],
) -> Session:
    """The session of ``root``, with what its conversation log holds."""

    def read() -> tuple[Conversation, Transcript, dict[str, str]]:
        conversation = services.log.open(str(root), model.identity)
        transcript = Transcript(model.renderer, services.log.entries(conversation))
        return conversation, transcript, services.log.told(conversation)

    conversation, transcript, told = await services.on_log(read)
    return Session(root, services, model, rules, open_texts, news, conversation, transcript, told)
