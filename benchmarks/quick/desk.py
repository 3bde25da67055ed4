"""A whole daemon in this process, less its socket, on a tiny random model whose passes are counted.

The model is real for mlx-lm (gated-delta and attention layers, or attention only); its tokenizer gives one token a
byte, so that a text of N bytes is N tokens. It writes lower-case letters only: a reply always goes on to its limit.

Invariant: passes and rows are counted in front of the model itself, not where the product reports them.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_map
from mlx_lm.models import llama

from benchmarks.store.models import CONTEXT_TOKENS, VOCAB, hybrid
from benchmarks.store.volume import Counting
from qmlx_lsp.app import App
from qmlx_lsp.engine.backend import ModelInfo, Report
from qmlx_lsp.engine.mlx.backend import MlxBackend
from qmlx_lsp.engine.scripted_tokenizer import tokenizer_json
from qmlx_lsp.paths import Paths
from qmlx_lsp.session.event import Answer, Ask, Job
from qmlx_lsp.settings import Settings
from qmlx_lsp.transcript.families import FAMILIES

HYBRID, ATTENTION = "hybrid", "attention"
KINDS = (HYBRID, ATTENTION)
HIDDEN, LAYERS = 32, 2
REPLY_TOKENS = 16
LETTERS = range(ord("a"), ord("z") + 1)

Look = Callable[[list[int]], None]
Stop = Callable[[list[int]], bool]


class Passes:
    """What the model was asked for: the rows of every pass since ``begin``. ``look`` is called in front of a pass,
    which is noted already."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.look: Look = lambda _rows: None

    def begin(self, look: Look = lambda _rows: None) -> None:
        self.rows, self.look = [], look

    def note(self, rows: int) -> None:
        self.rows.append(rows)
        self.look(self.rows)


class _Lettered:
    """``model``, which can say nothing but letters; every pass is noted."""

    def __init__(self, model: Any, passes: Passes) -> None:
        self._model = model
        self._passes = passes
        self._others = mx.array([0.0 if token in LETTERS else -math.inf for token in range(VOCAB)])

    def __call__(self, tokens: mx.array, **kwargs: Any) -> Any:
        self._passes.note(tokens.size)
        return self._model(tokens, **kwargs) + self._others

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def attention(hidden: int, layers: int) -> Any:
    """Attention in every layer; float32, the same in every process."""
    mx.random.seed(7)
    model = llama.Model(
        llama.ModelArgs(
            model_type="llama", hidden_size=hidden, num_hidden_layers=layers, intermediate_size=2 * hidden,
            num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, vocab_size=VOCAB,
            tie_word_embeddings=False,
        )
    )  # fmt: skip
    model.update(tree_map(lambda w: mx.random.normal(w.shape) * 0.4 if w.ndim > 1 else w, model.parameters()))
    model.eval()
    mx.eval(model.parameters())
    return model


class CountedBackend(MlxBackend):
    """The real backend on a tiny model of ``kind``."""

    def __init__(self, kind: str, passes: Passes) -> None:
        super().__init__(Path("unused"))
        self._kind = kind
        self._noted = passes

    def load(self, source: str, report: Report, cancelled: Callable[[], bool]) -> ModelInfo:
        snapshots = self._kind == HYBRID
        made = (hybrid if snapshots else attention)(HIDDEN, LAYERS)
        self.use(_Lettered(made, self._noted), needs_snapshot=snapshots)
        self._known_layout()  # a pass that computes nothing; now, so that no turn seems to have made it
        return ModelInfo(
            name=self._kind, path="", fingerprint=self._kind.ljust(16, ".").encode(), context_tokens=CONTEXT_TOKENS,
            weight_bytes=0, eos_ids=frozenset({258, 256}), needs_snapshot=snapshots, tokenizer_json=tokenizer_json(),
            template=FAMILIES["ChatML"][1],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn as the model saw it.

    ``context`` ids stood in front of the reply's first one, ``new`` of them since the turn began; ``rows`` are those
    of every pass, ``written`` bytes of the checkpoints.
    """

    answer: Answer
    context: int
    new: int
    rows: tuple[int, ...]
    written: int

    @property
    def generated(self) -> int:
        return self.answer.usage.generated

    @property
    def beyond(self) -> int:
        """Rows computed that need not have been: each new id and each id of the reply is read once."""
        return sum(self.rows) - self.new - self.generated


class Desk:
    """``app`` is the running daemon in ``home``; ``passes`` is what its model was asked for."""

    def __init__(self, kind: str, home: Path) -> None:
        self.kind = kind
        self.home = home
        self.passes = Passes()
        self.files = Counting()
        self.start()

    def start(self) -> None:
        paths = Paths(*(self.home / name for name in ("config", "data", "cache", "run", "log")))
        paths.prepare()
        self.app = App(paths, settings(), lambda: CountedBackend(self.kind, self.passes), self.files)

    async def restart(self) -> None:
        """End in good order and begin again."""
        await self.app.stop()
        self.start()

    async def crash(self, home: Path) -> None:
        """Go on in ``home`` with what is on the disk just now, as after ``kill -9``: nothing is stopped before. No
        file changes meanwhile, for every answer has waited for its checkpoint."""
        shutil.copytree(self.home, home)
        former, self.home = self.app, home
        self.start()
        await former.stop()

    async def ask(self, root: Path, text: str, *, stop: Stop | None = None, path: Path | None = None) -> Turn:
        """Ask, about ``path`` perhaps. ``stop(rows)`` is asked in front of every pass, which is the last of ``rows``,
        and may cancel: the pass is still made, and no other after it."""
        session = await self.app.registry.session(root)
        before, written, job = len(session.transcript.log), self.files.written, Job()

        def look(rows: list[int]) -> None:
            if stop is not None and stop(rows):
                job.stop.set()

        self.passes.begin(look)
        question = Ask(text, max_tokens=REPLY_TOKENS, path=None if path is None else str(path))
        answer = await self.app.registry.ask(root, question, job)
        rows = tuple(self.passes.rows)
        self.passes.begin()
        context = len(session.transcript.log) - answer.usage.generated
        return Turn(answer, context, context - before, rows, self.files.written - written)


@asynccontextmanager
async def desk(kind: str, home: Path) -> AsyncIterator[Desk]:
    made = Desk(kind, home)
    try:
        yield made
    finally:
        await made.app.stop()


def settings() -> Settings:
    """The defaults, less what depends on this machine and on waiting."""
    base = Settings()
    return replace(
        base,
        store=replace(base.store, free_floor_gib=0.0, quota_gib=4.0, answer_wait_s=60.0),
        ahead=replace(base.ahead, enabled=False),
        inline=replace(base.inline, enabled=False),
        watch=replace(base.watch, mode="off"),
    )
