"""``qmlx-lsp context``: what the model knows of the project's files, and what it will be told next."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from qmlx_lsp import paths
from qmlx_lsp.cli.client import connect
from qmlx_lsp.cli.output import json_lines
from qmlx_lsp.errors import QuestionError


def add(verbs: Any) -> None:
    parser = verbs.add_parser("context", help="show what the model knows of the project's files")
    parser.add_argument("--root", default=".", help="the project's folder (default: this one)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--file", help="print the text that the daemon holds for one file, byte for byte")
    what.add_argument("--diff", action="store_true", help="also what will be told next, as the model will see it")
    parser.add_argument("--all", action="store_true", help="also the files and folders that are left out, with why")
    parser.add_argument("--json", action="store_true", help="one JSON object per file")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    root = paths.project(given.root)
    if not root.is_dir():
        raise QuestionError(f"{root} is no folder: give the project's folder with --root.")
    params: dict[str, Any] = {"root": str(root)}
    if given.file is not None:
        params["file"] = given.file if given.file.startswith("untitled:") else str(_absolute(given.file, root))
    client = connect(paths.find(), [root], lambda _method, _params: None, wants_model=False)
    try:
        answer = client.request("qmlx/context", params)
    finally:
        client.close()
    if given.file is not None:
        _print_file(answer, as_json=given.json)
    elif given.json:
        json_lines(answer["files"])
    else:
        _show(answer, diff=given.diff, everything=given.all)
    return 0


def _absolute(file: str, root: Path) -> Path:
    """The file as it is named from here, or else from the root."""
    here = Path(file).absolute()
    return here if here.exists() or not (root / file).exists() else root / file


def _print_file(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        json_lines([answer])
    else:
        sys.stdout.buffer.write(answer["text"].encode())
        sys.stdout.buffer.flush()


def _show(answer: dict[str, Any], *, diff: bool, everything: bool) -> None:
    totals = answer["totals"]
    left_out = [file for file in answer["files"] if file["excluded"] is not None]
    files = [file for file in answer["files"] if file["excluded"] is None]
    print(f"{answer['root']}: {totals['tokens']:,} tokens, {totals['file_tokens']:,} of them about files")
    width = max((len(file["path"]) for file in files), default=0)
    for file in files:
        print(f"  {file['path']:<{width}}  {file['tokens']:>8,} tokens  {_about(file)}")
        if diff and file["pending"] is not None:
            print("".join(f"      {line}\n" for line in file["pending"].removesuffix("\n").split("\n")), end="")
    if not files:
        print("  Nothing was told of any file yet.")
    if left_out and not everything:
        print(f"  {len(left_out):,} files and folders are left out (--all shows them).")
    for file in left_out if everything else ():
        print(f"  {file['path']:<{width}}  left out: {file['excluded']}")


def _about(file: dict[str, Any]) -> str:
    parts = [file["state"]]
    if file["open"]:
        parts.append("open")
    if file["parts"] is not None:
        parts.append("shown in lines " + ", ".join(f"{first}-{last}" for first, last in file["parts"]))
    if file["pending"] is not None:
        tokens = file["pending_tokens"]
        parts.append("to be told" if tokens is None else f"{tokens:,} tokens to be told")
    return ", ".join(parts)
