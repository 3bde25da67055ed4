"""``qmlx-lsp daemon start|stop|status|run``."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from typing import Any

from qmlx_lsp import paths
from qmlx_lsp.cli import status as status_verb
from qmlx_lsp.cli.output import json_lines
from qmlx_lsp.daemon.connector import refuse, take_stdout
from qmlx_lsp.daemon.socket import ask_daemon, connect_or_start, running, stop
from qmlx_lsp.errors import DaemonError, QmlxError
from qmlx_lsp.paths import Paths
from qmlx_lsp.settings import load


def add(verbs: Any) -> None:
    parser = verbs.add_parser("daemon", help="start, stop, run or look at the daemon")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    actions.add_parser("start", help="start it in the background").set_defaults(run=_start)
    stopping = actions.add_parser("stop", help="let it finish writing and end it")
    stopping.add_argument("--force", action="store_true", help="end it at once if it does not answer")
    stopping.set_defaults(run=_stop)
    actions.add_parser("run", help="run it in this terminal").set_defaults(run=_run)
    looking = actions.add_parser("status", help="is it running, with what")
    looking.add_argument("--json", action="store_true", help="as one JSON object")
    looking.set_defaults(run=_status)


def _start(_given: argparse.Namespace) -> int:
    where = paths.find()
    where.prepare()
    load(where.config_file)
    connect_or_start(where).close()
    found = ask_daemon(where, "status")
    print(f"The daemon runs (pid {found['pid'] if found else 'unknown'}).")
    return 0


def _stop(given: argparse.Namespace) -> int:
    where = paths.find()
    try:
        print("The daemon has stopped." if stop(where) else "No daemon is running.")
    except DaemonError:
        if not given.force:
            raise
        _kill(where)
        print("The daemon was ended by force.")
    return 0


def _kill(where: Paths) -> None:
    """End the process that holds the daemon's lock; its pid stands in the lock file."""
    if running(where):
        os.kill(int(where.lock.read_text(encoding="ascii").strip()), signal.SIGKILL)


def _status(given: argparse.Namespace) -> int:
    found = ask_daemon(paths.find(), "status")
    if found is None:
        if given.json:
            json_lines([{"running": False}])
        else:
            print("No daemon is running.")
        return 0
    if given.json:
        json_lines(
            [{"running": True, **found, "model": found["model"]["name"], "model_state": found["model"]["state"]}]
        )
    else:
        status_verb.show(found)
    return 0


def _run(_given: argparse.Namespace) -> int:
    from qmlx_lsp.app import configure_logging, run_daemon

    where = paths.find()
    where.prepare()
    settings = load(where.config_file)
    configure_logging()
    asyncio.run(run_daemon(where, settings))
    return 0


def serve_stdio(where: Paths) -> int:
    """``--no-daemon``."""
    from qmlx_lsp.app import configure_logging, run_stdio

    out = take_stdout()
    configure_logging("WARNING")
    try:
        where.prepare()
        return asyncio.run(run_stdio(where, load(where.config_file), out))
    except QmlxError as error:
        refuse(str(error), out)
        raise
