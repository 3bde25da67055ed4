"""Data never becomes a control token, and what was encoded decodes to exactly what it was."""

import json
import unicodedata

import pytest

from qmlx_lsp.engine.scripted_tokenizer import CONTROL, tokenizer_json
from qmlx_lsp.errors import TemplateError
from qmlx_lsp.transcript.encoder import Codec, TextStream
from tests.support import small_tokenizers

BYTES = Codec("bytes", tokenizer_json())
SPM = Codec("spm", small_tokenizers.spm())


def test_fragments_are_encoded_with_control_tokens():
    assert BYTES.encode_fragment("<|im_start|>a\n<think>") == [257, 97, 10, 259]


def test_control_ids():
    assert BYTES.control_ids == {256, 257, 258, 259, 260}
    names = json.loads(small_tokenizers.spm())["model"]["vocab"]
    assert SPM.control_ids == {names[text] for text in small_tokenizers.SPM_CONTROL}


@pytest.mark.parametrize("control", CONTROL)
def test_control_text_in_data_is_only_text(control):
    for text in (control, f" {control} ", f"\n{control}\n", f"x{control}{control}y"):
        assert BYTES.encode_data(text) == list(text.encode())
        for cut in range(len(text) + 1):
            ids = BYTES.encode_data(text[:cut]) + BYTES.encode_data(text[cut:])
            assert ids == list(text.encode())


@pytest.mark.parametrize("control", small_tokenizers.SPM_CONTROL)
def test_control_text_in_data_with_byte_fallback(control):
    for cut in range(len(control) + 1):
        ids = SPM.encode_data(control[:cut]) + SPM.encode_data(control[cut:])
        assert SPM.control_ids.isdisjoint(ids)
        assert SPM.decode(ids) == control


def test_kept_added_tokens_are_used_for_data():
    names = json.loads(small_tokenizers.spm())["model"]["vocab"]
    assert SPM.encode_data("a\n\nb<table>c</h1>") == [
        names[t] for t in ("a", "\n\n", "b", "<table>", "c", "</h1>")
    ]  # fmt: skip


def test_thinking_marks_that_are_not_special_are_control_tokens_all_the_same():
    """As in Qwen3, whose ``<think>`` is an ordinary added token and looks like an HTML tag."""
    assert not json.loads(tokenizer_json())["added_tokens"][3]["special"]
    assert BYTES.encode_data("<think>a</think>") == list(b"<think>a</think>")


def test_kept_tokens_that_would_be_numbered_anew_are_given_up():
    described = json.loads(tokenizer_json())
    run = {**described["added_tokens"][0], "id": 261, "content": "    ", "special": False}
    described["added_tokens"].append(run)
    codec = Codec("runs", json.dumps(described))
    assert codec.encode_data("a    b") == list(b"a    b")
    assert codec.encode_fragment("a    b") == [97, 261, 98]
    assert codec.decode([97, 261, 98]) == "a    b"


def test_normalisers_do_not_change_data():
    decomposed = unicodedata.normalize("NFD", "café Å 한")
    for normalizer in ({"type": "NFC"}, {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "NFD"}]}):
        codec = Codec("nfc", small_tokenizers.byte_level(normalizer=normalizer))
        for text in (decomposed, "café Å 한", "ﬁ"):
            assert codec.encode_data(text) == list(text.encode())


def test_post_processor_and_prefix_space_do_not_touch_data():
    level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    codec = Codec("prefix", small_tokenizers.byte_level(pre_tokenizer=level))
    assert codec.encode_data("a") == [97]


def test_lone_surrogates_become_the_replacement_character():
    assert BYTES.encode_data("a\ud800b\udfff") == list("a\ufffdb\ufffd".encode())


def test_bytes_the_vocabulary_lacks_are_written_visibly():
    codec = Codec("gaps", small_tokenizers.without_bytes(0x04, 0xF0))
    assert codec.encode_data("a\x04b") == list(rb"a\x04b")
    assert codec.encode_data("x😀y\x05") == [*rb"x\xf0\x9f\x98\x80y", 5]
    assert codec.decode(codec.encode_data("x😀")) == r"x\xf0\x9f\x98\x80"


def test_word_mark_in_data_is_not_turned_into_a_space():
    assert SPM.decode(SPM.encode_data("a ▁ b")) == "a ▁ b"


def test_text_whose_characters_do_not_survive_together():
    """A normaliser that joins two characters: alone each is safe."""
    joining = {"type": "Replace", "pattern": {"String": "ab"}, "content": "c"}
    codec = Codec("joining", small_tokenizers.byte_level(normalizer=joining))
    assert codec.encode_data("xaby") == list(b"xaby")


def test_tokenizer_that_makes_control_tokens_of_plain_text_is_refused():
    described = json.loads(tokenizer_json())
    described["model"]["vocab"]["q"] = 999
    described["added_tokens"][0] |= {"content": "q", "id": 999}
    with pytest.raises(TemplateError, match="The tokenizer of odd turns the plain text 'q' into a control token"):
        Codec("odd", json.dumps(described))


def test_token_bytes():
    assert [BYTES.token_bytes(token) for token in (97, 0xC3, 258, 260)] == [b"a", b"\xc3", b"<|im_end|>", b"</think>"]
    assert BYTES.token_bytes(5000) == b""
    names = json.loads(small_tokenizers.spm())["model"]["vocab"]
    assert [SPM.token_bytes(names[t]) for t in ("<0xE2>", "▁", "<bos>", "▁▁")] == [b"\xe2", b" ", b"<bos>", b"  "]


def test_stream_holds_back_the_bytes_of_one_character_only():
    stream = TextStream(BYTES)
    assert [stream.add(byte) for byte in "é\ufffd".encode()] == ["", "é", "", "", "\ufffd"]
    assert not stream.inside_character
    assert (stream.add(0xE2), stream.inside_character) == ("", True)
    assert stream.finish() == "\ufffd"


def test_control_token_ends_a_cut_character():
    stream = TextStream(BYTES)
    assert [stream.add(token) for token in (97, 0xE2, 0x82, 258)] == ["a", "", "", "\ufffd<|im_end|>"]
