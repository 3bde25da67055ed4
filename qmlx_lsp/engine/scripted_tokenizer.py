"""The tokenizer of the scripted model: one token per byte, whose id is the byte, and a few control tokens."""

from __future__ import annotations

import json
from collections.abc import Sequence

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
START_OF_TURN = 256 + CONTROL.index("<|im_start|>")
END_OF_TURN = 256 + CONTROL.index("<|im_end|>")


def byte_symbols() -> dict[int, str]:
    """The printable character that byte-level BPE uses for each byte (the GPT-2 table)."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in plain}
    for offset, byte in enumerate(byte for byte in range(256) if byte not in table):
        table[byte] = chr(256 + offset)
    return table


def tokenizer_json() -> str:
    """A ``tokenizers`` file: one token per byte (its value is its id), then the control tokens."""
    vocab = {symbol: byte for byte, symbol in byte_symbols().items()}
    added = [
        {
            "id": 256 + index, "content": text, "special": text.startswith("<|"),
            "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
        }
        for index, text in enumerate(CONTROL)
    ]  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model = {"type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": False, "ignore_merges": False}
    return json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": model | {"dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                          "end_of_word_suffix": None, "fuse_unk": False},
    })  # fmt: skip


def parts(ids: Sequence[int]) -> tuple[str, str]:
    """Of a state that is about to write: the text of the last message before the reply, and the reply as far as it
    is begun, without its role."""
    begin = START_OF_TURN
    at = len(ids)
    found: list[str] = []
    for _ in range(2):
        end = at
        at = next((place for place in range(end - 1, -1, -1) if ids[place] == begin), -1)
        text = bytes(token for token in ids[at + 1 : end] if token < 256).decode("utf-8", "replace")
        found.append(text.partition("\n")[2])
        if at < 0:
            break
    return (found[1] if len(found) > 1 else ""), found[0]
