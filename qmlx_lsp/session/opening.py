"""The epoch after this one, as a session of its own: what it begins with, and the step into it.

Both ways lead through here: an epoch that was prepared in idle time (``session/epoch.py``), and one that a turn has
to begin because it does not fit any more (``session/turn.py``).

Invariant: a step into a new epoch is durable before anything in memory changes; if it fails, nothing has happened.
Invariant: an opening leaves at least half of the way to the next one, so that epochs never follow one another
without a turn between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from qmlx_lsp.session.event import Ask
from qmlx_lsp.session.gather import Budget, Gathered, choose
from qmlx_lsp.session.model import SYSTEM_TEXT
from qmlx_lsp.session.session import News, Session
from qmlx_lsp.session.sight import Workspace, look
from qmlx_lsp.settings import GIB
from qmlx_lsp.transcript.epoch import Summary, Turn, begin, head, last_turns, recent_paths
from qmlx_lsp.transcript.transcript import Transcript
from qmlx_lsp.workspace.told import Limits

# The other name under which the store keeps things for a conversation: its epochs take turns with the two.
_OTHER_OWNER = " (next epoch)"


def due_at(session: Session) -> int | None:
    """Tokens at which the next epoch is prepared; None when it never is."""
    share = session.services.settings.context.epoch_share
    return None if share >= 1.0 else int(session.context_tokens * share)


def opening_tokens(session: Session) -> int:
    """Tokens that the beginning of an epoch may have at most; see the module's second invariant."""
    at = due_at(session)
    assert at is not None, "asked for where epochs are prepared only"
    return at // 2


def carried(session: Session) -> list[Turn]:
    """The turns that would go into the next epoch now."""
    limits = session.services.settings.context
    most = int(session.context_tokens * limits.carry_share)
    return last_turns(session.transcript.entries, limits.carry_turns, most)


def forced(session: Session) -> list[Callable[[], Session]]:
    """Beginnings for a turn that does not fit any more, the best first: the prepared one if it says all, some without
    files (they come with the turn), and the least possible. Making one blocks (encodes)."""
    ahead = session.ahead if session.ahead_fits else None
    known, turns = session.known_summary, carried(session)
    made = [partial(_beside, session, known, turns), partial(_beside, session, known, []), partial(_beside, session)]
    return [*([lambda: ahead] if ahead is not None else []), *made]


async def prepared(session: Session) -> Session | None:
    """The beginning of the next epoch with the files in use as they are now; None when there is no room for one."""
    most = min(opening_tokens(session), _memory_tokens(session))
    share = session.services.settings.context.epoch_files_share
    entries, summary, open_texts = session.transcript.entries, session.known_summary, session.open_texts()
    recent = [path for path in recent_paths(entries) if path in session.told]
    turns = carried(session)

    def work() -> Session | None:
        for kept in (turns, []):
            beside = _beside(session, summary, kept)
            if (left := most - len(beside.transcript.log)) >= 0:
                break
        else:
            return None
        gathered = _files(beside, open_texts, recent, min(int(session.context_tokens * share), left))
        blocks = [*head(summary, entries, kept), *gathered.drafts]
        beside.transcript = begin(Transcript(session.model.renderer), SYSTEM_TEXT, blocks, kept)
        beside.told = {path: text for path, text in gathered.told.items() if text is not None}
        return beside

    return await asyncio.to_thread(work)


def _files(beside: Session, open_texts: Mapping[str, str], recent: Sequence[str], room: int) -> Gathered:
    """The files that editors have open, then those spoken of last, within ``room`` tokens. Blocking."""
    limits = beside.services.settings.context
    max_bytes = limits.max_file_kb * 1024
    nothing_asked = Ask("")
    sights = look(Workspace(beside.root, beside.rules(), open_texts, max_bytes, recent), nothing_asked)
    codec = beside.model.renderer.codec
    budget = Budget(
        room, int(beside.context_tokens * limits.file_share), limits.changes_max, lambda t: len(codec.encode_data(t))
    )
    return choose(nothing_asked, sights, {}, Limits(max_bytes, limits.max_diff_share), budget)


def _memory_tokens(session: Session) -> int:
    """Tokens of a second state for which there is memory beside the live one."""
    row_bytes = session.model.info.row_bytes
    left = session.services.settings.memory.live_gib * GIB - session.live_bytes
    return max(0, int(left / row_bytes)) if row_bytes else session.context_tokens


def _beside(session: Session, summary: Summary | None = None, turns: Sequence[Turn] = ()) -> Session:
    """A session that begins with these and no files, in no registry and with no live state. Blocking (encodes)."""
    one, other = owners(session.root)
    blocks = head(summary, session.transcript.entries, turns)
    opening = begin(Transcript(session.model.renderer), SYSTEM_TEXT, blocks, turns)
    return Session(
        session.root, session.services, session.model, session.rules, session.open_texts, News, session.conversation,
         opening, {}, owner=other if session.owner == one else one,
    )  # fmt: skip


def owners(root: Path) -> tuple[str, str]:
    """The names under which the store keeps what ``root``'s conversation stands on: the two take turns, an epoch
    each."""
    return str(root), str(root) + _OTHER_OWNER


async def step_into(session: Session, ahead: Session) -> None:
    """Go on with ``ahead``, its live state included; the caller holds ``session.lock``.

    Raises:
        StoreError: the log cannot be written; nothing has changed.
    """
    services = session.services
    async with ahead.lock:  # whoever reads into its state ends the pass that runs, and then finds it gone
        opening = tuple(ahead.transcript.entries)
        begun = await services.on_log(
            partial(
                services.log.new_epoch, session.conversation, session.model.identity,
                why="full", opening=opening, told=ahead.told,
            )
        )  # fmt: skip
        if session.ahead is not ahead:
            session.drop_ahead("new epoch")
        session.unpin()
        session.drop_live("new epoch")
        session.conversation, session.transcript, session.told = begun, ahead.transcript, ahead.told
        session.owner, session.ahead, session.summary = ahead.owner, None, None
        if ahead.live is not None:
            session.settle(ahead.live, ahead.live_position)
            session.live_bytes, session.saved = ahead.live_bytes, ahead.saved
            session.stored, session.merge = ahead.stored, ahead.merge
            session.failures, session.retry_at = ahead.failures, ahead.retry_at
        ahead.settle(None, None, "new epoch")
    if session.live is not None and session.failures and (pause := services.settings.store.retry_s):
        services.later(pause, session)
