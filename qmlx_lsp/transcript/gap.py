"""The prompt of an inline completion: a gap in a file, with what stands behind it first, so that typing only appends.

Two shapes. A chat model is asked: the user's turn holds what follows the cursor, and the reply has been begun with a
fence and all that stands before it. A model that was trained to fill gaps gets the marks it was trained with, in the
form of an example whose first part is empty and whose middle begins with known text (Bavarian et al. 2022): to the
model that is an ordinary example, and here too typing appends.

Invariant: a prompt is its head and then the text before the cursor, encoded anew as one piece; the head does not
depend on that text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from qmlx_lsp.transcript.encoder import Codec
from qmlx_lsp.transcript.entry import Kind
from qmlx_lsp.transcript.suffix import Place, Renderer, Tail

# By family: the marks before what follows the gap, and those between it and what precedes it.
_FAMILIES = (
    (("<|fim_prefix|>", "<|fim_suffix|>"), ("<|fim_middle|>",)),  # Qwen coders, CodeGemma
    (("<fim_prefix>", "<fim_suffix>"), ("<fim_middle>",)),  # StarCoder, Granite code
    (("<fim-prefix>", "<fim-suffix>"), ("<fim-middle>",)),  # the first StarCoder
    (("<｜fim▁begin｜>", "<｜fim▁hole｜>"), ("<｜fim▁end｜>",)),  # DeepSeek coders
    (("▁<PRE>", "▁<SUF>"), ("▁<MID>",)),  # CodeLlama
    (("[SUFFIX]",), ("[PREFIX]",)),  # Codestral, trained with what follows first
)
# Many vocabularies hold the marks of a family whose training their model did not have.
_TRAINED = ("code", "coder", "starcoder", "codestral", "codegemma", "granite", "refact", "deepseek")


@dataclass(frozen=True, slots=True)
class Marks:
    """``before`` + what follows the gap + ``between`` + what precedes it."""

    before: tuple[int, ...]
    between: tuple[int, ...]


def find_marks(codec: Codec, name: str, *, trained: bool | None = None) -> Marks | None:
    """The marks with which a model fills gaps, if it has them all and was ``trained`` so; None asks its name."""
    if trained is False or (trained is None and not any(word in name.lower() for word in _TRAINED)):
        return None
    for before, between in _FAMILIES:
        ids = [[codec.control(text) for text in texts] for texts in (before, between)]
        if all(token is not None for part in ids for token in part):
            return Marks(*(tuple(token for token in part if token is not None) for part in ids))
    return None


@dataclass(frozen=True, slots=True)
class Gap:
    """``about`` names the file in a line, ``request`` asks a chat model with all it needs, ``behind`` is what follows
    the line of the cursor, ``lead`` what a chat model's reply begins with."""

    about: str
    request: str
    behind: str
    lead: str


@dataclass(frozen=True)
class Head:
    """What a prompt begins with behind a log: what is ``said`` there (kind, text, ids), and the reply's beginning."""

    said: tuple[tuple[Kind, str, tuple[int, ...]], ...]
    reply: tuple[int, ...]

    @cached_property
    def ids(self) -> list[int]:
        return [*(token for _, _, ids in self.said for token in ids), *self.reply]


def head(renderer: Renderer, marks: Marks | None, tail: Tail, gap: Gap, system: str) -> Head:
    """The head behind a log that ends as ``tail``; at the very beginning ``system`` is said first."""
    said = []
    if tail.place is Place.START:
        said.append((Kind.SYSTEM, system, tuple(renderer.suffix(tail, Kind.SYSTEM, system))))
        tail = Tail(Place.OPEN)
    if marks is None:
        asked, ids = gap.request, renderer.suffix(tail, Kind.QUESTION, gap.request)
    else:
        behind = [*marks.before, *renderer.codec.encode_data(gap.behind), *marks.between]
        asked, ids = gap.about + gap.behind, [*renderer.suffix(tail, Kind.QUESTION, gap.about), *behind]
    said.append((Kind.QUESTION, asked, tuple(ids)))
    return Head(tuple(said), tuple(renderer.answer_head(Tail(Place.ASKED))))


def bare_head(codec: Codec, marks: Marks, gap: Gap) -> list[int]:
    """The head for a model with a state of its own that was trained to fill gaps: no conversation, no roles."""
    return [*marks.before, *codec.encode_data(gap.behind), *marks.between]


def text(encode: Callable[[str], list[int]], marks: Marks | None, gap: Gap, before: str) -> list[int]:
    """The rest of the prompt, up to the piece that is open. ``encode`` is ``Codec.encode_data``, or as good."""
    return encode(before if marks is not None else gap.lead + before)


def ends(codec: Codec, eos_ids: frozenset[int]) -> frozenset[int]:
    """What ends a completion: whatever is no text."""
    return eos_ids | codec.control_ids
