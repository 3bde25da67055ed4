"""Does a server have one of the three bugs? ``python -m benchmarks.cachecheck URL|qmlx``.

* stability: what a client changes, or does not, makes the server read everything again;
* interrupt: the work of a cut reply, or of a cut prefill, is lost;
* poison: other conversations, or a restart, crowd out a long one.

URL is any server with ``/v1/chat/completions``; ``qmlx`` is our own daemon, in a scratch home. Tokens are those the
server states. The exit code is 1 when a bug was found, 2 when the check could not be made.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.cachecheck import interrupt, poison, stability
from benchmarks.cachecheck.conversation import CheckError, Target
from benchmarks.cachecheck.openai import OpenAI
from benchmarks.cachecheck.own import Own
from benchmarks.cachecheck.plot import KINDS, draw
from benchmarks.cachecheck.report import Report, table
from benchmarks.cachecheck.run import Control, Options, Run, control
from benchmarks.machine import machine
from benchmarks.store.figure import tell
from qmlx_lsp import paths
from qmlx_lsp.errors import QmlxError

TOKENS_MIN, TOKENS_MAX = 200, 200_000
PARTS: dict[str, Callable[[Run, Control], None]] = {
    "stability": stability.findings,
    "interrupt": interrupt.findings,
    "poison": poison.findings,
}


def main(arguments: Sequence[str] | None = None) -> int:
    given = parse(arguments)
    try:
        report = check(_target(given), given)
        if report.findings:
            print(table(report))
        if given.json:
            text = json.dumps(report.as_dict(), indent=1, ensure_ascii=False)
            Path(given.json).write_text(text + "\n", encoding="utf-8")
        if given.plot and report.findings:
            draw([report.as_dict()], Path(given.plot))
        if report.error is not None:
            raise CheckError(report.error)
    except (QmlxError, OSError) as error:
        print(f"cachecheck: {error}", file=sys.stderr)
        return 2
    return int(report.bugs)


def check(target: Target, given: argparse.Namespace, sleep: Callable[[float], None] = time.sleep) -> Report:
    """All that was asked for, at every size. The target is closed at the end, however it comes; what was found before
    an error is in the report, too."""
    load, runs, about, failed = os.getloadavg()[0], [], {"kind": target.name}, None
    try:
        for tokens in given.tokens:
            tell(f"{target.name}, contexts of {tokens:,} tokens")
            runs.append(one := Run(target, Options(tokens, given.chats, given.seed), tell, sleep))
            controlled = control(one)
            about = target.about()
            for name in given.only or PARTS:
                tell(f"{name} …")
                PARTS[name](one, controlled)
    except QmlxError as error:
        failed = str(error)
    finally:
        target.close()
    options: dict[str, Any] = {"tokens": given.tokens, "chats": given.chats, "seed": given.seed}
    return Report(
        datetime.now(UTC).date().isoformat(), machine(), (load, os.getloadavg()[0]), about, options,
        [finding for one in runs for finding in one.findings], [turn for one in runs for turn in one.turns], failed,
    )  # fmt: skip


def _target(given: argparse.Namespace) -> Target:
    if given.plot and Path(given.plot).suffix not in KINDS:
        raise CheckError(f"--plot {given.plot}: the name must end in {' or '.join(KINDS)}.")
    for option, least, most in (("tokens", TOKENS_MIN, TOKENS_MAX), ("chats", 1, 10_000)):
        values = getattr(given, option)
        for value in values if isinstance(values, list) else [values]:
            if not least <= value <= most:
                raise CheckError(f"--{option} {value} must be between {least} and {most}.")
    if given.timeout <= 0:
        raise CheckError(f"--timeout {given.timeout:g} must be more than 0 seconds.")
    if given.target == "qmlx":
        return Own(_model(given.model or "embedded"), timeout_s=given.timeout)
    try:
        extra = json.loads(given.extra) if given.extra else {}
    except ValueError as error:
        raise CheckError(f"--extra is no JSON: {error}.") from error
    if not isinstance(extra, dict):
        raise CheckError("--extra must be a JSON object.")
    return OpenAI(
        given.target, model=given.model, key=given.key, timeout_s=given.timeout, restart=given.restart, extra=extra
    )


def _model(name: str) -> str:
    """A folder, so that the scratch home has no model of its own to fetch."""
    if name == "scripted":
        return name
    from qmlx_lsp.engine.mlx.source import resolve

    where = paths.find()
    where.prepare()
    return str(resolve(name, where.models, lambda _done, _total, _what: None, lambda: False))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cachecheck", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("target", metavar="URL|qmlx", help="a server's URL, with or without /v1, or qmlx")
    add(
        "--model", metavar="NAME", help="as the server knows it (default: the first that it lists); of qmlx: embedded"
    )
    add("--tokens", metavar="N", type=int, action="append", help="tokens of a long context, several times if wanted")
    add("--chats", metavar="N", type=int, default=Options.chats, help="short unrelated chats (default: %(default)s)")
    add("--only", action="append", choices=PARTS, metavar="PART", help=f"one part: {', '.join(PARTS)}")
    add(
        "--seed", metavar="N", type=int, default=Options.seed, help="another one for a server that was checked before"
    )
    add(
        "--key",
        metavar="KEY",
        help="the server's API key (or CACHECHECK_KEY)",
        default=os.environ.get("CACHECHECK_KEY"),
    )
    add("--extra", metavar="JSON", help="an object that goes into every request")
    add("--restart", metavar="COMMAND", help="restarts the server; returns when the old one has ended")
    add("--timeout", metavar="S", type=float, default=600.0, help="seconds a server may be silent (default: 600)")
    add("--json", metavar="FILE", help="write all figures to this file")
    add("--plot", metavar="FILE", help="draw them: .svg or .png")
    given = parser.parse_args(arguments)
    given.tokens = given.tokens or [Options.tokens]
    return given


def _end(number: int, _frame: object) -> None:
    """What was started is ended, and what was found is reported."""
    raise CheckError(f"The check was stopped by {signal.Signals(number).name}.")


if __name__ == "__main__":
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, _end)
    sys.exit(main())
