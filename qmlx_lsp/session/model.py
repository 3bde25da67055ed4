"""The loaded model as the session sees it: its description, and how to render for it.

Invariant: a conversation's ids belong to one *identity* (tokenizer, template, thinking mode). Under another
identity the ids would mean other text, so a new epoch begins; nothing is re-rendered.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from qmlx_lsp.engine.backend import ModelInfo
from qmlx_lsp.settings import GIB, Settings
from qmlx_lsp.transcript.encoder import Codec
from qmlx_lsp.transcript.fragments import derive
from qmlx_lsp.transcript.suffix import Renderer

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
    """``identity`` is a hex digest; see the module's invariant."""

    info: ModelInfo
    renderer: Renderer
    identity: str


def prepare(info: ModelInfo, *, thinking: bool) -> LoadedModel:
    """Derive everything needed to render for ``info``. Takes some 100 ms of CPU: call it on a thread.

    Raises:
        TemplateError: the model's template or tokenizer cannot be used; says which part.
    """
    codec = Codec(info.name, info.tokenizer_json)
    fragments = derive(info.name, info.template, codec, info.eos_ids, thinking=thinking, think=info.think)
    digest = hashlib.blake2b(info.tokenizer_json.encode(), digest_size=16)
    digest.update(repr((fragments, SYSTEM_TEXT)).encode())
    return LoadedModel(info, Renderer(fragments, codec, info.eos_ids), digest.hexdigest())
