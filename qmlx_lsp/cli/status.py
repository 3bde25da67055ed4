"""``qmlx-lsp status``: what the daemon holds. Starts nothing."""

from __future__ import annotations

import argparse
from typing import Any

from qmlx_lsp import paths
from qmlx_lsp.cli.output import json_lines, size
from qmlx_lsp.daemon.socket import ask_daemon


def add(verbs: Any) -> None:
    parser = verbs.add_parser("status", help="show the daemon, its model and its conversations")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    status = ask_daemon(paths.find(), "status")
    if given.json:
        json_lines([{"running": False} if status is None else {"running": True, **status}])
    elif status is None:
        print("No daemon is running; an editor or `qmlx-lsp ask` starts one.")
    else:
        show(status)
    return 0


def show(status: dict[str, Any]) -> None:
    model, store = status["model"], status["store"]
    percent = f" {model['percent']} %" if model["percent"] is not None and model["state"] == "loading" else ""
    print(f"daemon   pid {status['pid']}, version {status['version']}, {status['clients']} editors")
    print(f"model    {model['name']}: {model['state']}{percent}", end="")
    print(f" ({model['message']})" if model["state"] in ("loading", "failed") else "")
    if store is not None and "error" in store:
        print(f"store    {store['error']}")
    elif store is not None:
        print(
            f"store    {size(store['bytes'])} of {size(store['quota_bytes'])} in {store['segments']} segments and "
            f"{store['snapshots']} snapshots"
            + (f", {size(store['waiting_bytes'])} to be written" if store["waiting_bytes"] else "")
        )
    for conversation in status["conversations"]:
        live = f"{conversation['live_tokens']:,} live" if conversation["live"] else "not live"
        busy = ", answering" if conversation["busy"] else ""
        print(
            f"project  {conversation['root']}: {conversation['tokens']:,} tokens, {live}{busy}{_disk(conversation)}"
        )


def _disk(conversation: dict[str, Any]) -> str:
    """How the project's files are watched, where somebody works on them."""
    disk = conversation["disk"]
    if disk is None:
        return ""
    why = f": {disk['reason']}" if disk["reason"] else ""
    return f", {disk['files']:,} files on disk ({disk['state']}{why})"
