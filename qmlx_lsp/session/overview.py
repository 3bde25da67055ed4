"""What can be read of the conversations and of the daemon, as JSON data. Changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from qmlx_lsp import __version__
from qmlx_lsp.errors import StoreError
from qmlx_lsp.session.loading import Loader
from qmlx_lsp.session.model import context_limit
from qmlx_lsp.session.session import Services, Session


async def conversation(services: Services, root: Path, limit: int | None) -> dict[str, Any]:
    """The newest ``limit`` turns of ``root`` over all epochs, oldest first, and totals: ``entries`` and
    ``tokens`` are of the current epoch, the others of all. Needs no model."""
    log = services.log

    def read() -> dict[str, Any]:
        found = log.find(str(root))
        if found is None:
            totals = {"turns": 0, "entries": 0, "tokens": 0, "epochs": 0}
            return {"root": str(root), "epoch": 0, "turns": [], "totals": totals}
        entries, held = log.entries(found), log.held(str(root))
        assert held is not None, "it has just been found"
        return {
            "root": str(root),
            "epoch": found.epoch,
            "turns": [
                {
                    "turnId": turn.turn, "epoch": turn.epoch, "question": turn.question, "text": turn.text,
                    "finish": turn.finish.value, "span": list(turn.span), "usage": turn.usage,
                }
                for turn in log.turns(found, limit, all_epochs=True)
            ],
            "totals": {
                "turns": held.turns, "entries": len(entries), "tokens": entries[-1].end if entries else 0,
                "epochs": held.epochs,
            },
        }  # fmt: skip

    return await services.on_log(read)


async def status(
    services: Services,
    loader: Loader,
    sessions: Sequence[Session],
    disk: Callable[[Path], object],
    running: Callable[[], int],
    clients: int,
    inline: Mapping[str, Any],
) -> dict[str, Any]:
    """Model, live conversations, store, queue and last usage, as JSON data. ``disk(root)`` says how a folder is
    watched, ``inline`` what became of completions."""
    progress, loaded = loader.progress, loader.loaded
    store = await _store_status(services)
    last = max(sessions, key=lambda s: s.last_used, default=None)
    return {
        "version": __version__,
        "pid": os.getpid(),
        "clients": clients,
        "model": {
            "name": loader.source,
            "state": progress.phase.value,
            "message": progress.message,
            "percent": progress.percent,
            "context_tokens": context_limit(loaded.info, services.settings) if loaded else None,
            "weight_bytes": loaded.info.weight_bytes if loaded else None,
            "warnings": list(loaded.renderer.fragments.warnings) if loaded else [],
        },
        "conversations": [
            {
                "root": str(s.root), "epoch": s.conversation.epoch, "tokens": len(s.transcript.log),
                "live": s.live is not None, "live_tokens": s.live_position, "live_bytes": s.live_bytes,
                "disk": disk(s.root), "busy": s.lock.locked() and s.preparing is None, "preparing": s.preparing,
                "usage": s.last_usage.as_dict() if s.last_usage else None,
            }
            for s in sessions
        ],
        "store": store,
        "inline": dict(inline),
        "queue": {"running": running(), "waiting": services.worker.waiting},
        "usage": last.last_usage.as_dict() if last and last.last_usage else None,
    }  # fmt: skip


async def _store_status(services: Services) -> dict[str, Any] | None:
    if services.store is None:
        return None
    try:
        waiting = services.writer.waiting_bytes if services.writer is not None else 0
        return {**await services.on_store(services.store.stats), "waiting_bytes": waiting}
    except StoreError as error:
        return {"error": str(error)}
