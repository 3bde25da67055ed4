"""Tiny models with random weights, one for each kind of cache that mlx-lm makes. Milliseconds per pass on a CPU.

Invariant: a model is the same in every process (fixed seed, float32 unless asked otherwise), so what it generates
can be compared between runs.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_map
from mlx_lm.models import gemma3_text, gpt_oss, llama, qwen3_5

from qmlx_lsp.engine.mlx.backend import MlxBackend

VOCAB = 97
WINDOW = 12  # rows that the window caches keep


def llama_like() -> Any:
    """Attention only: KVCache in every layer."""
    return llama.Model(
        llama.ModelArgs(
            model_type="llama", hidden_size=32, num_hidden_layers=2, intermediate_size=48, num_attention_heads=4,
            num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=VOCAB, tie_word_embeddings=False,
        )
    )  # fmt: skip


def qwen_hybrid() -> Any:
    """Recurrent and attention layers: ArraysCache and KVCache."""
    text = {
        "model_type": "qwen3_5_text", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": VOCAB,
        "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
        "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4, "full_attention_interval": 2,
        "tie_word_embeddings": False,
        "rope_parameters": {"type": "default", "rope_theta": 100000, "partial_rotary_factor": 0.5},
    }  # fmt: skip
    return qwen3_5.Model(qwen3_5.ModelArgs(model_type="qwen3_5", text_config=text))


def gpt_oss_like() -> Any:
    """Every second layer has a window: RotatingKVCache and KVCache."""
    return gpt_oss.Model(
        gpt_oss.ModelArgs(
            num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2, vocab_size=VOCAB, hidden_size=32,
            intermediate_size=32, head_dim=8, num_attention_heads=4, num_key_value_heads=2, sliding_window=WINDOW,
            layer_types=["sliding_attention", "full_attention"],
        )
    )  # fmt: skip


def gemma_like() -> Any:
    """A window layer and a full one; a single key head, so that slices of a cache stay contiguous."""
    return gemma3_text.Model(
        gemma3_text.ModelArgs(
            model_type="gemma3_text", hidden_size=32, num_hidden_layers=2, intermediate_size=48,
            num_attention_heads=4, head_dim=8, vocab_size=VOCAB, num_key_value_heads=1, query_pre_attn_scalar=8,
            sliding_window=WINDOW, sliding_window_pattern=2,
        )
    )  # fmt: skip


MAKERS: dict[str, Callable[[], Any]] = {
    "llama": llama_like, "hybrid": qwen_hybrid, "gpt_oss": gpt_oss_like, "gemma": gemma_like,
}  # fmt: skip
# Two models have all three cache classes between them; the other two take part in the slow check.
EACH = pytest.mark.parametrize(
    "name",
    [
        "hybrid",
        "gpt_oss",
        pytest.param("llama", marks=pytest.mark.slow),
        pytest.param("gemma", marks=pytest.mark.slow),
    ],
)
NEEDS_SNAPSHOT = {"llama": False, "hybrid": True, "gpt_oss": True, "gemma": True}


@functools.cache
def make(name: str, seed: int = 7, dtype: mx.Dtype = mx.float32) -> Any:
    """The model called ``name``. Its matrices are large enough that greedy decoding does not settle on one token."""
    mx.random.seed(seed)
    model = MAKERS[name]()
    model.update(tree_map(lambda w: mx.random.normal(w.shape) * 0.4 if w.ndim > 1 else w, model.parameters()))
    model.set_dtype(dtype)
    model.eval()
    mx.eval(model.parameters())
    return model


def backend(name: str, dtype: mx.Dtype = mx.float32) -> MlxBackend:
    made = MlxBackend(Path("unused"))
    made.use(make(name, dtype=dtype), needs_snapshot=NEEDS_SNAPSHOT[name])
    return made


def ids(count: int, salt: int = 0) -> list[int]:
    """``count`` ids that look random and are the same every time."""
    return [(37 * n * n + 11 * n + 5 + 13 * salt) % VOCAB for n in range(count)]
