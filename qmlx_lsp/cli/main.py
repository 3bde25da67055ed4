"""``qmlx-lsp``: picks the verb. Imports nothing heavy before it knows which one, for editors start it all day."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from qmlx_lsp import __version__
from qmlx_lsp.errors import QmlxError

if TYPE_CHECKING:
    import argparse

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if given in (["--version"], ["-V"]):
        print(f"qmlx-lsp {__version__}")
        return 0
    try:
        if not given or (given[0].startswith("--") and not {"--stdio", "--no-daemon"}.isdisjoint(given)):
            return _language_server(given)
        return _verb(given)
    except QmlxError as error:
        print(f"qmlx-lsp: {error}", file=sys.stderr)
        return EXIT_ERROR
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 1


def _language_server(given: list[str]) -> int:
    from qmlx_lsp import paths

    if "--no-daemon" in given:
        from qmlx_lsp.cli.daemon import serve_stdio

        return serve_stdio(paths.find())
    from qmlx_lsp.daemon.connector import run

    return run(paths.find())  # clients may add arguments of their own, such as --clientProcessId


def _verb(given: list[str]) -> int:
    parser = _parser()
    parsed = parser.parse_args(given)
    if not hasattr(parsed, "run"):
        parser.print_help()
        return 0
    result: int = parsed.run(parsed)
    return result


def _parser() -> argparse.ArgumentParser:
    import argparse

    from qmlx_lsp.cli import ask, cache, context, daemon, demo, doctor, log, model, status

    parser = argparse.ArgumentParser(
        prog="qmlx-lsp",
        description="A coding assistant on your own machine. Editors start it without arguments (or with --stdio).",
    )
    parser.add_argument("--version", "-V", action="version", version=f"qmlx-lsp {__version__}")
    parser.add_argument("--stdio", action="store_true", help="serve an editor over stdin and stdout (the default)")
    parser.add_argument("--no-daemon", action="store_true", help="serve an editor in this process, without a daemon")
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND")
    for verb in (ask, log, context, status, daemon, model, cache, doctor, demo):
        verb.add(verbs)
    return parser
