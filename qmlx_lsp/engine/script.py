"""What the scripted model says, from a file, so that tests and trials of editors get replies that fit.

    {"rules": [{"when": "text in the question", "say": "reply", "pace_ms": 20},
               {"line": "a whole line, and more\\n", "pace_ms": 0}]}

A question is answered by the first rule whose ``when`` occurs in what was asked last. At a place in code, the first
``line`` that begins with what stands there, blanks in front of it aside, gives the rest of itself. ``pace_ms`` are
milliseconds per token (one byte), so that there is something to watch, and to cancel. The file is read again when it
has changed: a test may add to it while the daemon runs.

Invariant: with a script, a place in code that no rule knows is completed with nothing; a question that no rule knows
is answered as without a script.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qmlx_lsp.errors import ModelError

ASKED_CHARS = 600
"""Characters at the end of what was told that are taken for the question."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One of ``when`` and ``line`` is a text."""

    when: str | None
    line: str | None
    say: str
    pace_s: float


@dataclass(frozen=True, slots=True)
class Reply:
    """A text, and seconds per token."""

    text: str
    pace_s: float


class Script:
    """The rules of a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read: tuple[int, int] | None = None
        self._rules: tuple[Rule, ...] = ()

    def rules(self) -> tuple[Rule, ...]:
        """As they are now. Raises ModelError with one line when the file cannot be read as a script."""
        try:
            found = self._file.stat()
            if self._read != (found.st_mtime_ns, found.st_size):
                self._rules = parse(json.loads(self._file.read_text("utf-8")))
                self._read = (found.st_mtime_ns, found.st_size)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"The script {self._file} cannot be read: {error}.") from error
        return self._rules

    def reply(self, told: str, begun: str) -> Reply | None:
        """What is said after ``told``, the last message, where ``begun`` of the reply is there already."""
        if begun:
            line = begun.rsplit("\n", 1)[-1].lstrip()
            for rule in self.rules():
                if rule.line is not None and line and rule.line.startswith(line):
                    return Reply(rule.line[len(line) :], rule.pace_s)
            return Reply("", 0.0)
        asked = told[-ASKED_CHARS:]
        for rule in self.rules():
            if rule.when is not None and rule.when in asked:
                return Reply(rule.say, rule.pace_s)
        return None


def parse(given: Any) -> tuple[Rule, ...]:
    """The rules. Raises KeyError, TypeError or ValueError: it is no script."""
    return tuple(_rule(one) for one in given["rules"])


def _rule(given: Mapping[str, Any]) -> Rule:
    when, line = given.get("when"), given.get("line")
    if (when is None) == (line is None):
        raise ValueError("a rule has either 'when' or 'line'")
    return Rule(when, line, str(given["say"]) if line is None else "", float(given.get("pace_ms", 0)) / 1000)
