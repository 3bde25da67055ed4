"""The real backend: mlx-lm behind the few commands of ``engine.backend``.

Invariant: every layer that knows its position stands at the state's position when a command returns.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.generate import generation_stream
from mlx_lm.sample_utils import make_sampler
from mlx_lm.utils import maybe_set_recommended_wired_limit

from qmlx_lsp.engine.backend import Allowed, Lifted, Mark, ModelInfo, Passes, Report, Restored, Sampling, StateId
from qmlx_lsp.engine.draft import Drafter
from qmlx_lsp.engine.mlx import model as models
from qmlx_lsp.engine.mlx import rows
from qmlx_lsp.engine.mlx.caches import make_caches, unknown_classes
from qmlx_lsp.engine.mlx.calibrate import rows_of_a_pass
from qmlx_lsp.engine.mlx.decode import decode, decode_steered
from qmlx_lsp.engine.mlx.live import Live, good
from qmlx_lsp.engine.mlx.lookup import Reader, copying
from qmlx_lsp.errors import CheckpointRejected
from qmlx_lsp.state import StateCopy, StoredState

# A token that must not be read is taken back only if what a mark copies for it in every step is at most this; the
# windows of gpt-oss take 5 MB, those of Gemma 3 27B 400 MB.
UNDO_BYTES_MAX = 32 << 20


class _Counted:
    """Calls the model and counts the passes and rows where they happen."""

    def __init__(self, model: Any, passes: Passes) -> None:
        self._model = model
        self._passes = passes

    def __call__(self, tokens: mx.array, **kwargs: Any) -> Any:
        self._passes.passes += 1
        self._passes.rows += tokens.size
        return self._model(tokens, **kwargs)


class MlxBackend:
    """Build it on the engine thread; see the module's docstring. ``models_folder`` is where models are fetched to.

    ``kv_bits`` (0, 4 or 8) is how states are held: 0 leaves keys and values as the model makes them. ``adapter`` is
    the folder of trained layers to put on the model, if any. ``draft_rows`` are the rows of a pass at most where a
    source is copied: 1 copies nothing, 0 measures how many are best.
    """

    def __init__(
        self, models_folder: Path, *, kv_bits: int = 0, adapter: Path | None = None, draft_rows: int = 0
    ) -> None:
        if mx.default_device().type == mx.DeviceType.cpu:
            # There, fused functions are built with the system's C++ compiler: seconds of the first turn, libraries
            # under a guessable name in the shared temporary folder, and nothing gained (measured).
            mx.disable_compile()
        self.passes = Passes()
        self.beside: dict[StateId, Any] = {}
        self._models_folder = models_folder
        self._kv_bits = kv_bits
        self._adapter = adapter
        self._draft_rows = self._rows = draft_rows  # the latter once they are measured
        self._model: Any = None
        self._counted: Any = None
        self._snapshots = False
        self._layout: rows.Layout | None = None
        self._companion: MlxBackend | None = None
        self._states: dict[StateId, Live] = {}
        self._numbers = itertools.count(1)

    def load(self, source: str, report: Report, cancelled: Callable[[], bool]) -> ModelInfo:
        model, info = models.load(
            source, self._models_folder, report, cancelled, kv_bits=self._kv_bits, adapter_folder=self._adapter
        )
        self.use(model, needs_snapshot=info.needs_snapshot)
        if info.not_persisted is not None:
            return info  # caches of an unknown class: nobody knows which of their arrays are rows
        return replace(info, row_bytes=self._known_layout().row_bytes)

    def use(self, model: Any, *, needs_snapshot: bool) -> None:
        """Take a model that is loaded already (tests make tiny ones); every state of the former model is dropped."""
        self._states.clear()
        self.beside.clear()
        self._model = model
        self._counted = _Counted(model, self.passes)
        self._snapshots = needs_snapshot
        self._layout = None
        self._rows = self._draft_rows

    def new_state(self) -> StateId:
        return self._add(Live(make_caches(self._model, self._kv_bits), 0))

    def drop_state(self, state: StateId) -> None:
        self.beside.pop(state, None)
        if self._states.pop(state, None) is not None:
            mx.clear_cache()

    def position(self, state: StateId) -> int:
        return self._states[state].position

    def nbytes(self, state: StateId) -> int:
        # Not the caches' own sums, which fail or count nothing where a first part has not been filled.
        held = tree_flatten([cache.state for cache in self._states[state].caches])
        return sum(array.nbytes for _, array in held if isinstance(array, mx.array))

    def prefill(self, state: StateId, ids: Sequence[int], *, ready: bool = False) -> None:
        assert ids, "a forward pass needs at least one token"
        live = self._states[state]
        live.begin()
        with _wired(), mx.stream(generation_stream):
            # Else the logits are never evaluated: for 2048 rows of a large vocabulary they are a gigabyte.
            logits = self._counted(mx.array([list(ids)]), cache=live.caches)[:, -1, :]
            if ready:
                live.logits = mx.contiguous(logits)
                mx.eval(live.logits)
            live.evaluate()
        self._advanced(live, len(ids))
        mx.clear_cache()

    def logits(self, state: StateId, ids: Sequence[int]) -> memoryview:
        """One forward pass over ``ids``; the last row's logits as float32 bytes (for tests and diagnosis)."""
        assert ids, "a forward pass needs at least one token"
        live = self._states[state]
        live.begin()
        with _wired(), mx.stream(generation_stream):
            out = self._counted(mx.array([list(ids)]), cache=live.caches)[0, -1].astype(mx.float32)
            mx.eval(out)
        self._advanced(live, len(ids))
        return memoryview(bytes(memoryview(out)))

    def decode(
        self,
        state: StateId,
        ids: Sequence[int],
        sampling: Sampling,
        max_tokens: int,
        spare: frozenset[int] = frozenset(),
        *,
        allowed: Allowed | None = None,
        source: Sequence[int] = (),
    ) -> Generator[int, None, None]:
        live = self._states[state]
        logits = live.logits
        assert ids or logits is not None, "a forward pass needs at least one token"
        copies = source and ids and allowed is None and live.undo_bytes <= UNDO_BYTES_MAX
        rows = self._rows_of_a_pass(source) if copies else 1
        if sampling.seed is not None:
            mx.random.seed(sampling.seed)
        sampler = make_sampler(sampling.temperature, sampling.top_p, sampling.min_p, top_k=sampling.top_k)
        if rows > 1:
            live.begin()
            reader = Reader(self._counted, live, sampler, draws=sampling.temperature > 0)
            with _wired():
                yield from copying(reader, live, ids, max_tokens, spare, Drafter(source, rows))
            return
        mark = live.noted if spare and live.undo_bytes <= UNDO_BYTES_MAX else None
        unread = len(ids)
        if ids and allowed is not None:
            self.prefill(state, ids, ready=True)
            unread, logits = 0, live.logits
        live.begin()
        if unread:
            steps = decode(self._counted, live.caches, ids, sampler, max_tokens, spare, mark)
        else:
            assert logits is not None
            steps = decode_steered(
                self._counted, live.caches, logits, sampler, max_tokens, spare, mark, allowed or _free
            )
        del logits
        try:
            with _wired():
                for token in steps:
                    live.position += unread + 1
                    unread = 0
                    yield token
        except GeneratorExit:
            self._advanced(live, 0)
            raise
        finally:
            steps.close()
            mx.clear_cache()  # buffers of shapes that no later pass will have
        self._advanced(live, unread)  # not after an error: then the caller rewinds or drops the state

    @staticmethod
    def _advanced(live: Live, read: int) -> None:
        live.evaluate()
        live.position += read
        live.check()

    def _rows_of_a_pass(self, text: Sequence[int]) -> int:
        if not self._rows:
            with _wired():
                self._rows = rows_of_a_pass(self._model, make_caches(self._model, self._kv_bits), text)
            mx.clear_cache()
        return self._rows

    def mark(self, state: StateId) -> Mark:
        live = self._states[state]
        if unknown_classes(live.caches):
            return Mark(live.position, None)
        kept = live.kept()
        live.marks.add(kept)
        return Mark(live.position, kept)

    def rewind(self, state: StateId, mark: Mark) -> None:
        live = self._states[state]
        live.back(good(live, mark))
        live.forget_beyond(mark.position)
        try:
            live.evaluate()  # after a failed pass the arrays may be a graph that fails again
        except RuntimeError as error:
            raise ValueError(f"the state cannot be evaluated after an error: {error}") from error
        live.check()

    def cut(self, state: StateId, position: int) -> bool:
        return self._states[state].cut(position)

    def lift(self, state: StateId, mark: Mark, *, copy: bool) -> Lifted:
        return self._states[state].lift(mark, copy=copy)

    def lay(self, state: StateId, lifted: Lifted) -> bool:
        return self._states[state].lay(lifted)

    def copy_state(self, state: StateId, start: int, end: int | None = None) -> StateCopy:
        live = self._states[state]
        if end is not None:
            return rows.copy_state(live.caches, start, end, with_snapshot=False)
        return rows.copy_state(live.caches, start, live.position, with_snapshot=self._snapshots)

    def restore(self, stored: StoredState) -> Restored:
        caches = make_caches(self._model, self._kv_bits)
        if unknown_classes(caches):
            raise CheckpointRejected("unsupported", "States of this model cannot be restored.")
        read = rows.load_state(caches, stored, self._known_layout())
        live = Live(caches, stored.position)
        live.check()
        return Restored(self._add(live), read)

    def companion(self) -> MlxBackend:
        if self._companion is None:
            self._companion = MlxBackend(self._models_folder, kv_bits=self._kv_bits)
        return self._companion

    def close(self) -> None:
        if self._companion is not None:
            self._companion.close()
        self._states.clear()
        self.beside.clear()
        self._model = self._counted = None
        mx.clear_cache()

    def _known_layout(self) -> rows.Layout:
        """The arrays that one token leaves in fresh caches. Builds the graph of a pass and computes nothing."""
        if self._layout is None:
            caches = make_caches(self._model, self._kv_bits)
            with mx.stream(generation_stream):
                self._model(mx.array([[0]]), cache=caches)
            self._layout = rows.layout(caches)
        return self._layout

    def _add(self, live: Live) -> StateId:
        number = StateId(next(self._numbers))
        self._states[number] = live
        return number


def _free(_chosen: Sequence[int]) -> None:
    """Any id may come."""


@contextmanager
def _wired() -> Iterator[None]:
    """Keep the model's memory resident while it computes. As mlx-lm's ``wired_limit``, which prints to the
    standard output, where the editor's protocol may be."""
    former = maybe_set_recommended_wired_limit()
    try:
        yield
    finally:
        if former is not None:
            mx.synchronize(generation_stream)
            mx.set_wired_limit(former)
