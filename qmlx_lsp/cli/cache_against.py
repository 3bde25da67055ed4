"""``qmlx-lsp cache explain --against FILE``: where a prompt that another program sends parts from the conversation,
and why what was read cannot be used for it.

It must never load a model, nor ask a daemon: the conversation is what is on the disk.

Invariant: the other prompt is rendered by the model's own template, on the day on which the conversation began, and
encoded as a server would do it, so that what differs is the prompt's doing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from qmlx_lsp import paths
from qmlx_lsp.cli import model_text
from qmlx_lsp.cli.model_text import ModelText
from qmlx_lsp.errors import ModelError, QuestionError, TemplateError
from qmlx_lsp.settings import Settings
from qmlx_lsp.storage import parting
from qmlx_lsp.storage.conversations import Conversation
from qmlx_lsp.storage.history import History
from qmlx_lsp.storage.parting import Parting
from qmlx_lsp.transcript import reasons
from qmlx_lsp.transcript.encoder import Codec
from qmlx_lsp.transcript.entry import Entry, Kind
from qmlx_lsp.transcript.probes import cut
from qmlx_lsp.transcript.prompt import Prompt, parse
from qmlx_lsp.transcript.reasons import Place, Reason
from qmlx_lsp.transcript.template import Messages
from qmlx_lsp.transcript.tokens import TokenLog

FILE_BYTES_MAX = 64 << 20  # of a prompt
FIRST_WORDS_CHARS = 60  # of an entry, which are shown
LOOK_TOKENS = 256  # behind the place in which the same text is looked for under other ids
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt as text and ids. The first ``messages_end`` of these are its messages; what follows is the head of the
    reply that is to come. ``render`` renders messages with variables as its own, if it has any."""

    prompt: Prompt
    ids: list[int]
    messages_end: int
    text: str
    render: Callable[[Messages, Mapping[str, Any]], str] | None


@dataclass(frozen=True, slots=True)
class Against:
    """``about`` is the prompt as a whole; ``parted``, with more about the place in ``place``, is None where none of
    the two leaves the other."""

    about: dict[str, Any]
    parted: Parting | None
    place: dict[str, Any]


def compare(
    name: str,
    *,
    generate: bool,
    settings: Settings,
    where: paths.Paths,
    conversation: Conversation,
    entries: Sequence[Entry],
    log: TokenLog,
) -> Against:
    """The prompt in the file ``name`` (``-`` is stdin) against the conversation's ``entries`` and their ``log``.

    ``generate``: whether a list of messages ends with the head of the reply that is to come.

    Raises:
        QuestionError: the file cannot be read, or holds no prompt; says where.
        ModelError: the model's folder is not there, or the conversation was made with another model.
        TemplateError: the template refuses the messages.
    """
    shown = "stdin" if name == "-" else name
    prompt = parse(_read(name, shown), shown)
    model = model_text.read(settings, where)
    if entries and entries[0].text not in model.codec.decode(entries[0].ids):
        raise ModelError(
            f"This conversation was made with another model than {model.name}: name that one ([model] name or "
            "QMLX_MODEL)."
        )
    with closing(History(where.conversations)) as history:
        began, earlier = history.began(conversation.id, conversation.epoch)
    day = datetime.fromtimestamp(began, UTC).astimezone().date()  # as a daemon on this machine knew it
    rendered = _rendered(prompt, model, day, generate=generate, thinking=settings.model.thinking)
    other = TokenLog(rendered.ids)
    same = parting.common(log.ids(), rendered.ids)
    reason = reasons.by_length(len(log), len(other), same)
    if reason is None and same >= rendered.messages_end:  # all that was said is there
        reason = reasons.by_length(len(log), rendered.messages_end, rendered.messages_end)
    parted = parting.part(log, other) if reason is None else None
    place: dict[str, Any] = {}
    if parted is not None:
        reason, place = _explained(rendered, model.codec, entries, log, parted, earlier)
    assert reason is not None, "one of them says why"
    about = {
        "file": shown,
        "form": prompt.form,
        "messages": len(prompt.messages) if prompt.messages is not None else None,
        "day": day.isoformat(),
        "tokens": len(other),
        "same": same,
        "reason": reason.cause.value,
        "why": reason.why,
    }
    return Against(about, parted, {**place, "why": reason.why} if place else {})


