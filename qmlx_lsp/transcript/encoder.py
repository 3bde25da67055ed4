"""Text to ids and back: fragments with control tokens, data never.

Two tokenizers are built from the model's own ``tokenizer.json``. The plain one encodes the template's fragments.
The data tokenizer is the same without its added tokens (except runs of white space and some HTML tags that are not
special), without Unicode normalisation and without a post-processor: file contents, diffs, tool output and
questions cannot become a control token, and decode to exactly the text that went in. The tokenizers' own switches
(``encode_special_tokens``) are not enough: non-special added tokens such as ``<think>`` pass them.

Invariant (data holds no control tokens): ``encode_data`` never returns an id of ``control_ids``.
Invariant: decoding is exact. Characters that the vocabulary cannot represent are written visibly (``\\x04``),
never dropped.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Collection, Iterable
from typing import Any

from tokenizers import Tokenizer

from qmlx_lsp.errors import TemplateError

_NORMALISERS_DROPPED = {"NFC", "NFD", "NFKC", "NFKD", "Prepend", "Strip", "Nmt"}
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
# Named one by one: ``<think>``, ``<s>`` and ``<unused7>`` look like tags as well.
_KEPT_ADDED = re.compile(
    r"[\s▁]+|</?(?:table|caption|thead|tbody|tfoot|tr|th|td|h[1-6]|blockquote|ul|ol|li|strong|em|code|pre)>"
)
_WORD_MARK = "▁"
_SURROGATE = re.compile("[\ud800-\udfff]")


class Codec:
    """Encoding and decoding for one model. Thread-safe: nothing is changed after construction.

    Raises:
        TemplateError: the tokenizer turns plain text into a control token, so that data could not be kept apart.
    """

    def __init__(self, name: str, tokenizer_json: str) -> None:
        described: dict[str, Any] = json.loads(tokenizer_json)
        added = {int(t["id"]): t for t in described.get("added_tokens") or ()}
        kept = {i for i, t in added.items() if not t.get("special") and _KEPT_ADDED.fullmatch(t["content"])}
        self._name = name
        self._plain = Tokenizer.from_str(tokenizer_json)
        self._plain.no_truncation()
        self._plain.no_padding()
        self._data = Tokenizer.from_str(json.dumps(_data_tokenizer(described, kept)))
        if any(self._data.token_to_id(added[i]["content"]) != i for i in kept):
            # Without the control tokens before them they would be numbered anew.
            kept = set()
            self._data = Tokenizer.from_str(json.dumps(_data_tokenizer(described, kept)))
        self.control_ids = frozenset(added) - kept
        self._control = {added[i]["content"]: i for i in self.control_ids}
        self._byte_level = _has_type(described.get("decoder"), "ByteLevel")
        self._texts: dict[int, str] = {i: t["content"] for i, t in added.items()}
        if not self._byte_level:  # runs of the word mark are what the model writes for runs of spaces
            self._texts |= {i: self._texts[i].replace(_WORD_MARK, " ") for i in kept}
        self._bytes: dict[int, bytes] = {}
        # Where ``▁`` stands for a space, the character itself has no token of its own, but its bytes may have.
        marks = [self._plain.token_to_id(f"<0x{byte:02X}>") for byte in _WORD_MARK.encode()]
        self._word_mark = [] if self._byte_level or None in marks else [mark for mark in marks if mark is not None]
        self._check_control()

    def control(self, text: str) -> int | None:
        """The id of the control token ``text``, if there is one."""
        return self._control.get(text)

    @property
    def controls(self) -> Collection[str]:
        """The texts of all control tokens."""
        return self._control.keys()

    def encode_fragment(self, text: str) -> list[int]:
        """Ids of a template's own text; control tokens are recognised."""
        return list(self._plain.encode(text, add_special_tokens=False).ids)

    def encode_data(self, text: str) -> list[int]:
        """Ids of text from outside, which decode to it.

        Lone surrogates become U+FFFD. What the vocabulary cannot represent is written as its bytes, ``\\xNN``.
        """
        text = _SURROGATE.sub("\ufffd", text)
        ids = self._encode(text)
        if self.decode(ids) != text:
            text = self._escape(text)
            ids = self._encode(text)
            if self.decode(ids) != text:  # each character survives alone, but not in this company
                ids = [token for character in text for token in self._encode(character)]
        if not self.control_ids.isdisjoint(ids):
            raise TemplateError(f"The tokenizer of {self._name} turns plain text into a control token.")
        return ids

    def token_bytes(self, token: int) -> bytes:
        """The UTF-8 bytes a token stands for (possibly part of a character). Unknown ids stand for nothing."""
        found = self._bytes.get(token)
        if found is None:
            found = self._bytes[token] = self._find_bytes(token)
        return found

    def data_ids(self) -> Collection[int]:
        """The ids that ``encode_data`` can return."""
        return [token for token in self._data.get_vocab().values() if token not in self.control_ids]

    def last_piece(self, text: str) -> int:
        """Where the last piece of ``text`` begins that the tokenizer looks at by itself; where it takes no pieces
        apart, its last token. In characters."""
        if self._data.pre_tokenizer is not None and self._data.normalizer is None:
            pieces = self._data.pre_tokenizer.pre_tokenize_str(text)
            return int(pieces[-1][1][0]) if pieces else 0
        offsets = self._data.encode(text, add_special_tokens=False).offsets
        return int(offsets[-1][0]) if offsets else 0

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ``ids``; a character cut short at an end shows as U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")

    def _encode(self, text: str) -> list[int]:
        if self._word_mark and _WORD_MARK in text:
            ids: list[int] = []
            for at, piece in enumerate(text.split(_WORD_MARK)):
                ids += [*(self._word_mark if at else ()), *self._encode(piece)]
            return ids
        return list(self._data.encode(text, add_special_tokens=False).ids)

    def _find_bytes(self, token: int) -> bytes:
        if token in self._texts:
            return self._texts[token].encode()
        symbol = self._plain.id_to_token(token)
        if symbol is None:
            return b""
        if self._byte_level:
            return bytes(_SYMBOL_BYTES[c] for c in symbol if c in _SYMBOL_BYTES)
        if match := _BYTE_TOKEN.fullmatch(symbol):
            return bytes.fromhex(match[1])
        return symbol.replace(_WORD_MARK, " ").encode()

    def _escape(self, text: str) -> str:
        """``text`` with every character that does not survive the round trip written as its bytes."""
        safe: dict[str, str] = {}
        for character in set(text):
            survives = self.decode(self._encode(character)) == character
            safe[character] = character if survives else "".join(f"\\x{b:02x}" for b in character.encode())
        return "".join(safe[character] for character in text)

    def _check_control(self) -> None:
        for token in self.control_ids:
            text = self._texts[token]
            if not self.control_ids.isdisjoint(self._encode(text)):
                raise TemplateError(
                    f"The tokenizer of {self._name} turns the plain text {text!r} into a control token."
                )


