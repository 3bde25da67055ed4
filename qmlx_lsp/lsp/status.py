"""What an editor's status line shows: ``qmlx/didChangeStatus`` whenever it changes, and the way of the model to
readiness as a progress.

loading … 40 % → ready → answering (whoever asked, in this editor or another one) → what the turn cost

Invariant: the last status that an editor has is true: it is made of what is now, not of what has happened.
Invariant: ``busy`` means that somebody waits; reading ahead in idle time is not told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lsprotocol import types

from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.lsp.methods import DID_CHANGE_STATUS
from qmlx_lsp.lsp.stream import create_progress
from qmlx_lsp.session.event import Answer, Usage
from qmlx_lsp.session.loading import Loader, Phase, Progress

ANSWERING = "answering"
_ENDED = {"cancelled": "cancelled", "length": "cut off", "error": "broken off"}
"""What is said before the figures of a turn that did not end by itself."""


def cost(usage: Usage) -> str:
    """What a turn cost, in one line."""
    restored = f" ({usage.restored:,} from disk)" if usage.restored else ""
    return f"{usage.prefilled:,} tokens read, {usage.live + usage.restored:,} kept{restored}"


def line(found: Mapping[str, Any], roots: Sequence[Path]) -> str:
    """The status as ``qmlx/status`` has it, in one line for an editor with these folders."""
    here = [one for one in found["conversations"] if Path(one["root"]) in roots]
    last = [cost(Usage(**one["usage"])) for one in here if one["usage"]]
    running, tokens = found["queue"]["running"], sum(one["tokens"] for one in here)
    parts = [
        f"{found['model']['name']} is {found['model']['state']}",
        f"{running} running" if running else "",
        f"last turn: {last[0]}" if last else "",
        f"{tokens:,} tokens of conversation" if tokens else "",
    ]
    return "; ".join(part for part in parts if part)


def follow(connection: Connection) -> Callable[[], None]:
    """Tell the editor of ``connection`` the status now and at every change; returns how to stop."""
    registry = connection.registry
    told: dict[str, Any] = {}
    last: tuple[Path, str] | None = None

    def tell() -> None:
        now = status(registry.loader, connection.roots, _busy(connection), last)
        if now != told:
            told.update(now)
            connection.protocol.notify(DID_CHANGE_STATUS, now)

    def turn(root: Path, answer: Answer | None) -> None:
        nonlocal last
        if root not in connection.roots:
            return
        if answer is not None and answer.usage.context:
            ended = _ENDED.get(answer.finish.value)
            last = root, f"{ended}, {cost(answer.usage)}" if ended else cost(answer.usage)
        tell()

    stops = registry.running.listen(turn), registry.loader.listen(lambda _progress: tell())
    if registry.loader.progress.phase is not Phase.IDLE:
        tell()

    def stop() -> None:
        for one in stops:
            one()

    return stop


def _busy(connection: Connection) -> Path | None:
    """A folder of the editor's in which a turn runs."""
    return next((root for root in connection.roots if connection.registry.running.within(root)), None)


def status(loader: Loader, roots: list[Path], running: Path | None, last: tuple[Path, str] | None) -> dict[str, Any]:
    """As it is told. ``running`` is a root in which a turn runs; ``last`` how the last one ended, and in which."""
    progress, root = loader.progress, roots[0] if roots else None
    kind, busy, message = "Normal", False, progress.message
    if progress.phase is Phase.FAILED:
        kind = "Error"
    elif progress.phase is Phase.LOADING:
        kind, busy, message = "Busy", True, _loading(progress)
    elif running is not None:
        kind, busy, message, root = "Busy", True, ANSWERING, running
    elif last is not None:
        root, message = last
    return {
        "kind": kind,
        "busy": busy,
        "message": message,
        "model": loader.source,
        "root": None if root is None else str(root),
    }


def _loading(progress: Progress) -> str:
    return progress.message if progress.percent is None else f"{progress.message}, {progress.percent} %"


async def show_loading(connection: Connection) -> None:
    """The model's way to readiness as work-done progress in this editor."""
    loader = connection.registry.loader
    changes: asyncio.Queue[Progress] = asyncio.Queue()
    stop = loader.listen(changes.put_nowait)
    token, begun = None, False
    try:
        token = await create_progress(connection)
        if token is None:
            return
        progress = loader.progress
        while True:
            _report(connection, token, progress, begun=begun)
            begun = True
            if progress.phase in (Phase.READY, Phase.FAILED):
                return
            progress = await changes.get()
    finally:
        stop()
        if begun and token is not None and loader.progress.phase is Phase.LOADING:
            _notify(connection, token, types.WorkDoneProgressEnd())


def _report(connection: Connection, token: str, progress: Progress, *, begun: bool) -> None:
    message = progress.message
    if not begun:
        _notify(connection, token, types.WorkDoneProgressBegin(title="qmlx", message=message, percentage=0))
    if progress.phase is Phase.LOADING:
        _notify(connection, token, types.WorkDoneProgressReport(message=message, percentage=progress.percent))
    else:
        _notify(connection, token, types.WorkDoneProgressEnd(message=message))


def _notify(connection: Connection, token: str, value: Any) -> None:
    connection.protocol.notify(types.PROGRESS, types.ProgressParams(token=token, value=value))
