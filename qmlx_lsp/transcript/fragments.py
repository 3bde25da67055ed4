"""The fixed parts of a model's chat template, as ids, cut out once when the model is loaded.

Suffix-only rendering needs to know what stands before a question, between a question and its reply, and between a
reply and the next question. The template itself is asked (``probes``): a conversation of sentinel words is rendered,
and the text between them is taken. A template is usable when every part is the same at every place of the history;
it may rewrite history as it likes (drop old thinking, trim), because history is never rendered again.

Invariant: the day on which a conversation began may stand in its opening, and nowhere else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import date

from qmlx_lsp.transcript import results
from qmlx_lsp.transcript.channels import Channels, find_channels
from qmlx_lsp.transcript.encoder import Codec
from qmlx_lsp.transcript.probes import Plain, Probe, Thinking, cut, plain, thinking
from qmlx_lsp.transcript.results import Results
from qmlx_lsp.transcript.template import Template

# Two days with nothing in common, to find out where a template writes the day.
_A_DAY, _OTHER_DAY = date(2001, 2, 3), date(2034, 11, 25)
_TAG = r"(?:<[^<>\s]+>|\[[A-Z_ ]+\])"
_TAG_FIRST, _TAG_LAST = re.compile(rf"\s*({_TAG})"), re.compile(rf"({_TAG})\s*$")


@dataclass(frozen=True, slots=True)
class Fragments:
    """Ids of the fixed parts.

    ``system_before`` + system text + ``system_after`` leaves the first user turn open. ``prompt`` closes a user turn
    and opens the reply. ``after_reply`` closes a reply and opens the next user turn; it is what follows a reply that
    was cut off, its end token included. ``close_thinking`` ends a thinking block that was cut off
    (``close_thinking_line`` where that was at the beginning of a line), and ``call_end`` a call. Whether a reply
    ended inside one is told from its ids, ``prompt`` included. ``channels`` is there for models that write the heads
    of their messages themselves, ``results`` where the template has a tool role. ``dated``: the opening names a day.
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
    call_start: tuple[int, ...] = ()
    call_end: tuple[int, ...] = ()
    channels: Channels | None = None
    results: Results | None = None
    dated: bool = False


@dataclass(frozen=True, slots=True)
class Marks:
    """Texts that open and close a thinking block and a tool's call, as far as they are known of a model."""

    think: tuple[str, str] | None = None
    call: tuple[str, str] | None = None


def derive(
    name: str,
    template: Template,
    codec: Codec,
    eos_ids: frozenset[int],
    *,
    thinking: bool,
    marks: Marks = Marks(),
) -> Fragments:
    """Cut ``template`` into fragments.

    Args:
        name: the model's name, for messages.
        eos_ids: ids at which the model stops by itself.
        thinking: whether replies begin by thinking, if the template knows the difference.
        marks: what the model's library knows of its marks; else the template is asked.

    Raises:
        TemplateError: some part differs between turns, or the template refuses a plain conversation; says which.
    """
    probe, texts = cut(name, template, think=thinking, day=_A_DAY)
    dated = _dated(probe, texts)
    ids = codec.encode_fragment
    channels = find_channels(codec, texts.prompt, texts.after_reply)
    think, close = _thinking(probe, texts, marks.think, channels)
    call = marks.call if marks.call is not None and all(marks.call) else ("", "")
    after_reply = ids(texts.after_reply)
    told = results.derive(probe, texts, codec, eos_ids)
    warnings = []
    if not eos_ids.intersection(after_reply[:4]):
        warnings.append(f"{name} may stop at another token than its template writes after a reply.")
    if told is None:
        warnings.append(f"{name} has no tool role that can be used; results of tools are told as text.")
    return Fragments(
        system_before=tuple(ids(texts.system_before)),
        system_after=tuple(ids(texts.system_after)),
        prompt=tuple(ids(texts.prompt)),
        after_reply=tuple(after_reply),
        close_thinking=tuple(ids(close)),
        close_thinking_line=tuple(ids(close.removeprefix("\n"))),
        think_start=tuple(ids(think[0])),
        think_end=tuple(ids(think[1])),
        call_start=tuple(ids(call[0])),
        call_end=tuple(ids(call[1])),
        warnings=tuple(warnings),
        channels=channels,
        results=told,
        dated=dated,
    )


def opening(
    name: str, template: Template, codec: Codec, *, thinking: bool, day: date
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """``system_before`` and ``system_after`` for a conversation that begins on ``day``. Raises TemplateError."""
    _, texts = cut(name, template, think=thinking, day=day)
    return tuple(codec.encode_fragment(texts.system_before)), tuple(codec.encode_fragment(texts.system_after))


def _dated(probe: Probe, texts: Plain) -> bool:
    """Whether the opening names the day. Raises TemplateError when another part does."""
    other = plain(replace(probe, day=_OTHER_DAY))
    if (other.prompt, other.after_reply) != (texts.prompt, texts.after_reply):
        raise probe.refuse("writes the date into every turn")
    return other != texts


def _thinking(
    probe: Probe, texts: Plain, known: tuple[str, str] | None, channels: Channels | None
) -> tuple[tuple[str, str], str]:
    """The marks of a thinking block, and the text that ends one."""
    found: Thinking | None = thinking(probe, has_system=texts.has_system)
    if channels is not None:
        return ("", ""), ""  # thinking is a message or a tag like any other there
    if found is None:
        return (known, f"\n{known[1]}\n\n") if known else (("", ""), "")
    if known is None:
        first, last = _TAG_LAST.search(found.before), _TAG_FIRST.match(found.after)
        known = (first[1], last[1]) if first and last else ("", "")
    return known, found.after
