"""What a scenario can do with any server: the words that all parts of the check share.

A *target* is a server under test. A *conversation* with it begins with a context and goes on turn by turn. With a
server of the OpenAI kind the client keeps the history and sends all of it each time; a daemon that keeps the
history itself is told the new question only. What cannot be done with a target, by construction, is ``Impossible``:
it is named in the report and never counted as a success.

Invariant: a number is what the server stated, or it is None. Nothing here guesses.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from qmlx_lsp.errors import QmlxError

CUT = "cut"
PREFILL_CUT = "cut before the first token"


class CheckError(QmlxError):
    """The check itself cannot go on: the server does not answer, or an argument makes no sense."""


class Refused(CheckError):
    """The server answered a request with an error."""


class Impossible(Exception):
    """A client cannot do this with the target, by construction; ``str`` says why, as half a sentence."""


class NotTested(Exception):
    """Nothing was tried: the model or the arguments lack what it needs; ``str`` says what, as half a sentence."""


@dataclass(frozen=True, slots=True)
class Context:
    """A source file that a conversation is about."""

    name: str
    text: str


class Change(StrEnum):
    """How a request differs from the plain continuation of its conversation."""

    NONE = "nothing"
    REPEAT = "the same request again"
    FIELDS = "message ids and names of fields that are no text"
    REASONING_SENT = "thinking sent back"
    REASONING_DROPPED = "thinking not sent back"
    CALL_IDS = "ids of tool calls"
    CALL_ARGUMENTS = "arguments of a tool call, serialised anew"
    TOOL_ORDER = "order of the tools"
    NO_TOOLS = "no tools any more"
    DATE = "a date in the system text"
    BLANK = "a blank at the end of an earlier message"
    EARLY_EDIT = "a line early in the context"


class Restart(StrEnum):
    """How a server is ended before it is started again."""

    ORDERLY = "orderly"
    KILL = "kill -9"


@dataclass(frozen=True, slots=True)
class Turn:
    """One request and its answer. ``prompt`` tokens stood before the first generated one, of which ``cached`` were
    not computed. ``sent`` is what the client sent, in the order in which a prompt has it; None where the target
    keeps the history. ``ttft_s`` is the client's own time to the first piece of the reply."""

    prompt: int | None
    cached: int | None
    ttft_s: float | None
    total_s: float
    text: str
    finish: str
    tokens_out: int | None
    reasoning: str = ""
    sent: str | None = None

    @property
    def computed(self) -> int | None:
        return None if self.prompt is None or self.cached is None else self.prompt - self.cached

    @property
    def stated(self) -> bool:
        """Whether the server said what it computed."""
        return self.computed is not None

    def as_dict(self) -> dict[str, Any]:
        """For programs; of what was sent the length only, for it is megabytes."""
        return {
            "prompt": self.prompt, "cached": self.cached, "computed": self.computed,
            "source": "stated" if self.stated else "unknown",
            "ttft_s": None if self.ttft_s is None else round(self.ttft_s, 4), "total_s": round(self.total_s, 4),
            "tokens_out": self.tokens_out, "finish": self.finish, "text": self.text,
            "sent_chars": None if self.sent is None else len(self.sent),
        }  # fmt: skip


class Conversation(Protocol):
    """A conversation with the target, which grows with each ``turn``."""

    def turn(
        self, question: str, *, max_tokens: int, cut_after: int | None = None, cut_prefill_at: float | None = None
    ) -> Turn:
        """Ask. ``cut_after`` pieces of the reply the client hangs up; what it has got is part of the history.
        ``cut_prefill_at`` seconds after the request it hangs up unless the reply has begun; the question is then
        no part of the history."""
        ...

    def changed(self, question: str, change: Change, *, max_tokens: int) -> Turn:
        """Ask with ``change`` made to what was sent before; where the client keeps the history, only for once.
        Raises Impossible or NotTested."""
        ...

    def measured(self, cut: Turn, follow_up: Turn) -> Turn:
        """``cut``, a turn whose reply was cut, with the tokens of its prompt and of what there is of its reply, as
        far as they can be learnt. May ask the server more; so it comes behind all that is measured."""
        ...


class Target(Protocol):
    """A server under test."""

    name: str

    def about(self) -> dict[str, Any]:
        """What is known of it, for the report."""
        ...

    def new(self, name: str, context: Context | None, *, tools: bool = False) -> Conversation:
        """A conversation, not begun yet. ``tools``: with tools, and a call and its result in the history. Raises
        Impossible."""
        ...

    def restart(self, how: Restart) -> None:
        """Raises Impossible or NotTested."""
        ...

    def limit_store(self, share: float) -> None:
        """Restart with a quota of ``share`` of what it has on disk now. Raises Impossible."""
        ...

    def close(self) -> None: ...
