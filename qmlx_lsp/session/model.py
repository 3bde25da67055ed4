"""The loaded model as the session sees it: its description, and how to render for it.

Invariant: a conversation's ids belong to one *identity* (tokenizer, template, thinking mode). Under another
identity the ids would mean other text, so a new epoch begins; nothing is re-rendered.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from qmlx_lsp.engine.backend import ModelInfo
from qmlx_lsp.transcript.encoder import Codec
from qmlx_lsp.transcript.fragments import derive
from qmlx_lsp.transcript.suffix import Renderer

SYSTEM_TEXT = (
    "You are a careful programming assistant inside an editor. You are shown files of one project, later changes of "
    "them as diffs, and results of tools. Answer the latest question. Be brief and exact; show code in fenced blocks."
)


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
