"""What the conversation of a folder knows of its files, and what it does not know yet. Changes nothing.

Invariant: of a private file nothing is said but its name and why it is private.
Invariant: ``told`` and ``current`` of a file are equal if and only if the next question has nothing to say of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from qmlx_lsp.session.event import Ask
from qmlx_lsp.session.gather import renamed
from qmlx_lsp.session.session import Services
from qmlx_lsp.session.sight import UNSAVED, Role, Sight, Workspace, look, private
from qmlx_lsp.transcript.entry import Entry, Kind
from qmlx_lsp.workspace.ignore import Ignore
from qmlx_lsp.workspace.shown import shown
from qmlx_lsp.workspace.told import STALE, Limits, is_named, moved, named, recall, seen_text, tell

DIGEST_BYTES = 6


@dataclass(frozen=True, slots=True)
class Place:
    """A folder as it is now: what editors have open there, what must not be told, and what the watcher has left
    out, with the reasons. ``count`` tells how many tokens a text has, if a model is there that knows;
    ``homes`` where a vanished file may be, as in ``Workspace``."""

    root: Path
    open_texts: Mapping[str, str]
    rules: Ignore
    excluded: Mapping[str, str]
    count: Callable[[str], int] | None
    homes: Callable[[str], Sequence[str]] = lambda _path: ()


async def context(services: Services, place: Place) -> dict[str, Any]:
    """The files, those in use first, and totals. Raises StoreError."""

    def read() -> tuple[Sequence[Entry], Mapping[str, str]]:
        found = services.log.find(str(place.root))
        return (services.log.entries(found), services.log.told(found)) if found else ((), {})

    entries, told = await services.on_log(read)
    limits = services.settings.context
    files = await asyncio.to_thread(
        _files, place, entries, told, Limits(limits.max_file_kb * 1024, limits.max_diff_share)
    )
    return {
        "root": str(place.root),
        "files": files,
        "totals": {
            "tokens": entries[-1].end if entries else 0,
            "file_tokens": sum(file["tokens"] for file in files),
            "pending": sum(file["pending"] is not None for file in files),
        },
    }


def _files(place: Place, entries: Sequence[Entry], told: Mapping[str, str], limits: Limits) -> list[dict[str, Any]]:
    tokens = Counter[str]()
    for entry in entries:
        if entry.path is not None and entry.kind is Kind.CONTEXT:
            tokens[entry.path] += len(entry.ids)
    workspace = Workspace(
        place.root, place.rules, place.open_texts, limits.max_file_bytes, told, place.homes, settle=lambda _s: None
    )
    sights = look(workspace, Ask(""))
    renames = {rename.old: rename for rename in renamed(sights, told)}
    moved_here = {rename.new for rename in renames.values()}
    seen = [s for s in sights if s.role is not Role.FOUND and s.path not in moved_here]
    rows = [_row(place, sight, told.get(sight.path), tokens[sight.path], limits) for sight in seen]
    texts = {sight.path: sight.text or "" for sight in sights}
    for row, sight in zip(rows, seen, strict=True):
        if (rename := renames.get(sight.path)) is not None:
            text = moved(rename.old, rename.new, rename.told, texts[rename.new], limits).text
            row |= {"state": "renamed", "pending": text, "pending_tokens": _tokens(place, text)}
    known = {sight.path for sight in sights}
    shown_once = [path for path in tokens if path not in known]
    for path in dict.fromkeys([*place.open_texts, *told, *shown_once]):
        if path not in known and (reason := private(place.root, path, place.rules)):
            rows.append(_blank(path, tokens[path]) | {"state": "private", "excluded": reason})
            known.add(path)
    rows += [_blank(path, tokens[path]) | {"state": "gone"} for path in shown_once if path not in known]
    rows += [_blank(path, 0) | {"state": "private", "excluded": why} for path, why in place.excluded.items()]
    return rows


def _blank(path: str, tokens: int) -> dict[str, Any]:
    return {
        "path": shown(path), "tokens": tokens, "told": None, "current": None, "pending": None, "excluded": None,
        "state": "", "open": False, "parts": None, "pending_tokens": None,
    }  # fmt: skip


def _row(place: Place, sight: Sight, before: str | None, tokens: int, limits: Limits) -> dict[str, Any]:
    """``told`` and ``current`` are digests of the texts as a model sees them."""
    seen = recall(before)
    telling = (
        named(sight.path, before, sight.hidden, sight.size)
        if sight.hidden is not None
        else tell(sight.path, before, sight.text, limits)
    )
    pending = None if telling is None else telling.text
    return _blank(sight.path, tokens) | {
        "told": _digest(seen_text(before)) if before is not None and seen is not None else None,
        "current": _digest(seen_text(sight.text)) if sight.text is not None and "\0" not in sight.text else None,
        "pending": pending,
        "pending_tokens": _tokens(place, pending),
        "open": sight.path in place.open_texts,
        "parts": [list(part) for part in seen.parts] if seen is not None and seen.parts is not None else None,
        "state": _state(sight, before, changed=telling is not None),
    }


def _tokens(place: Place, pending: str | None) -> int | None:
    return None if pending is None or place.count is None else place.count(pending)


def _state(sight: Sight, before: str | None, *, changed: bool) -> str:
    if sight.text is None and sight.hidden is None:
        return "gone"
    if before == STALE:
        return "out of date"
    if is_named(before) and not changed:
        return "named only"
    if before is None:
        return "not told yet"
    return "changed" if changed else "up to date"


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).hexdigest()


async def held(services: Services, place: Place, path: str) -> dict[str, Any]:
    """The text that would be told of the file ``path`` (absolute, or from the root), exactly: the editor's, or else
    the disk's.

    Raises:
        QuestionError: the file is private, outside, missing, or no text.
    """
    max_bytes = services.settings.context.max_file_kb * 1024
    workspace = Workspace(place.root, place.rules, place.open_texts, max_bytes)
    asked = path if path.startswith(UNSAVED) else str(place.root / path)
    sights = await asyncio.to_thread(look, workspace, Ask("", asked))
    sight = next(sight for sight in sights if sight.role is Role.ASKED)
    return {"path": sight.path, "text": sight.text, "source": "editor" if sight.path in place.open_texts else "disk"}
