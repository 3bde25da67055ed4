"""A GGUF file becomes a folder that computes what the GGUF's weights say: shown on a tiny model made here."""

import json

import mlx.core as mx
from mlx.utils import tree_flatten

from qmlx_lsp.engine.mlx.backend import MlxBackend
from qmlx_lsp.engine.mlx.gguf import convert
from qmlx_lsp.engine.scripted_tokenizer import CONTROL, byte_symbols
from qmlx_lsp.transcript.encoder import Codec
from tests.support import model_folder

# GGUF's names of mlx-lm's parameters, by hand.
NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if not stem.startswith("model.layers."):
        return f"{NAMES[stem]}.weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{NAMES[part]}.weight"


def write_gguf(path) -> None:
    weights = {gguf_name(name): array for name, array in tree_flatten(model_folder.tiny_llama().parameters())}
    symbols = byte_symbols()
    tokens = [*(symbols[byte] for byte in range(255)), "ab", *CONTROL]  # no token for the byte 0xFF

    def number(value) -> mx.array:
        return mx.array(value, dtype=mx.float32 if isinstance(value, float) else mx.uint32)

    metadata = {
        "llama.embedding_length": number(32), "llama.block_count": number(2),
        "llama.feed_forward_length": number(48), "llama.attention.head_count": number(4),
        "llama.attention.head_count_kv": number(2), "llama.attention.layer_norm_rms_epsilon": number(1e-5),
        "llama.vocab_size": number(261), "llama.context_length": number(512), "llama.rope.freq_base": number(10000.0),
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.token_type": mx.array([1] * 256 + [3] * 5, dtype=mx.int32),
        "tokenizer.ggml.bos_token_id": number(257), "tokenizer.ggml.eos_token_id": number(258),
        "tokenizer.ggml.unknown_token_id": number(256), "tokenizer.ggml.padding_token_id": number(258),
        "tokenizer.chat_template": model_folder.CHATML,
    }  # fmt: skip
    mx.save_gguf(str(path), weights, metadata)


def test_converted_model_computes_the_same(tmp_path):
    write_gguf(tmp_path / "tiny.gguf")
    (tmp_path / "tiny").mkdir()
    convert(tmp_path / "tiny.gguf", tmp_path / "tiny")
    backend = MlxBackend(tmp_path)
    info = backend.load(str(tmp_path / "tiny"), lambda *_report: None, lambda: False)
    assert (info.context_tokens, info.eos_ids) == (512, {258})
    want = model_folder.tiny_llama()(mx.array([[1, 2, 3]]))[0, -1].tolist()
    got = backend.logits(backend.new_state(), [1, 2, 3]).cast("f").tolist()
    assert max(abs(a - b) for a, b in zip(got, want, strict=True)) < 1e-2  # float16 weights on macOS
    assert info.template == model_folder.CHATML


def test_control_tokens_are_special_and_the_rest_is_plain(tmp_path):
    write_gguf(tmp_path / "tiny.gguf")
    (tmp_path / "tiny").mkdir()
    convert(tmp_path / "tiny.gguf", tmp_path / "tiny")
    made = json.loads((tmp_path / "tiny" / "tokenizer.json").read_text())
    assert [(t["id"], t["content"], t["special"]) for t in made["added_tokens"]] == [
        (256 + at, text, True) for at, text in enumerate(CONTROL)
    ]
    assert Codec("tiny", json.dumps(made)).encode_data("abc\nab12") == [255, *b"c\n", 255, *b"12"]
    described = json.loads((tmp_path / "tiny" / "tokenizer_config.json").read_text())
    assert (described["eos_token"], described["bos_token"]) == ("<|im_end|>", "<|im_start|>")