class TextStream:
    """The exact text of a growing list of ids: holds back the bytes of an unfinished character, nothing else."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        """The text that became certain with ``token``."""
        return self._decoder.decode(self._codec.token_bytes(token))

    @property
    def inside_character(self) -> bool:
        return bool(self._decoder.getstate()[0])

    def finish(self) -> str:
        """What is left: U+FFFD for a character that was cut off."""
        return self._decoder.decode(b"", final=True)


def _data_tokenizer(described: dict[str, Any], kept: set[int]) -> dict[str, Any]:
    data = dict(described)
    data["added_tokens"] = [t for t in described.get("added_tokens") or () if int(t["id"]) in kept]
    data["normalizer"] = _without(described.get("normalizer"), "normalizers")
    data["pre_tokenizer"] = _no_prefix_space(described.get("pre_tokenizer"))
    data["post_processor"] = None
    data["truncation"] = data["padding"] = None
    return data


def _without(step: Any, parts: str) -> Any:
    """A normaliser (or a sequence of them) less those that change the text's characters."""
    if step is None or step["type"] in _NORMALISERS_DROPPED:
        return None
    if step["type"] != "Sequence":
        return step
    left = [s for s in (_without(part, parts) for part in step[parts]) if s is not None]
    return {**step, parts: left} if left else None


def _no_prefix_space(step: Any) -> Any:
    """A pre-tokenizer that adds no space in front of the text: data may follow anything."""
    if step is None:
        return None
    if step["type"] == "Sequence":
        return {**step, "pretokenizers": [_no_prefix_space(part) for part in step["pretokenizers"]]}
    if step["type"] == "Metaspace":
        return {**step, "prepend_scheme": "never"}
    if step["type"] == "ByteLevel":
        return {**step, "add_prefix_space": False}
    return step


def _has_type(step: Any, wanted: str) -> bool:
    if step is None:
        return False
    return step["type"] == wanted or any(_has_type(part, wanted) for part in step.get("decoders", ()))


def _symbol_bytes() -> dict[str, int]:
    """Byte-level BPE's printable character for each byte, inverted (the GPT-2 table)."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(plain)]
    return {chr(byte): byte for byte in plain} | {chr(256 + n): byte for n, byte in enumerate(others)}


_SYMBOL_BYTES = _symbol_bytes()
