"""How entries of the log are printed: short lines for people, an object each for programs.

Invariant: on a terminal nothing that a file or a model has said is taken for a command to the terminal.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import orjson

from qmlx_lsp.storage.history import Epoch, Told
from qmlx_lsp.transcript.entry import Finish, Kind

_HEADINGS = {Kind.SYSTEM: "system", Kind.CONTEXT: "context", Kind.QUESTION: "you", Kind.ASSISTANT: "qmlx"}
_WHY = {"": "", "full": "the one before was full", "new": "begun anew", "model": "for another model"}
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"


class Show(Protocol):
    """``epochs`` comes first, and again when there are more. A reply that still grows comes again and again with
    ``growing`` and then once with ``entry``, or is taken back with ``withdrawn``."""

    def epochs(self, epochs: Sequence[Epoch], *, headings: bool) -> None: ...
    def entry(self, told: Told) -> None: ...
    def growing(self, told: Told) -> None: ...
    def withdrawn(self) -> None: ...


def shower(*, as_json: bool, tokens: bool) -> Show:
    return Objects(tokens=tokens) if as_json else Lines(tokens=tokens)


def local_time(seconds: float) -> str:
    """To the minute, by the user's clock."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def why(epoch: Epoch) -> str:
    """Why an epoch began, for people; empty for the first one."""
    return _WHY.get(epoch.why, epoch.why)


def visible(text: str) -> str:
    """``text`` with every control character as a character that shows; line ends and tabs stay."""
    return text.replace("\r\n", "\n").translate(_VISIBLE)


_VISIBLE = {
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"},
    127: "␡",
    **{code: f"\\x{code:02x}" for code in range(0x80, 0xA0)},
    **{code: f"\\u{code:04x}" for code in range(0xD800, 0xE000)},
}


class Objects:
    """One JSON object per line; a reply when it is finished."""

    def __init__(self, *, tokens: bool) -> None:
        self._tokens = tokens

    def epochs(self, epochs: Sequence[Epoch], *, headings: bool) -> None:
        return None

    def entry(self, told: Told) -> None:
        sys.stdout.buffer.write(_dump(_object(told, tokens=self._tokens)) + b"\n")
        sys.stdout.buffer.flush()

    def growing(self, told: Told) -> None:
        return None

    def withdrawn(self) -> None:
        return None


def _object(told: Told, *, tokens: bool) -> dict[str, Any]:
    entry = told.entry
    shown: dict[str, Any] = {
        "entry": told.number,
        "kind": entry.kind.value,
        "finish": entry.finish.value if entry.finish else None,
        "text": entry.text,
        "span": [entry.start, entry.end],
        "epoch": told.epoch,
        "carried": told.carried,
    }
    there = {"turn": told.turn, "path": entry.path, "tool": entry.tool}
    shown |= {name: value for name, value in there.items() if value is not None}
    if tokens:
        shown["ids"] = list(entry.ids)
    return shown


def _dump(value: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # a name that is no valid Unicode; escaped it comes through
        return json.dumps(value).encode()


class Lines:
    """For people. ``terminal``: bold headings, and control characters made visible."""

    def __init__(self, *, tokens: bool, terminal: bool | None = None) -> None:
        self._tokens = tokens
        self._terminal = sys.stdout.isatty() if terminal is None else terminal
        self._bold = self._terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        self._epochs: dict[int, Epoch] = {}
        self._headings = False
        self._epoch: int | None = None
        self._grown: Told | None = None

    def epochs(self, epochs: Sequence[Epoch], *, headings: bool) -> None:
        self._epochs = {epoch.number: epoch for epoch in epochs}
        self._headings = headings

    def entry(self, told: Told) -> None:
        if self._grown is not None and self._grown.row == told.row:
            self._more(told)
            finish = told.entry.finish
            self._print("" if finish in (None, Finish.COMPLETE) else f"\n({finish.value})")
            self._grown = None
        else:
            self.withdrawn()
            self._begin(told)
            self._print(self._clean(told.entry.text.rstrip("\n")) or "(no text)")
        if self._tokens:
            self._print(" ".join(map(str, told.entry.ids)))
        self._print("")

    def growing(self, told: Told) -> None:
        if self._grown is None or self._grown.row != told.row:
            if not told.entry.text:
                return  # it may come to nothing
            self.withdrawn()
            self._begin(told, growing=True)
        self._more(told)
        self._grown = told

    def withdrawn(self) -> None:
        if self._grown is not None:
            self._print("\n(withdrawn)\n")
            self._grown = None

    def _more(self, told: Told) -> None:
        """What has come since. What was shown is the beginning of it, but for line ends that hold on until more is
        known."""
        shown = "" if self._grown is None else self._grown.entry.text.rstrip("\n")
        sys.stdout.write(self._clean(told.entry.text.rstrip("\n")[len(shown) :]))
        sys.stdout.flush()

    def _begin(self, told: Told, *, growing: bool = False) -> None:
        if self._epoch != told.epoch:
            self._epoch = told.epoch
            if self._headings:
                self._head("══ " + _about(self._epochs[told.epoch]))
                self._print("")
        entry = told.entry
        marks = [entry.finish.value] if entry.finish and not growing else []
        marks += ["said before"] if told.carried else []
        marked = f" ({', '.join(marks)})" if marks else ""
        end = "" if growing else f"{entry.end:,}"
        self._head(f"── {told.number} {_HEADINGS[entry.kind]}{marked} · tokens {entry.start:,}–{end}")

    def _head(self, text: str) -> None:
        self._print(f"{_BOLD}{text}{_PLAIN}" if self._bold else text)

    def _print(self, text: str) -> None:
        print(text, flush=True)

    def _clean(self, text: str) -> str:
        return visible(text) if self._terminal else text


def _about(epoch: Epoch) -> str:
    parts = [f"epoch {epoch.number}", f"began {local_time(epoch.created)}", why(epoch)]
    if epoch.opening:
        parts.append(f"its first {epoch.opening:,} tokens repeat what was said before")
    return " · ".join(part for part in parts if part)