def _read(name: str, shown: str) -> str:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(FILE_BYTES_MAX + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise QuestionError(f"{shown} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # a NUL in the name
        raise QuestionError(f"{shown!r} cannot be read: {error}.") from error
    if len(data) > FILE_BYTES_MAX:
        raise QuestionError(f"{shown} is larger than {FILE_BYTES_MAX >> 20} MiB.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise QuestionError(f"{shown} is not UTF-8: byte {error.start} is {data[error.start]:#04x}.") from None
    if not text:
        raise QuestionError(f"{shown} is empty: there is nothing to compare.")
    return text


# --- the other prompt as ids ----------------------------------------------------------------------------------------


def _rendered(prompt: Prompt, model: ModelText, day: date, *, generate: bool, thinking: bool) -> Rendered:
    if prompt.ids is not None:
        return Rendered(prompt, list(prompt.ids), len(prompt.ids), "", None)
    if prompt.messages is None:
        assert prompt.text is not None
        ids = model.codec.encode_fragment(_SURROGATE.sub("\ufffd", prompt.text))
        return Rendered(prompt, ids, len(ids), prompt.text, None)
    template = model.template
    if template is None:
        raise ModelError(model.missing)
    # The model's own switches as a conversation has them, unless the request sets them.
    variables = cut(model.name, template, think=thinking, day=day)[0].variables

    def text_of(messages: Messages, more: Mapping[str, Any], *, ends_open: bool = False) -> str:
        text = template.render(messages, {**variables, **more}, generate=ends_open, day=day)
        return _SURROGATE.sub("\ufffd", text)

    text = text_of(prompt.messages, prompt.variables, ends_open=generate)
    ids = model.codec.encode_fragment(text)
    bare = model.codec.encode_fragment(text_of(prompt.messages, prompt.variables)) if generate else ids
    ends = len(bare) if parting.common(bare, ids) == len(bare) else len(ids)
    return Rendered(prompt, ids, ends, text, text_of)


# --- the place ------------------------------------------------------------------------------------------------------


def _explained(
    rendered: Rendered, codec: Codec, entries: Sequence[Entry], log: TokenLog, parted: Parting, earlier: int
) -> tuple[Reason, dict[str, Any]]:
    """Why they part, and where. ``earlier``: how many entries earlier epochs have."""
    number = next(n for n, entry in enumerate(entries) if parted.at < entry.end)
    entry = entries[number]
    mine, other = log.ids(), rendered.ids
    here, there = codec.decode(mine), codec.decode(other)
    at = len(_whole(codec, mine[: parted.at]))
    while here[at : at + 1] == there[at : at + 1] != "":
        at += 1
    message = _message(rendered, at)
    role = rendered.prompt.messages[message]["role"] if message is not None and rendered.prompt.messages else None
    shown = {
        "entry": {
            "entry": earlier + number + 1,
            "kind": entry.kind.value,
            "path": entry.path,
            "text": entry.text[:FIRST_WORDS_CHARS],
        },
        "message": {"message": message, "role": role} if message is not None else None,
    }
    reason = reasons.by_ids(
        mine[parted.at : parted.at + LOOK_TOKENS],
        other[parted.at : parted.at + LOOK_TOKENS],
        codec.token_bytes,
        codec.control_ids,
        reply=entry.kind is Kind.ASSISTANT,
    )
    if reason is None:
        begin = len(_whole(codec, mine[: entry.start]))
        place = Place(
            here,
            there,
            at,
            begin=begin,
            end=len(_whole(codec, mine[: entry.end])),
            kind=entry.kind,
            following=entries[number + 1].text if number + 1 < len(entries) else "",
            role=role if message is not None and _start(rendered, message) >= begin else None,
            tools=_later_without_tools(rendered, codec, mine, parted.at),
        )
        reason = reasons.by_text(place)
    return reason, shown


def _whole(codec: Codec, ids: Sequence[int]) -> str:
    """The text of ``ids``, without a character that is cut at their end."""
    return b"".join(map(codec.token_bytes, ids)).decode("utf-8", "ignore")


def _later_without_tools(rendered: Rendered, codec: Codec, mine: Sequence[int], at: int) -> bool:
    """Whether the prompt would part later if it had no list of tools."""
    prompt = rendered.prompt
    if rendered.render is None or prompt.messages is None or not prompt.variables.get("tools"):
        return False
    try:
        bare = rendered.render(prompt.messages, {**prompt.variables, "tools": None})
    except TemplateError:
        return False
    return parting.common(mine, codec.encode_fragment(bare)) > at


def _message(rendered: Rendered, at: int) -> int | None:
    """The message in which the character ``at`` stands: the first one with which as much of the text is there."""
    messages = rendered.prompt.messages
    if rendered.render is None or messages is None:
        return None
    low, high = 0, len(messages) - 1
    while low < high:
        middle = (low + high) // 2
        if _reaches(rendered, messages[: middle + 1], at):
            high = middle
        else:
            low = middle + 1
    if low and _refused(rendered, messages[:low]):
        # Whether it lies before is to be told by the text of the one before.
        text = str(messages[low - 1]["content"]).strip()
        return low if not text or text in rendered.text[:at] else low - 1
    return low


def _start(rendered: Rendered, message: int) -> int:
    """Where the message begins in the text; 0 where the template does not tell."""
    assert rendered.render is not None
    assert rendered.prompt.messages is not None
    try:
        text = rendered.render(rendered.prompt.messages[:message], rendered.prompt.variables) if message else ""
    except TemplateError:
        return 0
    return len(text) if rendered.text.startswith(text) else 0


def _reaches(rendered: Rendered, messages: Messages, at: int) -> bool:
    assert rendered.render is not None
    try:
        text = rendered.render(messages, rendered.prompt.variables)
    except TemplateError:
        return False
    return len(text) > at and text[: at + 1] == rendered.text[: at + 1]


def _refused(rendered: Rendered, messages: Messages) -> bool:
    assert rendered.render is not None
    try:
        rendered.render(messages, rendered.prompt.variables)
    except TemplateError:
        return True
    return False
