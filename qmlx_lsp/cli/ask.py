"""``qmlx-lsp ask``: one question from a terminal, streamed."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from qmlx_lsp import paths
from qmlx_lsp.cli.client import Client, connect
from qmlx_lsp.cli.output import Bar, bar, json_lines
from qmlx_lsp.errors import QuestionError
from qmlx_lsp.settings import load

_PLACE = re.compile(r"(.+?):(\d+)(?:-(\d+))?$")


def add(verbs: Any) -> None:
    parser = verbs.add_parser("ask", help="ask a question about the project in this folder")
    parser.add_argument("question", help="the question; - reads it from standard input")
    parser.add_argument("file", nargs="?", help="the file it is about, FILE or FILE:10-40 for some lines")
    parser.add_argument("--root", default=".", help="the project's folder (default: this one)")
    parser.add_argument("--max-tokens", type=int, help="tokens of the answer at most")
    parser.add_argument("--json", action="store_true", help="print the answer as one JSON object")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    root = paths.project(given.root)
    if not root.is_dir():
        raise QuestionError(f"{root} is no folder: give the project's folder with --root.")
    question = sys.stdin.read() if given.question == "-" else given.question
    params: dict[str, Any] = {"text": question, "root": str(root)}
    if given.max_tokens is not None:
        params["maxTokens"] = given.max_tokens
    if given.file:
        params |= _place(given.file)
    with bar() as shown:
        client = connect(paths.find(), [root], _Printer(shown, quiet=given.json))
        try:
            _say_if_another_model(client)
            answer = client.request("qmlx/ask", params)
        finally:
            client.close()
    if given.json:
        json_lines([answer])
    else:
        print()
        _print_usage(answer)
    return 0 if answer["finish"] != "error" else 1


def _say_if_another_model(client: Client) -> None:
    """A daemon keeps the model it was started with; whoever has just set another one wants to know."""
    running, wanted = client.request("qmlx/status", {})["model"]["name"], load(paths.find().config_file).model.name
    if running != wanted:
        note = f"the daemon was started with the model {running}; `qmlx-lsp daemon stop` lets {wanted} take over"
        print(f"qmlx-lsp: note: {note}", file=sys.stderr)


class _Printer:
    """Prints text as it comes, and loading progress on stderr."""

    def __init__(self, shown: Bar, *, quiet: bool) -> None:
        self._bar = shown
        self._quiet = quiet
        self._message = ""

    def __call__(self, method: str, params: Any) -> None:
        if method == "qmlx/stream" and not self._quiet:
            self._bar.close()
            print(params["delta"], end="", flush=True)
        elif method == "$/progress" and isinstance(params["value"], dict):
            value = params["value"]
            self._message = value.get("message") or self._message
            if value.get("kind") in ("begin", "report"):
                self._bar.update(value.get("percentage") or 0, 100, self._message)
            elif value.get("kind") == "end":
                self._bar.close()
        elif method == "window/showMessage":
            print(f"qmlx-lsp: {params['message']}", file=sys.stderr)


def _place(text: str) -> dict[str, Any]:
    """``textDocument`` and ``range`` of FILE or FILE:A-B."""
    match = None if Path(text).exists() else _PLACE.match(text)
    file = Path(match[1] if match else text).absolute()
    place: dict[str, Any] = {"textDocument": {"uri": file.as_uri()}}
    if match:
        first, last = int(match[2]), int(match[3] or match[2])
        if first < 1 or last < first:
            raise QuestionError(f"{text}: lines count from 1, the first one first.")
        place["range"] = {"start": {"line": first - 1, "character": 0}, "end": {"line": last, "character": 0}}
    return place


def _print_usage(answer: dict[str, Any]) -> None:
    usage = answer["usage"]
    first = f", first token after {usage['ttft_ms'] / 1000:.2f} s" if usage["ttft_ms"] is not None else ""
    print(
        f"[{answer['finish']}] {usage['live']:,} tokens live, {usage['restored']:,} restored, {usage['prefilled']:,} "
        f"read, {usage['generated']:,} written{first}",
        file=sys.stderr,
    )
    if answer.get("error"):
        print(f"qmlx-lsp: {answer['error']}", file=sys.stderr)
