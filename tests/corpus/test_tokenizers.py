"""Six real tokenizers: data never becomes a control token, and comes back as it was."""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qmlx_lsp.engine.scripted_tokenizer import byte_symbols
from qmlx_lsp.transcript.encoder import Codec, TextStream
from tests.support import corpus

NAMES = (*corpus.TOKENIZERS, corpus.EMBEDDED)


@pytest.fixture(params=NAMES)
def tokenizer(request, real) -> corpus.RealTokenizer:
    return real(request.param)


@cache
def added(tokenizer: corpus.RealTokenizer) -> tuple[str, ...]:
    return tuple(token["content"] for token in json.loads(tokenizer.json)["added_tokens"])


def check(codec: Codec, *pieces: str) -> None:
    """Each piece is encoded by itself, as blocks of a conversation are."""
    ids = [token for piece in pieces for token in codec.encode_data(piece)]
    assert codec.control_ids.isdisjoint(ids), pieces
    assert codec.decode(ids) == "".join(pieces)


def test_every_added_token_as_text(tokenizer):
    for text in added(tokenizer):
        for around in (text, f" {text} ", f"\n{text}\n", f"a{text}b", text * 2):
            check(tokenizer.codec, around)


def test_every_added_token_cut_at_every_place(tokenizer):
    """As a diff or a chunk may cut it: the two halves must not come together."""
    count = 0
    for text in added(tokenizer):
        for at in range(1, len(text)):
            check(tokenizer.codec, text[:at], text[at:])
            count += 1
    assert count >= 200


def test_the_tokenizer_itself_would_take_them_for_control_tokens(tokenizer):
    """What this is about: encoded the usual way, text from a file ends a turn."""
    plain, control = tokenizer.codec._plain, tokenizer.codec.control_ids
    leaked = [
        text for text in added(tokenizer) if not control.isdisjoint(plain.encode(text, add_special_tokens=False).ids)
    ]
    assert len(leaked) == len(control)


@cache
def lacking_bytes(tokenizer: corpus.RealTokenizer) -> frozenset[int]:
    """Bytes for which a byte-level vocabulary has no token: SmolLM2 lacks 21."""
    vocabulary = json.loads(tokenizer.json)["model"]["vocab"]
    found = frozenset(byte for byte, symbol in byte_symbols().items() if symbol not in vocabulary)
    assert len(found) == 21
    return found


def _written(character: str, lacking: frozenset[int]) -> str:
    if "\ud800" <= character <= "\udfff":
        character = "\ufffd"
    encoded = character.encode()
    return character if lacking.isdisjoint(encoded) else "".join(f"\\x{byte:02x}" for byte in encoded)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_text(tokenizer, data):
    """All of Unicode, control characters and lone surrogates, with pieces of added tokens in between."""
    tokens = added(tokenizer)
    piece = st.builds(
        lambda text, a, b: text[a : b or None], st.sampled_from(tokens), st.integers(0, 12), st.integers(0, 12)
    )
    drawn = data.draw(st.lists(st.text(st.characters(), max_size=8) | st.sampled_from(tokens) | piece, max_size=8))
    lacking = lacking_bytes(tokenizer) if tokenizer.name == corpus.EMBEDDED else frozenset()
    cleaned = ["".join(_written(c, lacking) for c in text) for text in drawn]
    codec = tokenizer.codec
    ids = [codec.encode_data(text) for text in drawn]
    assert all(codec.control_ids.isdisjoint(some) for some in ids)
    assert [codec.decode(some) for some in ids] == cleaned
    stream, shown = TextStream(codec), ""
    for token in (token for some in ids for token in some):
        shown += stream.add(token)
    assert shown + stream.finish() == "".join(cleaned)


def test_text_without_marks_has_the_ids_that_the_tokenizer_gives(tokenizer):
    """What models were trained on: nothing is paid for the safety."""
    for text in (
        "def f(x):\n    return x + 1  # größer\n",
        "Ein Satz. 漢字かな交じり文、 emoji 😀🧿\n",
        "\tif (a) {\r\n\t\tb();\r\n\t}\n",
        "x = [1, 22, 333, 4444]\n\n\n# ---\n",
        "https://example.org/a?b=c&d=%20\n",
    ):
        assert tokenizer.codec.encode_data(text) == tokenizer.codec._plain.encode(text, add_special_tokens=False).ids


def test_data_keeps_its_normal_form(tokenizer):
    """Qwen's tokenizer composes what is decomposed; an edit would not find it in the file any more."""
    check(tokenizer.codec, "e\u0301 ｶﾞ \u212b ﬁ", "▁a▁▁b", " \u00a0\u3000")


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ("    ", "    x"),
        ("foo\n", "\n"),
        ("e", "\u0301"),
        ("ret", "<"),
        (" ", " a"),
        ("a!", "="),
        ('"', ">"),
        ("\r", "\n"),
    ],
)
def test_joints_between_what_was_said_and_what_is_said_next(tokenizer, before, behind):
    """B46: encoded as one they would have other ids; what was read keeps its own."""
    codec = tokenizer.codec
    first = codec.encode_data(before)
    assert codec.decode([*first, *codec.encode_data(behind)]) == before + behind
