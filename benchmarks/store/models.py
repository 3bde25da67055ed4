"""A random hybrid model behind the real backend, for figures in which a model has to run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models import qwen3_5

from qmlx_lsp.engine.backend import ModelInfo, Report
from qmlx_lsp.engine.mlx.backend import MlxBackend
from qmlx_lsp.engine.scripted_tokenizer import tokenizer_json
from qmlx_lsp.transcript.families import FAMILIES

VOCAB = 261  # the scripted model's tokenizer: a token per byte, and five control tokens
CONTEXT_TOKENS = 1 << 20


def hybrid(hidden: int, layers: int) -> Any:
    """Recurrent and attention layers in turn; float32, the same in every process."""
    text = {
        "model_type": "qwen3_5_text", "hidden_size": hidden, "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": hidden // 2,
        "vocab_size": VOCAB, "linear_num_value_heads": 4, "linear_num_key_heads": 2,
        "linear_key_head_dim": hidden // 4, "linear_value_head_dim": hidden // 4, "linear_conv_kernel_dim": 4,
        "full_attention_interval": 2, "tie_word_embeddings": False,
        "rope_parameters": {"type": "default", "rope_theta": 100000, "partial_rotary_factor": 0.5},
    }  # fmt: skip
    mx.random.seed(7)
    model = qwen3_5.Model(qwen3_5.ModelArgs(model_type="qwen3_5", text_config=text))
    # Large enough numbers that greedy decoding does not settle on one token.
    scale = 0.4 * (32 / hidden) ** 0.5
    model.update(tree_map(lambda w: mx.random.normal(w.shape) * scale if w.ndim > 1 else w, model.parameters()))
    model.eval()
    mx.eval(model.parameters())
    return model


class HybridBackend(MlxBackend):
    """The real backend on such a model; ``before_pass`` is called in front of every pass and may raise."""

    def __init__(self, hidden: int, layers: int, before_pass: Callable[[], None] = lambda: None) -> None:
        super().__init__(Path("unused"))
        self._make = lambda: _Watched(hybrid(hidden, layers), before_pass)

    def load(self, source: str, report: Report, cancelled: Callable[[], bool]) -> ModelInfo:
        self.use(self._make(), needs_snapshot=True)
        return ModelInfo(
            name=source, path="", fingerprint=b"h" * 16, context_tokens=CONTEXT_TOKENS, weight_bytes=0,
            eos_ids=frozenset({258, 256}), needs_snapshot=True, tokenizer_json=tokenizer_json(),
            template=FAMILIES["ChatML"][1],
        )  # fmt: skip


class _Watched:
    def __init__(self, model: Any, before_pass: Callable[[], None]) -> None:
        self._model = model
        self._before_pass = before_pass

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._before_pass()
        return self._model(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)
