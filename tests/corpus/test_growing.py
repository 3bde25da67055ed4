"""A text that is typed is encoded as if it were encoded anew each time, at the price of its end."""

from __future__ import annotations

import inspect
import random
import textwrap

import pytest

from qmlx_lsp.transcript.growing import GrowingText
from tests.support.served import REAL


class Counting:
    """A codec that counts the characters it has encoded."""

    def __init__(self, codec):
        self.codec = codec
        self.characters = 0
        self.token_bytes = codec.token_bytes

    def encode_data(self, text):
        self.characters += len(text)
        return self.codec.encode_data(text)


@pytest.mark.parametrize("which", sorted({kind for kind, _ in REAL.values()}))
def test_typing_deleting_and_jumping(which, real):
    codec = real(which).codec
    counting, draw = Counting(codec), random.Random(which)
    growing = GrowingText(counting)
    source = inspect.getsource(textwrap) + "\n日本語のテキスト = 'naïve 😀'\n" * 3
    text, asked = source[:1500], 0
    for _ in range(120):
        what = draw.random()
        if what < 0.85:
            text += source[len(text) % len(source)]
        elif what < 0.97:
            text = text[: -draw.randrange(1, 12)]
        else:
            text = source[: draw.randrange(900, 1800)]
        asked += len(text)
        assert growing.encode(text) == codec.encode_data(text)
    assert counting.characters < 0.3 * asked


@pytest.mark.parametrize("which", ["qwen3", "gemma3"])
def test_what_the_vocabulary_lacks_is_never_built_on(which, real):
    codec = real(which).codec
    growing = GrowingText(codec)
    for text in ("\ud800" + "x = 1\n" * 100, "x = 1\n" * 100, "x = 1\n" * 100 + "\ud800", "", "x = 1\n" * 101):
        assert growing.encode(text) == codec.encode_data(text)
