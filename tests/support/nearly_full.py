"""A conversation that is nearly full, and what its next epoch looks like. A token is a byte here, so that lengths and
texts can be counted by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qmlx_lsp.session.model import SYSTEM_TEXT
from qmlx_lsp.transcript.entry import Entry
from qmlx_lsp.transcript.epoch import SUMMARY_REQUEST
from tests.support.bench import Bench, bench, quick

SYSTEM = f"<|im_start|>system\n{SYSTEM_TEXT}<|im_end|>\n<|im_start|>user\n"
SYSTEM_TOKENS = 1 + len(f"system\n{SYSTEM_TEXT}") + 1 + 1 + 1 + len("user\n")
HEADER = "<|im_end|>\n<|im_start|>assistant\n"
HEADER_TOKENS = 1 + 1 + 1 + len("assistant\n")
NEXT = "\n<|im_start|>user\n"
NEXT_TOKENS = 1 + 1 + len("user\n")
NOTE = "Note: earlier parts of this conversation are not shown, for want of room.\n"
HEAD = "Summary of the conversation so far:\n"
LIMIT = 4_096
DUE = 3_072  # three quarters of it
CHUNK = 256
# The request is behind a reply: its closing, the user's header, the text.
REQUEST_PASSES = -(-(NEXT_TOKENS + len(SUMMARY_REQUEST)) // CHUNK)
SUMMARY = "S" * 400  # so that an opening takes several passes; the system text's end comes from the disk
LONG, SHORT = "L" * 2_900, "Short?"


def epoch(b: Bench, number: int = 0) -> Sequence[Entry]:
    """An epoch's entries as the database holds them."""
    log = b.app.registry.services.log
    return log.entries(log.epochs(str(b.project))[number])


def epochs(b: Bench) -> int:
    return len(b.app.registry.services.log.epochs(str(b.project)))


async def nearly_full(b: Bench) -> None:
    """Two turns that make the next epoch due."""
    await b.ask(LONG)
    await b.ask(SHORT)
    assert len(b.ids()) >= DUE


def made(tmp_path: Path, *replies: str, **more: Any) -> Any:
    settings = quick(**{"context": {}, **more.pop("settings", {})})
    return bench(tmp_path, settings, context_tokens=LIMIT, replies=["one", "two", *replies], **more)


# Passes of a preparation, by their kind, how many of it pass before, and what is prepared then.
PHASES = [
    ("prefill", 0, "summary"),
    ("prefill", REQUEST_PASSES - 1, "summary"),
    ("decode", 0, "summary"),
    ("decode", 2, "summary"),
    ("prefill", REQUEST_PASSES, "reading"),
    ("prefill", REQUEST_PASSES + 1, "reading"),
]
