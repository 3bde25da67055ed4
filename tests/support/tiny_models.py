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
from mlx_lm.models import baichuan_m1, deepseek_v32, falcon_h1, gemma3_text, gpt_oss, llama, llama4, qwen3_5
from mlx_lm.models.cache import ArraysCache, CacheList, KVCache, RotatingKVCache

from qmlx_lsp.engine.mlx.backend import MlxBackend

VOCAB = 261  # as many as the scripted tokenizer has
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


def gpt_oss_like(head_dim: int = 8) -> Any:
    """Every second layer has a window: RotatingKVCache and KVCache."""
    return gpt_oss.Model(
        gpt_oss.ModelArgs(
            num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2, vocab_size=VOCAB, hidden_size=32,
            intermediate_size=32, head_dim=head_dim, num_attention_heads=4, num_key_value_heads=2,
            sliding_window=WINDOW, layer_types=["sliding_attention", "full_attention"],
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


def wide_llama() -> Any:
    """Attention only, with keys wide enough to be quantised."""
    return llama.Model(
        llama.ModelArgs(
            model_type="llama", hidden_size=32, num_hidden_layers=2, intermediate_size=48, num_attention_heads=2,
            num_key_value_heads=1, head_dim=64, rms_norm_eps=1e-5, vocab_size=VOCAB, tie_word_embeddings=False,
        )
    )  # fmt: skip


def llama4_like() -> Any:
    """Three layers that attend to their chunk only, and a full one: ChunkedKVCache and KVCache."""
    text = {
        "model_type": "llama4_text", "attention_bias": False, "attention_chunk_size": WINDOW, "head_dim": 8,
        "hidden_size": 32, "interleave_moe_layer_step": 9, "intermediate_size": 32, "intermediate_size_mlp": 48,
        "max_position_embeddings": 4096, "num_attention_heads": 4, "num_experts_per_tok": 1, "num_hidden_layers": 4,
        "num_key_value_heads": 2, "num_local_experts": 2, "rms_norm_eps": 1e-5, "rope_scaling": None,
        "rope_theta": 10000.0, "use_qk_norm": True, "vocab_size": VOCAB,
    }  # fmt: skip
    return llama4.Model(llama4.ModelArgs(model_type="llama4", text_config=text))


def baichuan_like() -> Any:
    """CacheList of ArraysCache and KVCache in one layer, of ArraysCache and RotatingKVCache in the other."""
    return baichuan_m1.Model(
        baichuan_m1.ModelArgs(
            model_type="baichuan_m1", vocab_size=VOCAB, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, rope_theta=10000.0, sliding_window=WINDOW,
            sliding_window_layers=[1], conv_window=2, rms_norm_eps=1e-5, num_swa_attention_heads=4,
            num_swa_key_value_heads=2,
        )
    )  # fmt: skip


def falcon_like() -> Any:
    """CacheList of ArraysCache and KVCache in every layer."""
    return falcon_h1.Model(
        falcon_h1.ModelArgs(
            head_dim=8, hidden_size=32, intermediate_size=48, mamba_d_head=8, mamba_d_ssm=32, mamba_d_state=8,
            mamba_n_heads=4, num_attention_heads=4, num_hidden_layers=2, num_key_value_heads=2, vocab_size=VOCAB,
        )
    )  # fmt: skip


def deepseek_like(width: int = 16) -> Any:
    """CacheList of two KVCaches, rows only; the second one's values are nothing but zeros."""
    return deepseek_v32.Model(
        deepseek_v32.ModelArgs(
            vocab_size=VOCAB, hidden_size=32, index_head_dim=width, index_n_heads=2, index_topk=WINDOW,
            intermediate_size=48, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
            kv_lora_rank=width, q_lora_rank=16, qk_rope_head_dim=width, v_head_dim=8, qk_nope_head_dim=8,
        )
    )  # fmt: skip


class Nested:
    """The llama-like model with its caches deep in lists, beside one that nothing ever fills, and a window that keeps
    its first rows."""

    KEEP = 3

    def __init__(self) -> None:
        self.inner = llama_like()

    def __call__(self, tokens: mx.array, cache: list[Any]) -> Any:
        return self.inner(tokens, cache=[cache[0][0][1], cache[1][0]])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def make_cache(self) -> list[Any]:
        window = RotatingKVCache(WINDOW, keep=self.KEEP)
        return [CacheList(CacheList(KVCache(), KVCache())), CacheList(window, ArraysCache(2))]


MAKERS: dict[str, Callable[[], Any]] = {
    "llama": llama_like, "hybrid": qwen_hybrid, "gpt_oss": gpt_oss_like, "gemma": gemma_like, "int4": wide_llama,
    "int8": wide_llama, "llama4": llama4_like, "baichuan": baichuan_like, "falcon": falcon_like,
    "deepseek": deepseek_like, "nested": Nested,
}  # fmt: skip
KV_BITS = {"int4": 4, "int8": 8}
ROWS_ONLY = {"llama", "int4", "int8", "deepseek"}


def slow(*names: str) -> list[Any]:
    """These models in the slow check only."""
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


# These have most cache classes between them (quantised ones are quick in a few tests); the other models take part in
# the slow check.
OTHERS = ["llama", "gpt_oss", "gemma", "nested", "int4", "int8", "baichuan", "falcon", "deepseek"]
EACH = pytest.mark.parametrize("name", ["hybrid", "llama4", *slow(*OTHERS)])
# For tests that are about something else than caches.
FEW = pytest.mark.parametrize("name", ["hybrid", *slow("gpt_oss", "llama", "gemma", "llama4", "baichuan")])


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
    made = MlxBackend(Path("unused"), kv_bits=KV_BITS.get(name, 0))
    made.use(make(name, dtype=dtype), needs_snapshot=name not in ROWS_ONLY)
    return made


def ids(count: int, salt: int = 0) -> list[int]:
    """``count`` ids that look random and are the same every time."""
    return [(37 * n * n + 11 * n + 5 + 13 * salt) % VOCAB for n in range(count)]
