"""The prompt of an inline completion with real tokenizers: words that are written once more, marks that fill gaps.

What stands before the answer's text, with every template, is tested where the templates are: ``test_histories``."""

from __future__ import annotations

import pytest

from qmlx_lsp.transcript.gap import find_marks
from qmlx_lsp.transcript.healing import Healing, Vocabulary, open_piece
from tests.support.served import REAL

TEXTS = (
    "def parse(self, Parsing", "x = foo(\n        ", "    return ", "a.b", "é = 'naïve ü", "it'", "日本語テキ", "x",
    " ", "self.assertEqual(12", "\t\tif (a) {\n\t\t\t", "x = '😀", "foo(bar)[",
)  # fmt: skip


@pytest.mark.parametrize("which", sorted({kind for kind, _ in REAL.values()}))
def test_a_word_is_written_once_more_by_what_agrees_with_it(which, real):
    """By brute force: exactly the tokens that begin with what is left of it, or are a beginning of that."""
    codec = real(which).codec
    vocabulary = Vocabulary(codec)
    known = {token: codec.token_bytes(token) for token in codec.data_ids()}
    for text in TEXTS:
        piece = open_piece(codec, text)
        assert text.endswith(piece)
        left = piece.encode()
        allowed = Healing(codec, vocabulary, piece)
        chosen: list[int] = []
        while left:
            expected = {t for t, b in known.items() if b and (b.startswith(left) or left.startswith(b))}
            given = allowed(chosen)
            assert set(given) == expected
            assert len(given) == len(expected)
            assert expected, "whatever can be encoded can be written again"
            shortest = min(expected, key=lambda t: (len(known[t]), t))  # the longest way through
            chosen.append(shortest)
            left = left[len(known[shortest]) :]
        assert allowed(chosen) is None
        assert codec.decode(chosen).startswith(piece)


@pytest.mark.parametrize("which", sorted({kind for kind, _ in REAL.values()}))
def test_what_is_read_grows_with_what_is_typed(which, real):
    """One keystroke changes a few ids at the end, mostly none: the rest stays as it was."""
    codec = real(which).codec
    text = "def total(self, items):\n    return sum(item.price * item.count for item in items if item)\n"
    again, read = 0, []
    for count in range(10, len(text)):
        before = text[:count]
        ids = codec.encode_data(before.removesuffix(open_piece(codec, before)))
        shared = next(
            (at for at, (a, b) in enumerate(zip(read, ids, strict=False)) if a != b), min(len(read), len(ids))
        )
        again += len(ids) - shared
        read = ids
    assert again <= 1.1 * (len(text) - 10)
    assert again <= (0.5 if which != "gemma3" else 1.1) * (len(text) - 10)


@pytest.mark.parametrize(
    ("which", "name", "before"),
    [
        ("qwen3", "Qwen2.5-Coder-3B", ["<|fim_prefix|>", "<|fim_suffix|>"]),
        ("qwen3", "Qwen3.5-4B", None),  # the vocabulary has the marks, and the model was not trained with them
        ("deepseek_v3", "DeepSeek-Coder-V2-Lite", ["<｜fim▁begin｜>", "<｜fim▁hole｜>"]),
        ("llama3_1", "CodeLlama", None),
    ],
)
def test_marks_of_models_that_fill_gaps(which, name, before, real):
    codec = real(which).codec
    found = find_marks(codec, name)
    if before is None:
        assert found is None
    else:
        assert [codec.decode([token]) for token in found.before] == before
        assert find_marks(codec, name, trained=False) is None
    forced = find_marks(codec, "any name", trained=True)
    assert (forced is None) == (which == "llama3_1")
