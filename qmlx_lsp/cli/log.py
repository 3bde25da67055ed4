"""``qmlx-lsp log``: what a project's conversation was told and answered, straight from the database."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from qmlx_lsp import paths
from qmlx_lsp.cli import log_export, log_follow, log_forget
from qmlx_lsp.cli.log_show import shower
from qmlx_lsp.errors import QuestionError
from qmlx_lsp.storage.history import Epoch, History, Told

# What goes with which way of using the verb; ``show`` is the way without a word.
_ALLOWED = {
    "show": {"json", "tokens", "limit", "epoch"},
    "follow": {"json", "tokens", "limit", "epoch"},
    "export": {"epoch", "force"},
    "new": {"json"},
    "forget": {"json", "yes", "dry_run"},
}
_OPTIONS = ("json", "tokens", "limit", "epoch", "force", "yes", "dry_run")


def add(verbs: Any) -> None:
    parser = verbs.add_parser("log", help="show, follow, export or forget the conversation of a project")
    parser.add_argument("--root", default=".", help="the project's folder (default: this one)")
    parser.add_argument("--json", action="store_true", help="one JSON object per entry")
    parser.add_argument("--tokens", action="store_true", help="with the ids of every entry")
    parser.add_argument("--limit", type=int, help="the newest entries only")
    parser.add_argument("--epoch", type=int, help="this epoch only (default: all of them)")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--follow", action="store_true", help="go on printing what is added, until Ctrl-C")
    ways.add_argument("--export", metavar="FILE", help="write it as Markdown (- is standard output)")
    ways.add_argument("--new", action="store_true", help="begin anew; what was said before stays in the log")
    ways.add_argument("--forget", action="store_true", help="delete the conversation and its checkpoints for good")
    parser.add_argument("--force", action="store_true", help="with --export: overwrite FILE")
    parser.add_argument("--yes", action="store_true", help="with --forget: do not ask")
    parser.add_argument("--dry-run", action="store_true", help="with --forget: only say what would go")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    way = next((name for name in _ALLOWED if getattr(given, name, None)), "show")
    for option in _OPTIONS:
        value = getattr(given, option)
        if value is not None and value is not False and option not in _ALLOWED[way]:  # 0 is a value
            raise QuestionError(f"--{option.replace('_', '-')} does not go with " + _words(way) + ".")
    for option in ("limit", "epoch"):
        if (getattr(given, option) or 0) < 0:
            raise QuestionError(f"--{option} is {getattr(given, option)}, but must be 0 or more.")
    where, root = paths.find(), paths.project(given.root)
    if way == "new":
        return log_forget.begin_anew(where, root, as_json=given.json)
    if way == "forget":
        return log_forget.forget(where, root, as_json=given.json, yes=given.yes, dry_run=given.dry_run)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files need not be valid Unicode
    if way == "follow":
        show = shower(as_json=given.json, tokens=given.tokens)
        return log_follow.follow(where.conversations, str(root), show, epoch=given.epoch, limit=given.limit)
    with _history(where) as history:
        epochs, entries = _read(history, str(root), given.epoch)
    if way == "export":
        log_export.export(given.export, str(root), epochs, entries, force=given.force)
        return 0
    if given.limit is not None:
        entries = entries[len(entries) - min(given.limit, len(entries)) :]
    show = shower(as_json=given.json, tokens=given.tokens)
    show.epochs(epochs, headings=len(epochs) > 1)
    for told in entries:
        show.entry(told)
    return 0


def _words(way: str) -> str:
    return f"--{way}" if way != "show" else "showing the log"


@contextmanager
def _history(where: paths.Paths) -> Iterator[History]:
    if not where.conversations.exists():
        raise QuestionError(f"There is no conversation yet ({where.conversations}): ask something first.")
    history = History(where.conversations)
    try:
        yield history
    finally:
        history.close()


def _read(history: History, root: str, epoch: int | None) -> tuple[list[Epoch], list[Told]]:
    """All epochs and entries of ``root``, or those of one ``epoch``."""
    conversation = history.find(root)
    if conversation is None:
        known = ", ".join(history.roots()) or "none"
        raise QuestionError(f"There is no conversation for {root}; there are ones for: {known}.")
    entries, epochs = history.entries(conversation), history.epochs(conversation)
    if epoch is None:
        return epochs, entries
    if all(one.number != epoch for one in epochs):
        raise QuestionError(f"There is no epoch {epoch} of {root}: they go from 0 to {epochs[-1].number}.")
    return epochs, [told for told in entries if told.epoch == epoch]
