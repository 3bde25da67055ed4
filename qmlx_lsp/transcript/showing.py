"""What a person sees of a reply while it grows.

For most models that is the exact text of the ids, their end tokens left out. Models that write the heads of their
messages (``channels``) would show these heads; instead, thinking stands between ``<think>`` and ``</think>``, a call
between ``<tool_call>`` and ``</tool_call>``, and the answer alone.

Invariant: what is shown is never read by the model; ids are the truth.
Invariant: nothing but heads, tags, end tokens and the bytes of an unfinished character is held back.
"""

from __future__ import annotations

from qmlx_lsp.transcript.channels import Channels, Messages, Tags
from qmlx_lsp.transcript.encoder import Codec, TextStream

THOUGHT_BEGIN, THOUGHT_END = "<think>\n", "\n</think>\n\n"
_THOUGHT = (THOUGHT_BEGIN, THOUGHT_END)
_CALL = ("<tool_call>", "</tool_call>\n")
_ANSWER = ("", "")
_THOUGHTS = ("analysis", "to=self", "<|think|>")


class Shown:
    """The text of one reply, fed id by id. ``silent`` ids show nothing; ``begins`` is shown in front of all, where
    the template has begun the thinking and the model only ends it."""

    def __init__(self, codec: Codec, silent: frozenset[int], channels: Channels | None, begins: str = "") -> None:
        self._codec = codec
        self._silent = silent
        self._stream = TextStream(codec)
        self._begins = begins
        self._heads: _Messages | _Tags | None = None
        if isinstance(channels, Messages):
            self._heads = _Messages(codec, channels)
        elif isinstance(channels, Tags):
            self._heads = _Tags(codec, channels)

    def add(self, token: int) -> str:
        """The text that became certain with ``token``."""
        begins, self._begins = self._begins, ""
        return begins + self._shown(token)

    def _shown(self, token: int) -> str:
        if self._heads is not None:
            shown = self._heads.add(token)
            if shown is not None:
                return shown
        return "" if token in self._silent else self._stream.add(token)

    def finish(self) -> str:
        """What is left, and the end of what was cut off."""
        return self._stream.finish() + (self._heads.finish() if self._heads is not None else "")


class _Messages:
    """Heads of the grammar of messages; the prompt ends inside one."""

    def __init__(self, codec: Codec, grammar: Messages) -> None:
        self._codec = codec
        self._grammar = grammar
        self._head: list[int] | None = []
        self._kind = _ANSWER

    def add(self, token: int) -> str | None:
        """What is shown for a token of a head, or one that ends a message; None for one of the text."""
        if self._head is not None:
            return self._in_head(token, self._head)
        if token not in self._codec.control_ids:
            return None
        closed, self._kind = self._kind[1], _ANSWER
        self._head = []
        return closed

    def _in_head(self, token: int, head: list[int]) -> str:
        if token == self._grammar.start:
            head.clear()
        elif token in self._grammar.bodies:
            self._kind = self._kind_of(self._codec.decode([*head, token]))
            self._head = None
            return self._kind[0]
        else:
            head.append(token)
        return ""

    @staticmethod
    def _kind_of(head: str) -> tuple[str, str]:
        if any(word in head for word in _THOUGHTS):
            return _THOUGHT
        recipient = head.partition("to=")[2].partition("<")[0].split(" ")[0]
        if (recipient and recipient != "user") or "tool_calls" in head:
            return f"{_CALL[0]}{recipient}\n" if recipient else _CALL[0], _CALL[1]
        return _ANSWER

    def finish(self) -> str:
        return self._kind[1]


class _Tags:
    """The grammar of tags; the prompt ends behind one."""

    def __init__(self, codec: Codec, grammar: Tags) -> None:
        self._codec = codec
        self._grammar = grammar
        self._tag: list[int] | None = None
        self._opens = False

    def add(self, token: int) -> str | None:
        if token in (self._grammar.open, self._grammar.close):
            self._tag, self._opens = [], token == self._grammar.open
            return ""
        if self._tag is None:
            return None
        if token != self._grammar.sep:
            self._tag.append(token)
            return ""
        text, self._tag = self._codec.decode(self._tag), None
        name = text.split(" ")[0]
        if name == "think":
            return _THOUGHT[0] if self._opens else _THOUGHT[1]
        if name in ("response", "message"):
            return ""
        return f"<{text}>" if self._opens else f"</{name}>"

    def finish(self) -> str:
        return ""
