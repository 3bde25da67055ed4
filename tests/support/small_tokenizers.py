"""Small tokenizers with the traits that real ones have: missing bytes, normalisers, word marks, kept added tokens."""

import json
from functools import cache
from typing import Any

from qmlx_lsp.engine import scripted_tokenizer
from qmlx_lsp.transcript.encoder import Codec

SPM_CONTROL = ("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>", "<unused0>", "[multimodal]")
SPM_KEPT = ("\n\n", "▁▁", "<table>", "</h1>")


def byte_level(**changes: Any) -> str:
    """The scripted model's tokenizer (an id per byte, its value), with parts replaced."""
    return json.dumps(json.loads(scripted_tokenizer.tokenizer_json()) | changes)


@cache
def with_marks(*marks: str) -> Codec:
    """One token per byte, and one for each of ``marks``, which are control tokens."""
    described = json.loads(scripted_tokenizer.tokenizer_json())
    known = [token["content"] for token in described["added_tokens"]]
    for text in marks:
        if text not in known:
            described["added_tokens"].append(_added(256 + len(described["added_tokens"]), text, special=True))
            known.append(text)
    return Codec("bytes", json.dumps(described))


def without_bytes(*missing: int) -> str:
    """Byte-level, but some bytes have no token and there is none for the unknown: they vanish."""
    described = json.loads(scripted_tokenizer.tokenizer_json())
    symbols = scripted_tokenizer.byte_symbols()
    for byte in missing:
        del described["model"]["vocab"][symbols[byte]]
    return json.dumps(described)


def _added(index: int, text: str, *, special: bool) -> dict[str, Any]:
    return {
        "id": index, "content": text, "special": special,
        "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
    }  # fmt: skip


def spm() -> str:
    """As Gemma's: a space is ``▁``, bytes are ``<0xNN>``, control and kept added tokens are in the vocabulary too."""
    tokens = [*SPM_CONTROL, *SPM_KEPT, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "\n"]
    tokens += [chr(c) for c in range(ord("!"), ord("~") + 1)]
    vocab = {token: index for index, token in enumerate(dict.fromkeys(tokens))}
    added = [_added(vocab[t], t, special=t not in ("<unused0>", "[multimodal]")) for t in SPM_CONTROL]
    added += [_added(vocab[t], t, special=False) for t in SPM_KEPT]
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": None, "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
            {"type": "Fuse"}]},
        "model": {"type": "BPE", "dropout": None, "unk_token": "<pad>", "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                  "vocab": vocab, "merges": []},
    })  # fmt: skip
