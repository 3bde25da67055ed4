"""``qmlx-lsp log``: what a project's conversation was told and answered, straight from the database."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

from qmlx_lsp import paths
from qmlx_lsp.cli.output import json_lines
from qmlx_lsp.errors import QuestionError
from qmlx_lsp.storage.conversations import ConversationLog
from qmlx_lsp.transcript.entry import Entry, Kind

_HEADINGS = {Kind.SYSTEM: "system", Kind.CONTEXT: "context", Kind.QUESTION: "you", Kind.ASSISTANT: "qmlx"}


def add(verbs: Any) -> None:
    parser = verbs.add_parser("log", help="show the conversation of a project")
    parser.add_argument("--root", default=".", help="the project's folder (default: this one)")
    parser.add_argument("--json", action="store_true", help="one JSON object per entry")
    parser.add_argument("--tokens", action="store_true", help="with the ids of every entry")
    parser.add_argument("--limit", type=int, help="the newest entries only")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    root = paths.project(given.root)
    if given.limit is not None and given.limit < 0:
        raise QuestionError(f"--limit is {given.limit}, but must be 0 or more.")
    where = paths.find()
    if not where.conversations.exists():
        raise QuestionError(f"There is no conversation yet ({where.conversations}): ask something first.")
    log = ConversationLog(where.conversations, clock=time.time, read_only=True)
    try:
        found = log.find(str(root))
        if found is None:
            known = ", ".join(log.roots()) or "none"
            raise QuestionError(f"There is no conversation for {root}; there are ones for: {known}.")
        entries = log.entries(found)
    finally:
        log.close()
    numbered = list(enumerate(entries, 1))
    if given.limit is not None:
        numbered = numbered[len(numbered) - min(given.limit, len(numbered)) :]
    if given.json:
        json_lines(_objects(numbered, tokens=given.tokens))
    else:
        for number, entry in numbered:
            _show(number, entry, tokens=given.tokens)
    return 0


def _objects(numbered: list[tuple[int, Entry]], *, tokens: bool) -> Iterator[dict[str, Any]]:
    for number, entry in numbered:
        shown: dict[str, Any] = {
            "entry": number,
            "kind": entry.kind.value,
            "finish": entry.finish.value if entry.finish else None,
            "text": entry.text,
            "span": [entry.start, entry.end],
        }
        if entry.path is not None:
            shown["path"] = entry.path
        if tokens:
            shown["ids"] = list(entry.ids)
        yield shown


def _show(number: int, entry: Entry, *, tokens: bool) -> None:
    finish = f" ({entry.finish.value})" if entry.finish else ""
    print(f"── {number} {_HEADINGS[entry.kind]}{finish} · tokens {entry.start:,}–{entry.end:,}")
    print(entry.text.rstrip("\n"))
    if tokens:
        print(" ".join(map(str, entry.ids)))
    print()
