"""A complete mlx-lm model folder around a tiny model: weights, config, tokenizer, chat template."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models import llama
from mlx_lm.tuner.utils import linear_to_lora_layers

from qmlx_lsp.engine.scripted_tokenizer import tokenizer_json

CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48,
    "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "vocab_size": 261,
    "tie_word_embeddings": True, "rope_theta": 10000.0, "rope_traditional": True, "max_position_embeddings": 512,
    "eos_token_id": [258, 256],
}  # fmt: skip
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_llama(seed: int = 3, **changes: Any) -> llama.Model:
    mx.random.seed(seed)
    model = llama.Model(llama.ModelArgs.from_dict(CONFIG | changes))
    mx.eval(model.parameters())
    return model


def write_adapter(folder: Path, *, seed: int = 5, scale: float = 20.0, **changes: Any) -> Path:
    """A LoRA adapter for the model of ``write``, as mlx-lm's training leaves one; ``changes`` go into that model's
    config."""
    folder.mkdir(parents=True)
    trained = {"rank": 2, "scale": scale, "dropout": 0.0, "keys": ["self_attn.q_proj"]}
    described = {"fine_tune_type": "lora", "num_layers": 2, "lora_parameters": trained}
    (folder / "adapter_config.json").write_text(json.dumps(described))
    model = tiny_llama(**changes)
    linear_to_lora_layers(model, 2, trained)
    mx.random.seed(seed)
    weights = {n: mx.random.normal(w.shape) for n, w in tree_flatten(model.parameters()) if "lora_" in n}
    mx.save_safetensors(str(folder / "adapters.safetensors"), weights)
    return folder


def write(
    folder: Path,
    *,
    seed: int = 3,
    template: str = CHATML,
    made_with: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """The model made with ``seed``, written to ``folder``. ``made_with`` goes into model and config, ``changes`` into
    the config only."""
    folder.mkdir(parents=True)
    changes |= made_with or {}
    weights = dict(tree_flatten(tiny_llama(seed, **(made_with or {})).parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(CONFIG | changes))
    (folder / "tokenizer.json").write_text(tokenizer_json())
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(described))
    return folder
