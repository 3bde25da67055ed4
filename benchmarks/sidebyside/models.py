"""The models that both servers are given, as folders that either loads by itself.

* ``embedded``: SmolLM2-135M, attention only, 8,192 tokens at most.
* ``hybrid``: a tiny Qwen3.5-shaped model with random weights, for contexts that a real one cannot read in minutes on
  CPU cores: three gated-delta layers for each of full attention. It says digits only, which its tokenizer writes one
  by one, so a reply that a client sends back is the tokens that were generated: a server that keeps the reply's state
  finds it again. With other words it might not, and that would be the tokenizer's doing.

Invariant: the same weights in every run, made from a seed.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cachecheck.context import context
from benchmarks.cachecheck.conversation import Context
from qmlx_lsp import paths
from qmlx_lsp.engine.mlx import embedded

SEED = 7
HYBRID_TOKENS = 65_536
HIDDEN, LAYERS = 128, 8
CHARS_PER_TOKEN_MAX = 5.0
"""Of code: more than any tokenizer here needs."""


@dataclass(frozen=True, slots=True)
class Model:
    """``folder`` as mlx-lm reads it. ``sizes`` are contexts in tokens with the rounds that each is measured."""

    name: str
    folder: Path
    sizes: dict[int, int]


def embedded_folder() -> Path:
    """Fetched if it is not there, with its progress on the terminal's last line."""
    where = paths.find()
    where.prepare()
    return embedded.ensure(where.models, lambda _done, _total, _what: None, lambda: False)


def make_hybrid(folder: Path, tokenizer_of: Path) -> Path:
    """The hybrid in ``folder``, with the tokenizer and template of another model. Loads MLX."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.models import qwen3_5

    folder.mkdir(parents=True)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer_of / file, folder / file)
    known = json.loads((tokenizer_of / "config.json").read_text(encoding="utf-8"))
    config = _config(int(known["vocab_size"]), known["eos_token_id"])
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    mx.random.seed(SEED)
    model = qwen3_5.Model(qwen3_5.ModelArgs(model_type="qwen3_5", text_config=config["text_config"]))
    weights = dict(tree_flatten(model.parameters()))
    (head,) = (name for name in weights if name.endswith("lm_head.weight"))
    weights[head] = _digits_only(weights[head].shape, folder / "tokenizer.json")
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    return folder


def _config(vocabulary: int, end: Any) -> dict[str, Any]:
    return {
        "model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"], "eos_token_id": end,
        "text_config": {
            "model_type": "qwen3_5_text", "hidden_size": HIDDEN, "intermediate_size": 2 * HIDDEN,
            "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": HIDDEN // 4,
            "vocab_size": vocabulary, "linear_num_value_heads": 4, "linear_num_key_heads": 2,
            "linear_key_head_dim": HIDDEN // 4, "linear_value_head_dim": HIDDEN // 4, "linear_conv_kernel_dim": 4,
            "full_attention_interval": 4, "tie_word_embeddings": False, "rms_norm_eps": 1e-6,
            "max_position_embeddings": HYBRID_TOKENS, "eos_token_id": end,
            "rope_parameters": {"type": "default", "rope_theta": 100_000, "partial_rotary_factor": 0.5},
        },
    }  # fmt: skip


def _digits_only(shape: tuple[int, ...], tokenizer: Path) -> Any:
    """A head under which some digit always wins: rows in opposite pairs, all others 0."""
    import mlx.core as mx
    from tokenizers import Tokenizer

    ids = [Tokenizer.from_file(str(tokenizer)).token_to_id(digit) for digit in "0123456789"]
    half = mx.random.normal((5, shape[1]))
    head = mx.zeros(shape)
    head[mx.array(ids)] = mx.concatenate([half, -half])
    return head


def text_of(name: str, tokens: int, tokenizer: Path, seed: int) -> Context:
    """Whole lines of code, together at most ``tokens`` of this tokenizer, and less than a line fewer."""
    from tokenizers import Tokenizer

    lines = context(name, round(tokens * CHARS_PER_TOKEN_MAX), seed).text.splitlines(keepends=True)
    encoded = Tokenizer.from_file(str(tokenizer)).encode_batch(lines, add_special_tokens=False)
    kept, left = [], tokens
    for line, encoding in zip(lines, encoded, strict=True):
        left -= len(encoding.ids)
        if left < 0:
            break
        kept.append(line)
    return Context(name, "".join(kept))
