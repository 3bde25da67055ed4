"""The real backend: mlx-lm behind the few commands of ``engine.backend``.

mlx-lm's own ``generate_step`` decodes. It queues the pass over a token before it yields that token, so after
closing it anywhere the caches hold exactly the prompt and the ids that were yielded (read in mlx-lm 0.32.2 and
held by tests).

Invariant: every layer that knows its position stands at the state's position when a command returns.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.generate import generate_step, generation_stream, wired_limit
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_sampler

from qmlx_lsp.engine.backend import Mark, ModelInfo, Passes, Report, Restored, Sampling, StateId
from qmlx_lsp.engine.mlx import model as models
from qmlx_lsp.engine.mlx import rows
from qmlx_lsp.engine.mlx.caches import adapter, unknown_classes
from qmlx_lsp.errors import CheckpointRejected
from qmlx_lsp.state import StateCopy, StoredState


class _Counted:
    """Calls the model and counts the passes and rows where they happen."""

    def __init__(self, model: Any, passes: Passes) -> None:
        self._model = model
        self._passes = passes

    def __call__(self, tokens: mx.array, **kwargs: Any) -> Any:
        self._passes.passes += 1
        self._passes.rows += tokens.size
        return self._model(tokens, **kwargs)


class _Live:
    """One conversation's caches, and how many tokens they have read."""

    def __init__(self, caches: list[Any], position: int) -> None:
        self.caches = caches
        self.position = position

    def check(self) -> None:
        for layer, cache in enumerate(self.caches):
            if unknown_classes([cache]):
                continue
            found = adapter(cache).position(cache)
            if found is not None and found != self.position:
                raise AssertionError(f"layer {layer} stands at {found}, the state at {self.position}")


class MlxBackend:
    """Build it on the engine thread; see the module's docstring. ``models_folder`` is where models are fetched to."""

    def __init__(self, models_folder: Path) -> None:
        self.passes = Passes()
        self._models_folder = models_folder
        self._model: Any = None
        self._counted: Any = None
        self._snapshots = False
        self._states: dict[StateId, _Live] = {}
        self._numbers = itertools.count(1)

    def load(self, source: str, report: Report, cancelled: Callable[[], bool]) -> ModelInfo:
        model, info = models.load(source, self._models_folder, report, cancelled)
        self.use(model, needs_snapshot=info.needs_snapshot)
        return info

    def use(self, model: Any, *, needs_snapshot: bool) -> None:
        """Take a model that is loaded already (tests make tiny ones); every state of the former model is dropped."""
        self._states.clear()
        self._model = model
        self._counted = _Counted(model, self.passes)
        self._snapshots = needs_snapshot

    def new_state(self) -> StateId:
        return self._add(_Live(make_prompt_cache(self._model), 0))

    def drop_state(self, state: StateId) -> None:
        if self._states.pop(state, None) is not None:
            mx.clear_cache()

    def position(self, state: StateId) -> int:
        return self._states[state].position

    def nbytes(self, state: StateId) -> int:
        return sum(cache.nbytes for cache in self._states[state].caches if not cache.empty())

    def prefill(self, state: StateId, ids: Sequence[int]) -> None:
        self.logits(state, ids)

    def logits(self, state: StateId, ids: Sequence[int]) -> memoryview:
        """One forward pass over ``ids``; the last row's logits as float32 bytes (for tests and diagnosis)."""
        assert ids, "a forward pass needs at least one token"
        live = self._states[state]
        with wired_limit(self._model, [generation_stream]), mx.stream(generation_stream):
            out = self._counted(mx.array([list(ids)]), cache=live.caches)[0, -1].astype(mx.float32)
            mx.eval(out, [cache.state for cache in live.caches])
        mx.clear_cache()
        live.position += len(ids)
        live.check()
        return memoryview(bytes(memoryview(out)))

    def decode(
        self, state: StateId, ids: Sequence[int], sampling: Sampling, max_tokens: int
    ) -> Generator[int, None, None]:
        assert ids, "a forward pass needs at least one token"
        live = self._states[state]
        if sampling.seed is not None:
            mx.random.seed(sampling.seed)
        sampler = make_sampler(sampling.temperature, sampling.top_p, sampling.min_p, top_k=sampling.top_k)
        # One chunk: the head of a reply is a few tokens. The last of them rides in generate_step's first step.
        steps = generate_step(
            mx.array(list(ids)), self._counted, max_tokens=max_tokens, sampler=sampler, prompt_cache=live.caches,
            prefill_step_size=max(len(ids), 1),
        )  # fmt: skip
        read = len(ids)
        try:
            with wired_limit(self._model, [generation_stream]):
                for token, _ in steps:
                    read += 1
                    yield int(token)
        except GeneratorExit:
            self._decoded(live, read)
            raise
        finally:
            steps.close()
        self._decoded(live, read)  # not after an error: then the caller rewinds or drops the state

    @staticmethod
    def _decoded(live: _Live, read: int) -> None:
        mx.eval([cache.state for cache in live.caches])
        live.position += read
        live.check()

    def mark(self, state: StateId) -> Mark:
        live = self._states[state]
        if unknown_classes(live.caches):
            return Mark(live.position, None)
        return Mark(live.position, [adapter(cache).mark(cache) for cache in live.caches])

    def rewind(self, state: StateId, mark: Mark) -> None:
        live = self._states[state]
        if mark.kept is None:
            raise ValueError("states of this model cannot be rewound")
        for cache, kept in zip(live.caches, mark.kept, strict=True):
            adapter(cache).rewind(cache, kept)
        live.position = mark.position
        live.check()

    def copy_state(self, state: StateId, start: int) -> StateCopy:
        live = self._states[state]
        return rows.copy_state(live.caches, start, live.position, with_snapshot=self._snapshots)

    def restore(self, stored: StoredState) -> Restored:
        caches = make_prompt_cache(self._model)
        if unknown_classes(caches):
            raise CheckpointRejected("unsupported", "States of this model cannot be restored.")
        read = rows.load_state(caches, stored)
        live = _Live(caches, stored.position)
        live.check()
        return Restored(self._add(live), read)

    def close(self) -> None:
        self._states.clear()
        self._model = self._counted = None
        mx.clear_cache()

    def _add(self, live: _Live) -> StateId:
        number = StateId(next(self._numbers))
        self._states[number] = live
        return number
