"""What every backend can do, as a few plain commands on numbered states.

A *state* is what the model has read so far: the caches of one conversation, at exactly ``position`` tokens. All
commands run on the engine thread, one after another. Two backends exist: ``engine.mlx`` (a real model) and
``engine.scripted`` (replays a script; for tests of everything above).

Invariant (state equals log): when a command returns, every layer of the state stands at ``position``. When a
command raises, the caller rewinds to a mark or drops the state.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NewType, Protocol

from qmlx_lsp.state import StateCopy, StoredState
from qmlx_lsp.transcript.template import Template

StateId = NewType("StateId", int)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. ``temperature`` 0 takes the likeliest. ``seed`` fixes the draw."""

    temperature: float = 0.0
    top_p: float = 1.0
    min_p: float = 0.0
    top_k: int = 0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a loaded model is, in plain data.

    ``fingerprint`` (16 bytes) covers everything that makes a state reusable. ``template`` is the chat template's
    source, or what renders it, or None when the model has none; ``tokens`` are the texts that templates know by name.
    ``think`` and ``call`` hold the texts that open and close a thinking block and a tool's call, if they are known.
    ``not_persisted`` says why states of this model cannot be checkpointed, or is None when they can. ``row_bytes``:
    bytes of memory that each token's rows take; 0 if none.
    """

    name: str
    path: str
    fingerprint: bytes
    context_tokens: int
    weight_bytes: int
    eos_ids: frozenset[int]
    needs_snapshot: bool
    tokenizer_json: str
    template: str | Template | None = field(repr=False)
    tokens: Mapping[str, str] = field(default_factory=dict)
    think: tuple[str, str] | None = None
    call: tuple[str, str] | None = None
    not_persisted: str | None = None
    row_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """A position to which a state can go back in O(1). ``kept`` belongs to the backend and stays on its thread."""

    position: int
    kept: Any = field(repr=False, default=None)


@dataclass(frozen=True, slots=True)
class Lifted:
    """What lay behind a mark and was taken away, ``[start, end)``. ``kept`` belongs to the backend."""

    start: int
    end: int
    kept: Any = field(repr=False)


# Which ids may come next, behind those generated so far; None for any, from then on.
Allowed = Callable[[Sequence[int]], "Sequence[int] | None"]


@dataclass(frozen=True, slots=True)
class Restored:
    """A state that was read from a checkpoint, and what that took."""

    state: StateId
    bytes: int


@dataclass(slots=True)
class Passes:
    """Forward passes and the rows (tokens) they computed, counted where they happen."""

    passes: int = 0
    rows: int = 0


# Called with (done, total, what) during long work: bytes while downloading, files while loading.
Report = Callable[[int, int, str], None]


class Backend(Protocol):
    """The commands. Everything is called on the engine thread.

    ``beside`` holds what others keep with a state on this thread; it goes when the state goes.
    """

    passes: Passes
    beside: dict[StateId, Any]

    def load(self, source: str, report: Report, cancelled: Callable[[], bool]) -> ModelInfo:
        """Make the model at ``source`` (folder, Hugging Face id or ``embedded``) ready.

        Raises:
            ModelError: one line that names the model and the remedy.
            Cancelled: ``cancelled()`` became true.
        """

    def new_state(self) -> StateId: ...

    def drop_state(self, state: StateId) -> None: ...

    def position(self, state: StateId) -> int: ...

    def nbytes(self, state: StateId) -> int:
        """Bytes of memory the state holds."""

    def prefill(self, state: StateId, ids: Sequence[int], *, ready: bool = False) -> None:
        """One forward pass over ``ids`` (at least one), finished when this returns.

        ``ready``: ``decode`` may go on from here with no ids to feed; so it may after a rewind to a mark made here.
        """

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
        """Feed ``ids`` (at least one, unless the state is ``ready``), then yield up to ``max_tokens`` generated ids.

        Every id that was yielded has been fed: after closing the iterator at any point, ``position`` has grown by
        ``len(ids)`` and the number of ids yielded, and no further pass runs. Nothing stops it at an end token, but an
        id of ``spare`` ends it without having been fed or yielded; a backend for which that is dear yields it.
        ``allowed`` is asked before each id until it answers None; when it answers with no id, nothing more is
        yielded. At every yield the state may be lifted to an earlier mark and laid back.

        ``source`` are ids that are likely to be copied: several of them may be read in a pass (``engine.lookup``).
        Between two yields ``position`` is then where the state really stands, behind the ids yielded or before them,
        and closing the iterator may take one more pass.
        """

    def mark(self, state: StateId) -> Mark: ...

    def rewind(self, state: StateId, mark: Mark) -> None:
        """Go back to ``mark``, which stays good; every mark beyond it becomes worthless.

        Raises:
            ValueError: this state cannot, the mark is worthless or of another state, or (after a failed pass) the
                state's memory is lost; in the last case the state must be dropped.
        """

    def cut(self, state: StateId, position: int) -> bool:
        """Go back to ``position``, which nobody has marked; False where the state cannot. As ``rewind``."""

    def lift(self, state: StateId, mark: Mark, *, copy: bool) -> Lifted:
        """Go back to ``mark`` and keep what lay behind it for ``lay``; the marks there stay good.

        Without ``copy`` this takes no time, and any pass on the state makes what was lifted worthless.

        Raises:
            ValueError: as ``rewind``.
        """

    def lay(self, state: StateId, lifted: Lifted) -> bool:
        """Put back what was lifted, on a state that stands where it was lifted from. Every bit is as it was. False
        when it has become worthless; the state is then as it was before."""

    def copy_state(self, state: StateId, start: int, end: int | None = None) -> StateCopy:
        """Host copy of the rows ``[start, position)`` and of the snapshot here, if the model needs one.

        With ``end``, of the rows ``[start, end)`` alone.

        The live state is left in the very arrangement a restore would give it, so that the two go on bit for bit
        alike.
        """

    def restore(self, stored: StoredState) -> Restored:
        """A new state read from a checkpoint. No other state is touched.

        Raises:
            CheckpointRejected: the checkpoint cannot be trusted or does not fit this model.
        """

    def companion(self) -> Backend:
        """Another backend of the same kind on the same thread, for a second model; the same one every time."""

    def close(self) -> None:
        """Free everything."""
