"""``qmlx-lsp cache``: what the checkpoint store holds, whether it is whole, and how to make room in it.

It must never make a store by looking for one: reading verbs open nothing for writing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

from qmlx_lsp import paths
from qmlx_lsp.cli import cache_explain, cache_upkeep
from qmlx_lsp.cli.output import json_lines, size
from qmlx_lsp.cli.stored import amounts, conversation_of, conversations, the_store
from qmlx_lsp.settings import GIB, load
from qmlx_lsp.storage import survey, upkeep
from qmlx_lsp.storage.files import OsFiles
from qmlx_lsp.storage.row import Kind, Row


def add(verbs: Any) -> None:
    parser = verbs.add_parser("cache", help="show, verify and clear the checkpoints on the SSD")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    def action(name: str, about: str, run: Any, *flags: tuple[str, str]) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = actions.add_parser(name, help=about)
        made.add_argument("--json", action="store_true", help="for programs")
        for flag, what in flags:
            made.add_argument(flag, action="store_true", help=what)
        made.set_defaults(run=run)
        return made

    root = "a project's folder (default: {})"
    dry = ("--dry-run", "say what would be removed, and remove nothing")
    action("ls", "what is stored of each conversation", _ls).add_argument("--root", help=root.format("all"))
    action("du", "bytes on the disk, by kind", _du)
    action(
        "verify",
        "read everything and compare checksums",
        cache_upkeep.verify,
        ("--repair", "put damaged files aside"),
    )
    unclaimed = ("--unclaimed", "also what no conversation reaches any more")
    action("gc", "remove what can never be restored", cache_upkeep.gc, dry, unclaimed)
    explaining = action("explain", "why the last answer was or was not restored", cache_explain.run)
    explaining.add_argument("--root", default=".", help=root.format("this one"))
    with_what = explaining.add_mutually_exclusive_group()
    with_what.add_argument("--with", dest="other", metavar="DIR", help="compare with that project's conversation")
    with_what.add_argument(
        "--against",
        metavar="FILE",
        help="compare with messages (JSON), a request, ids or a rendered text; - is stdin",
    )
    explaining.add_argument(
        "--generate",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="end messages of --against with the head of the reply that is to come",
    )
    forgetting = action("forget", "delete checkpoints", cache_upkeep.forget, dry, ("--yes", "do not ask"))
    which = forgetting.add_mutually_exclusive_group(required=True)
    which.add_argument("--root", help="of this project's conversation")
    which.add_argument("--all", action="store_true", help="of all conversations")


def counted(rows: list[Row]) -> dict[str, Any]:
    """What rows amount to."""
    snapshots = sum(row.kind is Kind.SNAPSHOT for row in rows)
    return {
        "segments": len(rows) - snapshots,
        "snapshots": snapshots,
        "bytes": sum(row.size for row in rows),
        "last_used": max((row.last_used for row in rows), default=None),
    }


# --- ls -------------------------------------------------------------------------------------------------------------


def _ls(given: argparse.Namespace) -> int:
    where = paths.find()
    folder = the_store(where)
    with upkeep.trouble(folder):
        rows = survey.survey(OsFiles(), folder).rows
    with conversations(where) as log:
        only = conversation_of(log, given.root).root if given.root is not None else None
        lines = upkeep.lines(log) if log is not None else []
    shown = list(_stored(rows, lines))
    if only is not None:
        shown = [one for one in shown if one["root"] == only]
    if given.json:
        json_lines(shown)
        return 0
    for one in shown:
        _show_stored(one)
    if not shown:
        print("Nothing is stored.")
    return 0


def _stored(rows: list[Row], lines: list[upkeep.Line]) -> Iterator[dict[str, Any]]:
    """One object per conversation and model, the last used first; then what belongs to none, by model."""
    found = upkeep.claims(rows, lines)
    holders = upkeep.holders(found)
    shown: list[dict[str, Any]] = []
    for claim in found:
        shared = sum(row.size for row in claim.rows if len(holders[row.id]) > 1)
        shown.append(_about(claim.line, claim.fingerprint.hex(), claim.positions, claim.rows, shared))
    stored = {claim.line.root for claim in found}
    shown += [_about(line, None, [], [], 0) for line in lines if line.root not in stored]
    yield from sorted(shown, key=lambda one: (-(one["last_used"] or 0), one["root"]))
    unclaimed = [row for row in rows if row.id not in holders]
    models: dict[bytes, list[Row]] = {}
    for row in unclaimed:
        models.setdefault(row.fingerprint, []).append(row)
    for fingerprint, some in sorted(models.items(), key=lambda item: -max(row.last_used for row in item[1])):
        yield {"root": None, "unclaimed": True, "fingerprint": fingerprint.hex(), **counted(some)}


def _about(
    line: upkeep.Line, fingerprint: str | None, positions: list[int], rows: list[Row], shared: int
) -> dict[str, Any]:
    count = counted(rows)
    return {
        "root": line.root,
        "unclaimed": False,
        "fingerprint": fingerprint,
        "epoch": line.epoch,
        "tokens": len(line.log),
        "restorable": max(positions, default=0),
        "checkpoints": len(positions),
        **count,
        "own_bytes": count["bytes"] - shared,
        "shared_bytes": shared,
    }


def _show_stored(one: dict[str, Any]) -> None:
    model = f"model {one['fingerprint'][:8]}" if one["fingerprint"] else "no model"
    files = f"{one['segments']} segments, {one['snapshots']} snapshots"
    if one["unclaimed"]:
        print(f"(no conversation) · {model}: {size(one['bytes'])} in {files}; `qmlx-lsp cache gc --unclaimed`")
        return
    print(f"{one['root']} · {model}")
    used = ago(time.time() - one["last_used"]) if one["last_used"] is not None else "never"
    shared = f", {size(one['shared_bytes'])} of them shared" if one["shared_bytes"] else ""
    print(f"    {one['restorable']:,} of {one['tokens']:,} tokens restorable, {one['checkpoints']} checkpoints")
    print(f"    {size(one['bytes'])}{shared}, {files}; last used {used}")


def ago(seconds: float) -> str:
    """A time that has passed, for people."""
    for unit, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name} ago"
    return "just now"


# --- du -------------------------------------------------------------------------------------------------------------


def _du(given: argparse.Namespace) -> int:
    where = paths.find()
    settings = load(where.config_file).store
    folder = the_store(where)
    with upkeep.trouble(folder):
        found = survey.usage(folder)
        free = OsFiles().free_bytes(folder)
    files, total = (sum(some) for some in zip(*found.values(), strict=True))
    quota, floor = int(settings.quota_gib * GIB), int(settings.free_floor_gib * GIB)
    if given.json:
        json_lines([{
            "folder": str(folder), "kinds": amounts(found), "files": files, "bytes": total, "quota_bytes": quota,
            "free_bytes": free, "free_floor_bytes": floor,
        }])  # fmt: skip
        return 0
    for kind, some in found.items():
        print(f"{kind:11} {size(some.bytes):>10}  {some.files:7,} files")
    print(f"{'total':11} {size(total):>10}  {files:7,} files in {folder}")
    print(f"{'quota':11} {size(quota):>10}  the index does not count")
    print(f"{'free':11} {size(free):>10}  on the volume; {size(floor)} stay free")
    return 0
