"""How quickly a model that is on this disk reads and writes, through the program's own backend.

Text is read in the program's own chunks, and is the program's own source: a mixture's experts are chosen by what is
read. It must never fetch a model.

Invariant: no chunk is begun that would, by what the last one took, end behind the share of the time for reading;
writing stops at the first token behind its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from qmlx_lsp.engine.backend import Backend, ModelInfo, Sampling, StateId
from qmlx_lsp.measure.figures import CLOCK_S, SECONDS, TOKENS_S, Deadline, Figure, gigabytes
from qmlx_lsp.transcript.encoder import Codec

PREFILL_TOKENS = (512, 2_048)
DECODE_TOKENS = 64
PREFILL_SHARE = 0.75  # of the time that is left when the model is loaded; the rest is for writing
LOAD_SHARE = 0.5  # of the whole: a model that takes longer to load is not measured


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was learned of the model beside its speed. Sizes are bytes; ``behind`` are the tokens it wrote behind."""

    name: str
    weight_bytes: int
    context_tokens: int
    row_bytes: int
    snapshot_bytes: int
    behind: int


def too_large(weight_bytes: int, memory: int | None, read_bytes_s: float | None, seconds: float) -> str:
    """Why a model of so many bytes is not loaded to be measured, or nothing."""
    if memory is not None and weight_bytes > memory:
        return "it is more than this machine's memory holds"
    if read_bytes_s is not None and weight_bytes / read_bytes_s > seconds * LOAD_SHARE:
        return f"loading it would take about {weight_bytes / read_bytes_s:.0f} s"
    return ""


class ModelMeasure:
    """Measures the model ``name`` on ``backend``, in passes of ``chunk`` tokens. ``loaded`` is None before that."""

    def __init__(self, backend: Backend, name: str, chunk: int, tell: Callable[[str], None]) -> None:
        self._backend = backend
        self._name = name
        self._chunk = chunk
        self._tell = tell
        self.loaded: Loaded | None = None

    def figures(self, deadline: Deadline) -> Iterator[Figure]:
        """Loading, reading at each length, writing. Raises ModelError."""
        began = deadline.clock()
        info = self._backend.load(self._name, lambda *_report: None, lambda: False)
        yield Figure("load", deadline.clock() - began, SECONDS, gigabytes(info.weight_bytes))
        text = Codec(info.name, info.tokenizer_json).encode_data(Path(__file__).read_text(encoding="utf-8"))
        self._warm(text)
        state = self._backend.new_state()
        yield from self._read(state, text, info.context_tokens, deadline.within(deadline.left * PREFILL_SHARE))
        self._tell("decode")
        behind = self._backend.position(state)
        yield self._write(state, text, deadline)
        self.loaded = self._learned(info, state, behind)
        self._backend.drop_state(state)

    def _warm(self, text: Sequence[int]) -> None:
        """The first passes of a kind build its kernels, which is no part of later ones."""
        state = self._backend.new_state()
        self._backend.prefill(state, list(islice(cycle(text), self._chunk)))
        for _ in self._backend.decode(state, [text[0]], Sampling(), 1):
            pass
        self._backend.drop_state(state)

    def _read(self, state: StateId, text: Sequence[int], context: int, deadline: Deadline) -> Iterator[Figure]:
        """From the beginning to each length; the longer one goes on where the shorter one ended."""
        ids, done, took, last = cycle(text), 0, 0.0, 0.0
        for length in PREFILL_TOKENS:
            if length >= context:
                return
            self._tell(f"prefill_{length}")
            before = done
            while done < length and not (done and deadline.left < last):
                piece = list(islice(ids, min(self._chunk, length - done)))
                began = deadline.clock()
                self._backend.prefill(state, piece)
                last = deadline.clock() - began
                done, took = done + len(piece), took + last
            if done > before:
                over = f"the first {done:,} tokens, {self._chunk} a pass"
                yield Figure(f"prefill_{length}", done / max(took, CLOCK_S), TOKENS_S, over)
            if done < length:
                return

    def _write(self, state: StateId, text: Sequence[int], deadline: Deadline) -> Figure:
        """From the first token on, for the one before it is reading."""
        behind = self._backend.position(state)
        steps = self._backend.decode(state, [text[0]], Sampling(), DECODE_TOKENS + 1)
        next(steps)
        written, began = 0, deadline.clock()
        for _ in steps:
            written += 1
            if deadline.over:
                break
        seconds = max(deadline.clock() - began, CLOCK_S)
        steps.close()
        return Figure("decode", written / seconds, TOKENS_S, f"{written} tokens behind {behind:,}")

    def _learned(self, info: ModelInfo, state: StateId, behind: int) -> Loaded:
        position, whole = self._backend.position(state), 0
        if info.not_persisted is None:
            whole = self._backend.copy_state(state, position).nbytes
        return Loaded(info.name, info.weight_bytes, info.context_tokens, info.row_bytes, whole, behind)
