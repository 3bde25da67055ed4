"""The prompt of an inline completion with every template: the answer's text begins at once, in its own message."""

from __future__ import annotations

import pytest

from qmlx_lsp.transcript.channels import Messages
from qmlx_lsp.transcript.gap import Gap, find_marks, head
from qmlx_lsp.transcript.healing import Healing, Vocabulary, open_piece
from qmlx_lsp.transcript.suffix import Place, Tail
from qmlx_lsp.transcript.within import Within
from tests.corpus.names import NAMES
from tests.support.served import OWN, REAL, Served, fix_the_clock, serve

GAP = Gap("a.py\n", "Go on with a.py.", "end\n", "```python\n")
TEXTS = (
    "def parse(self, Parsing", "x = foo(\n        ", "    return ", "a.b", "é = 'naïve ü", "it'", "日本語テキ", "x",
    " ", "self.assertEqual(12", "\t\tif (a) {\n\t\t\t", "x = '😀", "foo(bar)[",
)  # fmt: skip


@pytest.fixture(params=[*NAMES, *OWN])
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=[False, True], ids=["plain", "thinking"])
def served(name, request, templates, real, monkeypatch) -> Served:
    fix_the_clock(monkeypatch)
    tokenizer = real(REAL[name][0]) if name in REAL else None
    source = templates[name] if name in templates else tokenizer.config["chat_template"]
    return serve(name, source, thinking=request.param, real=tokenizer)


def test_the_answer_begins_at_once(served):
    """What stands before an answer's text is what the template writes there, or a thought that ends at once."""
    found = served.renderer.answer_head(Tail(Place.ASKED))
    assert found[: len(served.fragments.prompt)] == list(served.fragments.prompt)
    assert served.renderer._within(found) is not Within.THOUGHT
    channels, text = served.fragments.channels, served.codec.decode(found)
    if isinstance(channels, Messages):  # the last message, where there are several
        text = served.codec.decode([channels.start]) + text.rpartition(served.codec.decode([channels.start]))[2]
    if channels is not None and served.name != "muse-glimmer":  # which names whom it is for, and need not
        messages = [{"role": "user", "content": "Xyz"}, {"role": "assistant", "content": "Plugh"}]
        assert text + "Plugh" in served.reference(messages, generate=False)


def test_nothing_is_in_the_head_but_the_turn_and_the_reply(served):
    """The head behind an open turn says what a question would, and opens the reply."""
    found = head(served.renderer, None, Tail(Place.OPEN), GAP, "Be exact.")
    assert found.ids == [*served.codec.encode_data(GAP.request), *served.renderer.answer_head(Tail(Place.ASKED))]
    first = head(served.renderer, None, Tail(), GAP, "Be exact.")
    assert [text for _, text, _ in first.said] == ["Be exact.", GAP.request]


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
