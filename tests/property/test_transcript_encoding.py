"""Encoding over arbitrary text, for each kind of tokenizer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmlx_lsp.engine.scripted_tokenizer import CONTROL, tokenizer_json
from qmlx_lsp.transcript.encoder import Codec, TextStream
from tests.support import small_tokenizers

CODECS = {
    "bytes": Codec("bytes", tokenizer_json()),
    "spm": Codec("spm", small_tokenizers.spm()),
    "gaps": Codec("gaps", small_tokenizers.without_bytes(0x04, 0x06, 0x13, 0xF1, 0xF2)),
}
ANY_CODEC = pytest.mark.parametrize("name", CODECS)
# All of Unicode, lone surrogates included, mixed with whole and cut control tokens.
CONTROLS = sorted({*CONTROL, *small_tokenizers.SPM_CONTROL, *small_tokenizers.SPM_KEPT})
PIECE = st.builds(
    lambda text, a, b: text[a : b or None], st.sampled_from(CONTROLS), st.integers(0, 12), st.integers(0, 12)
)
TEXT = st.lists(st.text(st.characters(), max_size=8) | st.sampled_from(CONTROLS) | PIECE, max_size=8).map("".join)


def cleaned(text: str) -> str:
    return "".join("\ufffd" if 0xD800 <= ord(c) <= 0xDFFF else c for c in text)


@ANY_CODEC
@given(TEXT)
def test_data_holds_no_control_token(name, text):
    assert CODECS[name].control_ids.isdisjoint(CODECS[name].encode_data(text))


@given(TEXT)
def test_byte_tokenizer_gives_the_bytes(text):
    assert CODECS["bytes"].encode_data(text) == list(cleaned(text).encode())


@given(TEXT)
def test_round_trip_where_all_bytes_exist(text):
    codec = CODECS["spm"]
    assert codec.decode(codec.encode_data(text)) == cleaned(text)


@given(TEXT)
def test_lost_characters_are_visible_and_the_rest_exact(text):
    codec, lacking = CODECS["gaps"], {0x04, 0x06, 0x13, 0xF1, 0xF2}
    want = "".join(
        "".join(f"\\x{b:02x}" for b in c.encode()) if lacking & set(c.encode()) else c for c in cleaned(text)
    )
    assert codec.decode(codec.encode_data(text)) == want


@ANY_CODEC
@given(st.data())
def test_stream_is_the_whole_decode(name, data):
    """Over any ids, valid text or not; and nothing but the bytes of one open character is held back."""
    codec = CODECS[name]
    ids = data.draw(st.lists(st.integers(0, 380), max_size=30))
    stream, shown = TextStream(codec), ""
    for at, token in enumerate(ids, 1):
        shown += stream.add(token)
        whole = codec.decode(ids[:at])
        assert whole.startswith(shown)
        assert len(whole) - len(shown) <= 3
        assert stream.inside_character or whole == shown
    assert shown + stream.finish() == codec.decode(ids)
