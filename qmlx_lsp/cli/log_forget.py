"""``log --new`` and ``log --forget``: through the daemon if one runs, else on the database as its one writer.

It must never start a daemon, nor make one load its model.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qmlx_lsp.cli.cache_upkeep import confirm
from qmlx_lsp.cli.client import Client
from qmlx_lsp.cli.output import json_lines, size
from qmlx_lsp.cli.stored import conversation_of, conversations
from qmlx_lsp.daemon.socket import connect
from qmlx_lsp.errors import DaemonError, QuestionError
from qmlx_lsp.paths import Paths
from qmlx_lsp.settings import GIB, load
from qmlx_lsp.storage import forgetting, survey, upkeep
from qmlx_lsp.storage.answers import Answers
from qmlx_lsp.storage.conversations import ConversationLog
from qmlx_lsp.storage.files import OsFiles
from qmlx_lsp.storage.leases import owners

NEW, FORGET = "qmlx.newConversation", "qmlx.forgetConversation"


def begin_anew(where: Paths, root: Path, *, as_json: bool) -> int:
    begun = _by_daemon(where, NEW, root)
    if begun is None:
        with _writer(where) as log:
            found = log.begin_anew(str(root))
        begun = {"root": str(root), "epoch": found.epoch if found is not None else 0}
    if as_json:
        json_lines([begun])
    elif begun["epoch"]:
        print(f"The conversation of {root} begins anew, with epoch {begun['epoch']}; `qmlx-lsp log` shows all.")
    else:
        print(f"The conversation of {root} has not begun yet.")
    return 0


def forget(where: Paths, root: Path, *, as_json: bool, yes: bool, dry_run: bool) -> int:
    found = _would_go(where, str(root))
    if not dry_run:
        confirm(f"Delete the conversation of {root} for good: {_words(found)}?", yes=yes)
        found = _by_daemon(where, FORGET, root) or _directly(where, str(root))
    if as_json:
        json_lines([{**found, "dry_run": dry_run}])
        return 0
    print(f"{'Would delete' if dry_run else 'Deleted'} the conversation of {root}: {_words(found)}.")
    if not (found["wiped"] or dry_run):
        print("Its bytes leave the database's files when the last process that reads them has closed them.")
    return 0


def _words(found: dict[str, Any]) -> str:
    return (
        f"{found['entries']:,} entries, {found['turns']:,} turns, {found['tokens']:,} tokens in {found['epochs']:,} "
        f"epochs, and {found['files']:,} checkpoint files, {size(found['bytes'])}"
    )


def _would_go(where: Paths, root: str) -> dict[str, Any]:
    """What forgetting would delete. Raises QuestionError when there is no conversation."""
    rows = []
    if where.checkpoints.is_dir():
        with upkeep.trouble(where.checkpoints):
            rows = survey.survey(OsFiles(), where.checkpoints).rows
    with conversations(where) as log:
        conversation_of(log, root)
        held = log.held(root) if log is not None else None
        assert log is not None, "there is a conversation"
        assert held is not None, "there is a conversation"
        going = upkeep.amount(forgetting.of_root(log, root, rows, owners(where.checkpoints)[0]))
    return forgetting.Forgotten(root, held, going, wiped=False).as_dict()


def _directly(where: Paths, root: str) -> dict[str, Any]:
    gone = forgetting.NOTHING
    with _writer(where) as log:
        if where.checkpoints.is_dir():
            quota = int(load(where.config_file).store.quota_gib * GIB)
            with upkeep.opened(OsFiles(), where.checkpoints, quota) as catalog:
                gone = forgetting.forget_checkpoints(log, root, catalog)
        forgotten = forgetting.forget_text(log, root, gone)
        Answers(where.answers).forget(Path(root))
    if forgotten is None:
        raise QuestionError(f"There is no conversation for {root} any more.")
    return forgotten.as_dict()


@contextmanager
def _writer(where: Paths) -> Iterator[ConversationLog]:
    """The log, written by this process alone. Raises StoreError when another one writes it."""
    if not where.conversations.exists():
        raise QuestionError(f"There is no conversation yet ({where.conversations}): ask something first.")
    log = ConversationLog(where.conversations, clock=time.time)
    try:
        log.recover()
        yield log
    finally:
        log.close()


def _by_daemon(where: Paths, command: str, root: Path) -> dict[str, Any] | None:
    """The daemon's answer to a command about ``root``; None when no daemon listens."""
    found = connect(where, "lsp")
    if found is None:
        return None
    link, greeting = found
    if not greeting.get("ok"):
        link.close()
        raise DaemonError(f"The daemon is of version {greeting.get('version')}: stop it with `qmlx-lsp daemon stop`.")
    client = Client.over_socket(link, lambda _method, _params: None)
    try:
        # Without ``initialized`` the model stays as it is.
        client.request("initialize", {"processId": os.getpid(), "rootUri": None, "capabilities": {}})
        answer: dict[str, Any] = client.request(
            "workspace/executeCommand", {"command": command, "arguments": [{"root": str(root)}]}
        )
    finally:
        client.close()
    return answer
