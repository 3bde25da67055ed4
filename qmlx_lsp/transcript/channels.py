"""Replies made of messages or tags whose heads the model writes itself, and how one that was cut in a head is closed.

Two grammars are in use. *Messages* (Harmony of gpt-oss, Solar, Muse): ``START role … BODY text END``; the prompt ends
in the middle of a head, and a reply may hold several messages. *Tags* (Kimi K3): ``OPEN name … SEP`` and
``CLOSE name SEP``, nested.

Invariant: what is added only completes what the model has begun; nothing is taken away, and no call becomes whole
that was not.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from qmlx_lsp.transcript.encoder import Codec

_CHANNEL, _QUIET, _ANSWER = "<|channel|>", "analysis", "final"
_OPEN, _CLOSE, _SEP = "<|open|>", "<|close|>", "<|sep|>"
_TEXT_TAG = "response"


@dataclass(frozen=True, slots=True)
class Messages:
    """Ids of the grammar of messages. ``bodies`` end a head, ``body`` is the one to end it with. ``role`` stands in
    the head of every reply. ``channel`` must be followed by a name, for which ``quiet`` will do; None where there are
    no channels."""

    start: int
    body: int
    bodies: frozenset[int]
    role: tuple[int, ...]
    channel: int | None
    quiet: tuple[int, ...]

    def closing(self, reply: Sequence[int], after: Sequence[int]) -> list[int] | None:
        """What must follow ``reply`` (its header included), which was cut off, up to the next user's text; None when
        it was not cut in a head. ``after`` follows a reply that was cut in its text."""
        start = _last(reply, {self.start})
        if start < 0 or _last(reply, self.bodies) > start:
            return None
        head = tuple(reply[start + 1 :])
        added = list(_rest(self.role, head))
        if self.channel is not None:
            if self.channel not in head:
                head = (self.channel,)
                added.append(self.channel)
            added += _rest(self.quiet, head[_last(head, {self.channel}) + 1 :])
        return [*added, self.body, *after]

    def answering(self, codec: Codec, _header: Sequence[int]) -> list[int]:
        """What leads from the head of a reply to the text of its answer."""
        named = [] if self.channel is None else [self.channel, *codec.encode_data(_ANSWER)]
        return [*named, self.body]


@dataclass(frozen=True, slots=True)
class Tags:
    """Ids of the grammar of tags."""

    open: int
    close: int
    sep: int
    codec: Codec = field(repr=False, compare=False)

    def closing(self, reply: Sequence[int], after: Sequence[int]) -> list[int] | None:
        """As ``Messages.closing``; here any reply may need it, whose tags are not those that ``after`` closes."""
        stack, half, name = self._read(reply)
        closes = self._closes(after)
        added: list[int] = []
        if half == self.open:
            lacking = _TEXT_TAG.removeprefix(name) if _TEXT_TAG.startswith(name) else ""
            stack.append((name + lacking).split(" ")[0])
            added += [*self.codec.encode_data(lacking), self.sep]
        elif half == self.close:
            lacking = stack.pop().removeprefix(name) if stack and stack[-1].startswith(name) else ""
            added += [*self.codec.encode_data(lacking), self.sep]
        names = [closed for closed, _ in closes]
        while stack and stack[-1] not in names:
            added += [self.close, *self.codec.encode_data(stack.pop()), self.sep]
        rest = next((at for closed, at in closes if stack and closed == stack[-1]), self._behind(after, closes))
        return [*added, *after[rest:]] if added or rest else None

    def answering(self, codec: Codec, header: Sequence[int]) -> list[int]:
        """As ``Messages.answering``."""
        if self.inside(header, _TEXT_TAG):
            return []
        thought = [self.close, *codec.encode_data("think"), self.sep] if self.inside(header, "think") else []
        return [*thought, self.open, *codec.encode_data(_TEXT_TAG), self.sep]

    def inside(self, ids: Sequence[int], tag: str) -> bool:
        """Whether ``tag`` is the innermost one that is open behind ``ids``."""
        return self._read(ids)[0][-1:] == [tag]

    def _read(self, ids: Sequence[int]) -> tuple[list[str], int | None, str]:
        """The tags that are open behind ``ids``; and if that is inside a tag, which kind, and its text so far."""
        stack: list[str] = []
        kind: int | None = None
        text: list[int] = []
        for token in ids:
            if token in (self.open, self.close):
                kind, text = token, []
            elif token == self.sep and kind is not None:
                if kind == self.open:
                    stack.append(self.codec.decode(text).split(" ")[0])
                elif stack:
                    stack.pop()
                kind = None
            else:
                text.append(token)
        return stack, kind, self.codec.decode(text) if kind is not None else ""

    def _closes(self, after: Sequence[int]) -> list[tuple[str, int]]:
        """Names of the tags that ``after`` closes at its head, each with the place where that begins."""
        closes: list[tuple[str, int]] = []
        at = 0
        while at < len(after) and after[at] == self.close:
            end = list(after).index(self.sep, at)
            closes.append((self.codec.decode(after[at + 1 : end]), at))
            at = end + 1
        return closes

    def _behind(self, after: Sequence[int], closes: Sequence[tuple[str, int]]) -> int:
        return list(after).index(self.sep, closes[-1][1]) + 1 if closes else 0


Channels = Messages | Tags


def find_channels(codec: Codec, prompt: str, after_reply: str) -> Channels | None:
    """The grammar of a model whose template writes ``prompt`` and ``after_reply``; None for all but a few."""
    marks = [codec.control(text) for text in (_OPEN, _CLOSE, _SEP)]
    if all(mark is not None for mark in marks) and _OPEN in prompt:
        open_, close, sep = (mark for mark in marks if mark is not None)
        return Tags(open_, close, sep, codec)
    head, after = codec.encode_fragment(prompt), codec.encode_fragment(after_reply)
    marked = [at for at, token in enumerate(after) if token in codec.control_ids]
    if len(marked) < 3 or marked[-1] != len(after) - 1 or marked[-2] == len(after) - 2:
        return None
    start, body = after[marked[-2]], after[-1]
    begun = _last(head, codec.control_ids)
    if head[begun] != start or begun == len(head) - 1:
        return None  # the prompt ends behind the head, as most do
    channel = codec.control(_CHANNEL)
    bodies = frozenset({body}) if channel is not None else codec.control_ids - {start, after[marked[0]]}
    quiet = tuple(codec.encode_data(_QUIET))
    return Messages(start, body, bodies, tuple(head[begun + 1 :]), channel, quiet)


def _rest(whole: tuple[int, ...], begun: tuple[int, ...]) -> tuple[int, ...]:
    """What ``begun`` lacks of ``whole``, if it is the beginning of it."""
    return whole[len(begun) :] if whole[: len(begun)] == begun else ()


def _last(ids: Sequence[int], wanted: Collection[int]) -> int:
    return next((at for at in range(len(ids) - 1, -1, -1) if ids[at] in wanted), -1)
