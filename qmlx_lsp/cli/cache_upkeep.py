"""``qmlx-lsp cache verify|gc|forget``: the verbs that read every byte or take files away.

They must never need the daemon, nor stop it: it may use the same store all the while.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from qmlx_lsp import paths
from qmlx_lsp.cli.output import bar, json_lines, size
from qmlx_lsp.cli.stored import all_lines, amounts, conversation_of, conversations, the_store
from qmlx_lsp.daemon.socket import running
from qmlx_lsp.errors import QuestionError
from qmlx_lsp.settings import GIB, load
from qmlx_lsp.storage import survey, upkeep
from qmlx_lsp.storage.files import OsFiles
from qmlx_lsp.storage.row import Row
from qmlx_lsp.storage.segment import FileRejected
from qmlx_lsp.storage.survey import Findings

EXIT_DAMAGED = 1


def _open(where: paths.Paths) -> tuple[Path, OsFiles, int]:
    """The store's folder, its file system and its quota in bytes."""
    return the_store(where), OsFiles(), int(load(where.config_file).store.quota_gib * GIB)


# --- verify ---------------------------------------------------------------------------------------------------------


def verify(given: argparse.Namespace) -> int:
    where = paths.find()
    folder, fs, quota = _open(where)
    with upkeep.trouble(folder), bar() as shown:
        found = survey.verify(fs, folder, lambda done, total: shown.update(done, total, "reading the checkpoints"))
    repaired: list[str] = []
    disagree = bool(found.unlisted or found.fileless or not found.index_usable)
    if given.repair and (found.damaged or disagree):
        with upkeep.opened(fs, folder, quota) as catalog:
            repaired = upkeep.repair(catalog, fs, folder, found)
        index_repaired = disagree
    else:
        index_repaired = False
    left = [error for error in found.damaged if error.name not in repaired]
    whole = not left and (found.index_usable or index_repaired)
    if given.json:
        json_lines([{
            "ok": whole, "files": found.read.files, "bytes": found.read.bytes,
            "damaged": [
                {"file": e.name, "reason": e.reason, "detail": str(e), "repaired": e.name in repaired}
                for e in found.damaged
            ],
            "index": {
                "state": found.index, "unlisted": found.unlisted, "fileless": found.fileless,
                "contradicted": found.contradicted, "repaired": index_repaired,
            },
        }])  # fmt: skip
        return 0 if whole else EXIT_DAMAGED
    _show(found, repaired, left, index_repaired=index_repaired)
    return 0 if whole else EXIT_DAMAGED


def _show(found: Findings, repaired: list[str], left: list[FileRejected], *, index_repaired: bool) -> None:
    for error in found.damaged:
        print(f"{error.reason}: {error}" + (" (moved to quarantine)" if error.name in repaired else ""))
    if found.index != "ok":
        print(f"index: {found.index}; the next process that opens the store makes it anew from the files")
    for what, names in (("no row in the index", found.unlisted), ("a row and no file", found.fileless)):
        if names:
            print(
                f"index: {len(names)} files have {what}" + ("" if index_repaired else "; mended at the next opening")
            )
    for name in found.contradicted:
        print(f"index: its row of {name} contradicts the file" + (" (mended)" if index_repaired else ""))
    verdict = f"{len(left)} damaged; `qmlx-lsp cache verify --repair`" if left else "all checksums are right"
    if repaired and not left:
        verdict = f"{len(repaired)} damaged ones put aside"
    print(f"{found.read.files:,} files, {size(found.read.bytes)} read: {verdict}")


# --- gc and forget --------------------------------------------------------------------------------------------------

_REASONS = {
    upkeep.UNREACHABLE: "no chain of segments leads to them",
    upkeep.NO_SNAPSHOT: "no snapshot behind them",
    upkeep.UNCLAIMED: "no conversation reaches them",
    upkeep.QUOTA: "beyond the quota",
}


def gc(given: argparse.Namespace) -> int:
    where = paths.find()
    folder, fs, quota = _open(where)
    with upkeep.trouble(folder):
        left_over = survey.leftovers(folder)
    chosen = upkeep.look_for_room(
        fs, folder, quota, left_over=left_over.bytes, now=time.time(),
        claimed_by=(lambda: all_lines(where)) if given.unclaimed else None,
    )  # fmt: skip
    if not given.dry_run:
        with bar() as shown, upkeep.opened(fs, folder, quota) as catalog:
            chosen = upkeep.collect(catalog, chosen, lambda done, total: shown.update(done, total, "removing"))
    removed = {"leftovers": left_over, **{reason: upkeep.amount(rows) for reason, rows in chosen.going.items()}}
    files, total = (sum(some) for some in zip(*removed.values(), strict=True))
    kept = upkeep.amount(chosen.kept)
    if given.json:
        json_lines([{
            "dry_run": given.dry_run, "removed": amounts(removed), "files": files, "bytes": total,
            "kept": kept._asdict(),
        }])  # fmt: skip
        return 0
    for reason, some in removed.items():
        if some.files:
            print(f"{size(some.bytes):>10}  {some.files:,} files: {_REASONS.get(reason, 'left by dead processes')}")
    if kept.files:
        print(f"{size(kept.bytes):>10}  {kept.files:,} files stay for now: in use, or just written")
    print(f"{'Would remove' if given.dry_run else 'Removed'} {files:,} files, {size(total)}.")
    return 0


def forget(given: argparse.Namespace) -> int:
    where = paths.find()
    folder, fs, quota = _open(where)
    with upkeep.trouble(folder):
        rows = survey.survey(fs, folder).rows
        found = survey.usage(folder)
    going = [found["quarantine"]]
    if given.all:
        going += [found[kind] for kind in ("segments", "snapshots", "temporary")]
    else:
        rows = _of(where, given.root, rows)
        going.append(upkeep.amount(rows))
    files, total = (sum(some) for some in zip(*going, strict=True))
    of = "all conversations" if given.all else paths.project(given.root)
    if files and not given.dry_run:
        confirm(f"Delete {files:,} checkpoint files ({size(total)}) of {of}?", yes=given.yes)
        with bar() as shown, upkeep.opened(fs, folder, quota) as catalog:
            if given.all:
                catalog.forget()
            else:
                upkeep.forget(catalog, rows, lambda done, all_: shown.update(done, all_, "deleting"))
    if given.json:
        root = None if given.all else str(of)
        json_lines([{"root": root, "all": given.all, "dry_run": given.dry_run, "files": files, "bytes": total}])
        return 0
    print(f"{'Would delete' if given.dry_run else 'Deleted'} {files:,} checkpoint files, {size(total)}, of {of}.")
    print(
        "The conversation log is not touched, and the next answer reads it anew; `qmlx-lsp log --forget` deletes "
        "what was said as well."
    )
    if running(where):
        print("A daemon that runs goes on with the state in its memory, and writes it again.")
    return 0


def _of(where: paths.Paths, root: str, rows: list[Row]) -> list[Row]:
    """What goes with a project's conversation, in whatever epoch."""
    with conversations(where) as log:
        conversation = conversation_of(log, root)
        assert log is not None, "there is a conversation"
        mine = upkeep.past_and_present(log, conversation)
        others = [line for line in upkeep.lines(log) if line.root != conversation.root]
    return upkeep.forgotten(rows, mine, others)


def confirm(question: str, *, yes: bool) -> None:
    """Raises QuestionError unless the user agrees."""
    if yes:
        return
    if not os.isatty(sys.stdin.fileno()):
        raise QuestionError("Nothing was deleted: there is no terminal to ask on; give --yes (or --dry-run).")
    print(question, "[y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise QuestionError("Nothing was deleted.")
