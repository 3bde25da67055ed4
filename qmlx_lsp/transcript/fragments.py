"""The fixed parts of a model's chat template, cut out once by rendering sentinels.

Suffix-only rendering needs to know what stands before a question, between a question and its reply, and between a
reply and the next question. The template itself is asked: a conversation of sentinel words is rendered, and the
text between them is taken. A template is usable when every part is the same at every place of the history; it may
rewrite history as it likes (drop old thinking, trim), because history is never rendered again.

Invariant: the template only ever sees sentinels. Data never reaches it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from qmlx_lsp.errors import TemplateError
from qmlx_lsp.transcript.encoder import Codec

# ASCII letters and digits: no trim, split, upper-free or JSON filter of a template changes them.
_SYSTEM, _THOUGHT = "Xsys0Z", "Xthk0Z"
_USERS = ("Xusr1Z", "Xusr2Z", "Xusr3Z", "Xusr4Z")
_REPLIES = ("Xast1Z", "Xast2Z", "Xast3Z")
# How much fixed text may stand between a template's end token and the next turn's data before we doubt it.
FRAGMENT_CHARS_MAX = 4096


class Template(Protocol):
    """A chat template that can be rendered; raises TemplateError when it refuses."""

    def render(self, messages: Sequence[Mapping[str, Any]], *, generate: bool, thinking: bool) -> str: ...


@dataclass(frozen=True, slots=True)
class Fragments:
    """Ids of the fixed parts.

    ``system_before`` + system text + ``system_after`` leaves the first user turn open. ``prompt`` closes a user turn
    and opens the reply. ``after_reply`` closes a reply and opens the next user turn; it is what follows a reply that
    was cut off, its end token included. ``close_thinking`` ends a thinking block that was cut off
    (``close_thinking_line`` where that was at the beginning of a line). Whether a reply ended inside one is told from
    its ids, ``prompt`` included.
    """

    system_before: tuple[int, ...]
    system_after: tuple[int, ...]
    prompt: tuple[int, ...]
    after_reply: tuple[int, ...]
    close_thinking: tuple[int, ...] = ()
    think_start: tuple[int, ...] = ()
    think_end: tuple[int, ...] = ()
    warnings: tuple[str, ...] = ()
    close_thinking_line: tuple[int, ...] = ()


def derive(
    name: str,
    template: Template,
    codec: Codec,
    eos_ids: frozenset[int],
    *,
    thinking: bool,
    think: tuple[str, str] | None = None,
) -> Fragments:
    """Cut ``template`` into fragments.

    Args:
        name: the model's name, for messages.
        eos_ids: ids at which the model stops by itself.
        thinking: whether replies begin by thinking, if the template knows the difference.
        think: texts that open and close a thinking block, if the model has them.

    Raises:
        TemplateError: some part differs between turns, or the template refuses a plain conversation; says which.
    """
    before, after, system_first = _system(name, template, thinking)
    text = template.render(_chat(system=system_first), generate=True, thinking=thinking)
    gaps = _gaps(name, text, [s for pair in zip(_USERS, _REPLIES, strict=False) for s in pair] + [_USERS[3]])
    heads, joints = gaps[0:6:2], gaps[1:6:2]
    _same(name, "the head of a reply", heads)
    after_reply = _same(name, "the end of a reply", joints)
    prompt = text[text.index(_USERS[3]) + len(_USERS[3]) :]
    _check_short_history(name, template, thinking, system_first, heads[0], after_reply, prompt)
    warnings = []
    after_ids = codec.encode_fragment(after_reply)
    if not eos_ids.intersection(after_ids[:4]):
        warnings.append(f"{name} may stop at another token than its template writes after a reply.")
    start, end = think or ("", "")
    close = _thinking_close(template, system_first) or (f"\n{end}\n\n" if end else "")
    return Fragments(
        system_before=tuple(codec.encode_fragment(before)),
        system_after=tuple(codec.encode_fragment(after)),
        prompt=tuple(codec.encode_fragment(prompt)),
        after_reply=tuple(after_ids),
        close_thinking=tuple(codec.encode_fragment(close)),
        close_thinking_line=tuple(codec.encode_fragment(close.removeprefix("\n"))),
        think_start=tuple(codec.encode_fragment(start)) if start else (),
        think_end=tuple(codec.encode_fragment(end)) if end else (),
        warnings=tuple(warnings),
    )


def _chat(turns: int = 3, *, system: bool) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": _SYSTEM}] if system else []
    for user, reply in zip(_USERS[:turns], _REPLIES, strict=False):
        messages += [{"role": "user", "content": user}, {"role": "assistant", "content": reply}]
    return [*messages, {"role": "user", "content": _USERS[turns]}]


def _system(name: str, template: Template, thinking: bool) -> tuple[str, str, bool]:  # noqa: FBT001 - passed through
    """Text before and after the system text, and whether the template takes a system message first.

    A template that has no system role, or puts it elsewhere, gets the text at the head of the first user turn.
    """
    try:
        text = template.render(_chat(system=True), generate=True, thinking=thinking)
    except TemplateError:
        text = ""
    at, user = text.find(_SYSTEM), text.find(_USERS[0])
    if 0 <= at < user and text.count(_SYSTEM) == 1:
        return text[:at], text[at + len(_SYSTEM) : user], True
    plain = template.render(_chat(system=False), generate=True, thinking=thinking)
    if plain.count(_USERS[0]) != 1:
        raise TemplateError(f"The chat template of {name} does not show a user's text once.")
    return plain[: plain.index(_USERS[0])], "\n\n", False


def _gaps(name: str, text: str, sentinels: Sequence[str]) -> list[str]:
    """The texts between neighbouring sentinels."""
    gaps, place = [], None
    for sentinel in sentinels:
        if text.count(sentinel) != 1:
            raise TemplateError(f"The chat template of {name} shows a message {text.count(sentinel)} times.")
        at = text.index(sentinel)
        if place is not None:
            if at < place:
                raise TemplateError(f"The chat template of {name} puts messages into another order.")
            gaps.append(text[place:at])
        place = at + len(sentinel)
    return gaps


def _same(name: str, part: str, found: Sequence[str]) -> str:
    first = found[0]
    for other in found[1:]:
        if other != first:
            raise TemplateError(
                f"The chat template of {name} cannot be cut into fixed parts: {part} differs between turns "
                f"({first[-60:]!r} / {other[-60:]!r})."
            )
    if len(first) > FRAGMENT_CHARS_MAX:
        raise TemplateError(f"The chat template of {name} writes {len(first)} characters as {part}.")
    return first


def _check_short_history(
    name: str,
    template: Template,
    thinking: bool,  # noqa: FBT001 - passed through
    system: bool,  # noqa: FBT001 - passed through
    head: str,
    after_reply: str,
    prompt: str,
) -> None:
    """The same parts must come out of a conversation of another length."""
    text = template.render(_chat(1, system=system), generate=True, thinking=thinking)
    wanted = _USERS[0] + head + _REPLIES[0] + after_reply + _USERS[1] + prompt
    if not text.endswith(wanted):
        raise TemplateError(
            f"The chat template of {name} cannot be cut into fixed parts: a short conversation is written otherwise."
        )


def _thinking_close(template: Template, system: bool) -> str:  # noqa: FBT001 - passed through
    """What the template writes between the thinking and the answer of the newest reply; "" if it hides thinking."""
    messages = _chat(1, system=system)[:-1]
    messages[-1] = {**messages[-1], "reasoning_content": _THOUGHT}
    try:
        text = template.render(messages, generate=False, thinking=True)
    except TemplateError:
        return ""
    at, answer = text.find(_THOUGHT), text.find(_REPLIES[0])
    return text[at + len(_THOUGHT) : answer] if 0 <= at < answer else ""
