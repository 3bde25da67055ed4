"""The list of models against the shapes that their makers have published (Qwen2.5-Coder's technical report, gpt-oss's
and Qwen's model cards): each figure of the list is computed again from them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from qmlx_lsp.measure.expect import CANDIDATES


@dataclass(frozen=True)
class Shape:
    """``attending`` layers have ``heads`` of ``wide`` and ``kv`` of them for keys and values, the ``sliding`` ones
    too; ``linear`` ones have 16 heads of 128 for queries and keys and ``values`` of 128. ``used`` of ``experts`` (the
    shared one among both; 1 of 1 is dense) are ``inner`` wide."""

    hidden: int
    vocabulary: int
    attending: int
    heads: int
    kv: int
    wide: int
    inner: int
    experts: int = 1
    used: int = 1
    sliding: int = 0
    linear: int = 0
    values: int = 0
    tied: bool = False
    gated: bool = False
    bits: float = 4.5
    expert_bits: float = 4.5

    @property
    def layers(self) -> int:
        return self.attending + self.sliding + self.linear

    @property
    def mixing(self) -> int:
        """Parameters of attention, linear attention and the choice of experts."""
        queries, keys = self.heads * self.wide, self.kv * self.wide
        attention = self.hidden * (queries * (2 if self.gated else 1) + 2 * keys + queries)
        values, between = self.values * 128, 2 * 16 * 128
        linear = self.hidden * (between + 2 * values + 2 * self.values + values)
        router = self.hidden * self.experts if self.experts > 1 else 0
        return (self.attending + self.sliding) * attention + self.linear * linear + self.layers * router

    def expert(self, count: int) -> int:
        return self.layers * count * 3 * self.hidden * self.inner

    @property
    def table(self) -> int:
        return self.hidden * self.vocabulary

    @property
    def active(self) -> int:
        return self.mixing + self.table + self.expert(self.used)

    @property
    def active_bytes(self) -> float:
        return (self.bits * (self.mixing + self.table) + self.expert_bits * self.expert(self.used)) / 8

    @property
    def bytes(self) -> float:
        tables = self.table if self.tied else 2 * self.table
        return (self.bits * (self.mixing + tables) + self.expert_bits * self.expert(self.experts)) / 8

    @property
    def row(self) -> int:
        return self.attending * 2 * self.kv * self.wide * 2


def hybrid(vocabulary: int, attending: int, experts: int, used: int) -> Shape:
    """The smaller hybrids of one family: every fourth layer attends."""
    linear = 3 * attending
    return Shape(
        2_048, vocabulary, attending, 16, 2, 256, 512, experts, used, linear=linear, values=32, gated=True
    )  # fmt: skip


SHAPES = {
    "Qwen2.5-Coder-3B": Shape(2_048, 151_936, 36, 16, 2, 128, 11_008, tied=True),
    "Qwen2.5-Coder-7B": Shape(3_584, 152_064, 28, 28, 4, 128, 18_944),
    "gpt-oss-20b": Shape(2_880, 201_088, 12, 64, 8, 64, 2_880, 32, 4, sliding=12, bits=8.5, expert_bits=4.25),
    "Qwen3-Coder-30B-A3B": Shape(2_048, 151_936, 48, 32, 4, 128, 768, 128, 8),
    "Qwen3.5-35B-A3B": hybrid(248_320, 10, 257, 9),
    "Qwen3-Coder-Next": hybrid(151_936, 12, 513, 11),
    "Qwen3.5-122B-A10B": Shape(
        3_072, 248_320, 12, 32, 2, 256, 1_024, 257, 9, linear=36, values=64, gated=True
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "shape"), SHAPES.items(), ids=list(SHAPES))
def test_a_model_of_the_list_is_as_its_maker_says(name: str, shape: Shape) -> None:
    (found,) = [one for one in CANDIDATES if name in one.name]
    assert found.parameters == pytest.approx(shape.active, rel=0.01)
    assert found.active == pytest.approx(shape.active_bytes, rel=0.02)
    assert found.weights == pytest.approx(shape.bytes, rel=0.05)  # and a picture reader, norms, other roundings
    assert found.row == shape.row
    assert found.attention == shape.attending * shape.heads * shape.wide
    assert found.experts == (shape.experts > 1)


def test_every_model_of_the_list_is_looked_at() -> None:
    assert len(SHAPES) == len(CANDIDATES)
