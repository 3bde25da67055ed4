"""The embedded model's GGUF file as an ordinary mlx-lm model folder: weights, config, a rebuilt tokenizer.

Knows one architecture (Llama) and the quantisations of one file (Q4_1, Q8_0); it is no general converter.

Invariant: ``config.json`` is written last, so a folder that has one has everything.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

_LAYER_NAMES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
_TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
_CONTROL_TYPE = 3  # GGUF's token type of control tokens
_GROUP = 32  # GGUF Q4_1 and Q8_0 quantise in groups of 32


def convert(gguf: Path, folder: Path) -> None:
    """Write ``model.safetensors``, ``config.json`` and the tokenizer's files for ``gguf`` into ``folder``.

    Weights are dequantised: float32 on Linux, where MLX's quantised products run at 8 tokens/s on a CPU (measured,
    two cores), float16 on a GPU.
    """
    import mlx.core as mx

    loaded: Any = mx.load(str(gguf), return_metadata=True)
    arrays, metadata = loaded
    dtype = mx.float32 if sys.platform == "linux" else mx.float16
    weights: dict[str, mx.array] = {}
    for name in [n for n in arrays if n.endswith(".weight")]:
        stem = name.removesuffix(".weight")
        weight = arrays[name]
        if f"{stem}.scales" in arrays:
            scales, biases = arrays[f"{stem}.scales"], arrays[f"{stem}.biases"]
            bits = weight.shape[-1] * 32 // (scales.shape[-1] * _GROUP)
            weight = mx.dequantize(
                weight, scales.astype(mx.float32), biases.astype(mx.float32), group_size=_GROUP, bits=bits
            )
        weights[_hf_name(stem) + ".weight"] = weight.astype(dtype)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    _write_json(folder / "tokenizer.json", _tokenizer(metadata))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(metadata))
    _write_json(folder / "config.json", _config(metadata, "float32" if sys.platform == "linux" else "float16"))


def _hf_name(stem: str) -> str:
    if stem in _TOP_NAMES:
        return _TOP_NAMES[stem]
    _, number, part = stem.split(".", 2)
    return f"model.layers.{number}.{_LAYER_NAMES[part]}"


def _config(metadata: dict[str, Any], dtype: str) -> dict[str, Any]:
    def number(key: str) -> Any:
        return metadata[f"llama.{key}"].item()

    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": number("embedding_length"),
        "num_hidden_layers": number("block_count"),
        "intermediate_size": number("feed_forward_length"),
        "num_attention_heads": number("attention.head_count"),
        "num_key_value_heads": number("attention.head_count_kv"),
        "rms_norm_eps": round(number("attention.layer_norm_rms_epsilon"), 9),
        "vocab_size": number("vocab_size"),
        "max_position_embeddings": number("context_length"),
        "rope_theta": number("rope.freq_base"),
        "rope_traditional": True,  # GGUF stores the query and key rows in that order
        "tie_word_embeddings": True,
        "torch_dtype": dtype,
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"].item(),
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"].item(),
    }


def _tokenizer(metadata: dict[str, Any]) -> dict[str, Any]:
    """Byte-level BPE whose digits stand alone, from the GGUF's tokens and merges."""
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    kinds = metadata["tokenizer.ggml.token_type"].tolist()
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": index, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True,
            }
            for index, (token, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind == _CONTROL_TYPE
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, level],
        },
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": metadata["tokenizer.ggml.merges"],
        },
    }  # fmt: skip


def _tokenizer_config(metadata: dict[str, Any]) -> dict[str, Any]:
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]

    def special(which: str) -> str:
        index: int = metadata[f"tokenizer.ggml.{which}_token_id"].item()
        return tokens[index]

    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": metadata["llama.context_length"].item(),
        "bos_token": special("bos"),
        "eos_token": special("eos"),
        "pad_token": special("padding"),
        "unk_token": special("unknown"),
        "clean_up_tokenization_spaces": False,
        "chat_template": metadata["tokenizer.chat_template"],
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
