"""The loaded model as the session sees it: its description, and how to render for it.

Invariant: a conversation's ids belong to one *identity* (tokenizer, opening, how turns are parted). Under another
identity the ids would mean other text, so a new epoch begins; nothing is re-rendered.
Invariant: whether replies begin by thinking may change at any turn, where the template's opening does not say it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date

from qmlx_lsp.engine.backend import ModelInfo
from qmlx_lsp.errors import TemplateError
from qmlx_lsp.settings import GIB, Settings
from qmlx_lsp.transcript.encoder import Codec
from qmlx_lsp.transcript.families import template_for
from qmlx_lsp.transcript.fragments import Fragments, Marks, derive, opening
from qmlx_lsp.transcript.suffix import Renderer
from qmlx_lsp.transcript.template import JinjaTemplate, Template

SYSTEM_TEXT = (
    "You are a careful programming assistant inside an editor. You are shown files of one project, later changes of "
    "them as diffs, and results of tools. Answer the latest question. Be brief and exact; show code in fenced blocks."
)


# What ``memory.live_gib`` leaves to a conversation at least: with less context nobody can work, and the state of the
# conversation in use is never freed anyway.
MEMORY_TOKENS_MIN = 4_096


def context_limit(info: ModelInfo, settings: Settings) -> int:
    """Tokens that an epoch may have: what the model reads, what the user allows, what memory holds."""
    limits = [info.context_tokens]
    if settings.context.max_tokens:
        limits.append(settings.context.max_tokens)
    if info.row_bytes:
        limits.append(max(MEMORY_TOKENS_MIN, int(settings.memory.live_gib * GIB / info.row_bytes)))
    return min(limits)


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """``identity`` is a hex digest; see the module's invariants."""

    info: ModelInfo
    renderer: Renderer
    identity: str


def prepare(info: ModelInfo, *, thinking: bool, today: Callable[[], date]) -> LoadedModel:
    """Derive everything needed to render for ``info``. Takes up to seconds of CPU for a large vocabulary: call it on
    a thread. ``today`` is asked when a conversation begins, if the template tells the day.

    Raises:
        TemplateError: the model's template or tokenizer cannot be used; says which part.
    """
    codec = Codec(info.name, info.tokenizer_json)
    template = _template(info, codec)
    marks = Marks(info.think, info.call)
    fragments = derive(info.name, template, codec, info.eos_ids, thinking=thinking, marks=marks)

    def begun_today() -> tuple[Sequence[int], Sequence[int]]:
        return opening(info.name, template, codec, thinking=thinking, day=today())

    renderer = Renderer(fragments, codec, info.eos_ids, begun_today if fragments.dated else None)
    return LoadedModel(info, renderer, _identity(info, fragments))


def _template(info: ModelInfo, codec: Codec) -> Template:
    """The model's own template; without one, that of its family."""
    if isinstance(info.template, str):
        return JinjaTemplate(info.name, info.template, info.tokens)
    if info.template is not None:
        return info.template
    family = template_for(codec.controls)
    if family is None:
        raise TemplateError(
            f"The model {info.name} has no chat template, and its tokens are not those of a known family: choose a "
            "model that was trained to chat (its name often ends in -Instruct)."
        )
    return JinjaTemplate(info.name, family[1], info.tokens)


def _identity(info: ModelInfo, fragments: Fragments) -> str:
    digest = hashlib.blake2b(info.tokenizer_json.encode(), digest_size=16)
    digest.update(
        repr((fragments.system_before, fragments.system_after, fragments.after_reply, SYSTEM_TEXT)).encode()
    )
    return digest.hexdigest()
