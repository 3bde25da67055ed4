"""One reply, computed: prefill in chunks, then decode token by token, with a way out after each.

Runs on the engine thread against any backend.

Invariant: whatever ends it (end token, length, stop, cancel in prefill, cancel in decode, an error), on return
``position`` equals the number of ids the state has really read, and ``ids`` are exactly the ids it produced. After
an error the state stands at the last chunk boundary, before the pass over the header, whatever ``ids`` had been
produced; if that cannot be reached the state is dropped and ``position`` is None.
Invariant: once ``cancelled()`` is true no further forward pass starts after the running chunk or token, but for the
one that may close a reply with a ``source``.

A short last chunk (``tail_tokens``) is read in one pass with the header: a pass over few tokens costs what reading
the weights costs, and a question behind a conversation is often no longer than that. What ends before the reply's
first token, an error or an empty reply, then leaves these tokens unread.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from qmlx_lsp.engine.backend import Backend, Mark, Sampling, StateId
from qmlx_lsp.engine.beside import forget_bases, note_base
from qmlx_lsp.transcript.entry import Finish


@dataclass(frozen=True, slots=True)
class Job:
    """What to compute on ``state``: read ``prefill``, then ``header`` (the head of the reply), then generate.

    ``eos_ids`` end the reply and belong to it; ``spare`` end it and do not, where the backend can leave them out.
    ``stops(id)`` is asked after every generated id and may end the reply early (stop texts). A limit of 0 tokens
    reads ``prefill`` only. ``points`` are numbers of ids of ``prefill``, ascending: a chunk ends there and
    ``at_point`` is called, which may look at the state and must neither change nor fail it. ``bases`` are numbers of
    the same kind, where branches could stand while the reply is computed; they can stand where it begins as well.
    ``source`` are ids that the reply is likely to copy. A last chunk of at most ``tail_tokens`` goes with the header.
    """

    state: StateId
    prefill: Sequence[int]
    header: Sequence[int]
    eos_ids: frozenset[int]
    max_tokens: int
    sampling: Sampling
    chunk_tokens: int
    stops: Callable[[int], bool] | None = None
    points: Sequence[int] = ()
    spare: frozenset[int] = frozenset()
    at_point: Callable[[Backend], None] = lambda _backend: None
    bases: Sequence[int] = ()
    source: Sequence[int] = ()
    tail_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended. ``position`` is None when the state had to be dropped. Times in milliseconds.

    ``prefilled`` counts rows of forward passes before the first generated token; ``passes`` counts all passes.
    ``header_read`` says whether the state has read the header and ``ids``: if not, it ends before them (nothing was
    generated, or an error took it back).
    """

    finish: Finish
    ids: tuple[int, ...]
    position: int | None
    header_read: bool
    prefilled: int
    passes: int
    prefill_ms: float
    first_token_ms: float | None
    decode_ms: float
    error: str | None = None


class StateLost(RuntimeError):
    """Somebody who was let in had to drop the state."""


class _Run:
    """One reply while it is computed: what has been produced, and the last boundary known to be good."""

    def __init__(
        self, backend: Backend, job: Job, let_in: Callable[[Backend], None], clock: Callable[[], float]
    ) -> None:
        self.backend = backend
        self.job = job
        self.clock = clock
        self._let_in = let_in
        self.started = clock()
        self.passes_before = backend.passes.passes
        self.rows_before = backend.passes.rows
        self.safe: Mark = backend.mark(job.state)
        self.ids: list[int] = []
        self.header_read = False
        self.head: Sequence[int] = job.header
        self.prefilled = 0
        note_base(backend, job.state)
        self.read_at: float | None = None
        self.first_token_at: float | None = None

    def read(self, cancelled: Callable[[], bool], on_prefill: Callable[[int, int], None]) -> Finish | None:
        """Prefill chunk by chunk, but for a tail that goes with the header. Returns how the reply ended, or None when
        it is to go on."""
        total, done = len(self.job.prefill), 0
        points = deque(sorted({*self.job.points, *self.job.bases}))
        while done < total:
            self.others()
            if cancelled():
                return Finish.CANCELLED
            if self._is_tail(total - done) and not points:
                self.head = [*self.job.prefill[done:], *self.job.header]
                break
            chunk = self.job.prefill[done : min(done + self.job.chunk_tokens, points[0] if points else total)]
            self.backend.prefill(self.job.state, chunk)
            done += len(chunk)
            self.prefilled = self.backend.passes.rows - self.rows_before
            self.safe = self.backend.mark(self.job.state)
            on_prefill(done, total)
            if points and points[0] == done:
                points.popleft()
                if done in self.job.bases:
                    note_base(self.backend, self.job.state)
                if done in self.job.points:
                    self.job.at_point(self.backend)
        if self.head is self.job.header:
            self.read_at = self.clock()  # else at the first token, in whose pass the tail is read
        if cancelled():
            return Finish.CANCELLED
        return Finish.COMPLETE if self.job.max_tokens == 0 else None

    def _is_tail(self, left: int) -> bool:
        return bool(self.job.max_tokens and self.job.header) and left <= self.job.tail_tokens

    def write(self, cancelled: Callable[[], bool], on_token: Callable[[int], None]) -> Finish:
        """Decode until something ends it."""
        job = self.job
        self.header_read = True
        decoding = self.backend.decode(
            job.state, self.head, job.sampling, job.max_tokens, job.spare, source=job.source
        )
        with closing(decoding) as stream:
            for token in stream:
                if self.first_token_at is None:
                    self.first_token_at = self.clock()
                    self.read_at = self.first_token_at if self.read_at is None else self.read_at
                    self.prefilled += len(self.head)
                self.ids.append(token)
                on_token(token)
                if token in job.eos_ids or (job.stops is not None and job.stops(token)):
                    return Finish.COMPLETE
                self.others()
                if cancelled():
                    return Finish.CANCELLED
        return Finish.LENGTH if len(self.ids) == job.max_tokens else Finish.COMPLETE

    def others(self) -> None:
        """Let in what is short and waits. Its passes are not ours."""
        passes, rows = self.backend.passes.passes, self.backend.passes.rows
        self._let_in(self.backend)
        try:
            self.backend.position(self.job.state)
        except KeyError:  # the loop of a model would go on, on caches that hold who knows what
            raise StateLost("a completion took the state along that the reply was computed on") from None
        self.passes_before += self.backend.passes.passes - passes
        self.rows_before += self.backend.passes.rows - rows

    def undo(self) -> int | None:
        """Back to the last good boundary after an error; None when dropping the state is all that is left."""
        self.header_read = False
        try:
            self.backend.rewind(self.job.state, self.safe)
            return self.backend.position(self.job.state)
        except (ValueError, AssertionError, KeyError):  # the last one if somebody who was let in had to drop it
            self.backend.drop_state(self.job.state)
            return None

    def outcome(self, finish: Finish, position: int | None, error: str | None = None) -> Outcome:
        ended = self.clock()
        first, read_at = self.first_token_at, ended if self.read_at is None else self.read_at
        return Outcome(
            finish=finish,
            ids=tuple(self.ids),
            position=position,
            header_read=self.header_read,
            prefilled=self.prefilled,
            passes=self.backend.passes.passes - self.passes_before,
            prefill_ms=(read_at - self.started) * 1000,
            first_token_ms=None if first is None else (first - self.started) * 1000,
            decode_ms=0.0 if first is None else (ended - first) * 1000,
            error=error,
        )


def generate(
    backend: Backend,
    job: Job,
    *,
    cancelled: Callable[[], bool],
    on_prefill: Callable[[int, int], None],
    on_token: Callable[[int], None],
    let_in: Callable[[Backend], None] = lambda _backend: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Outcome:
    """Run ``job`` to whatever end it meets; see the module's invariants.

    ``on_prefill(done, total)`` is called after every chunk, ``on_token(id)`` for every id as soon as it exists.
    ``let_in(backend)`` is called before every chunk and after every id; it may run branches on the state.
    """
    run = _Run(backend, job, let_in, clock)
    try:
        finish = run.read(cancelled, on_prefill) or run.write(cancelled, on_token)
    except Exception as failure:  # noqa: BLE001 - whatever the model's code raises, the turn ends as an error
        return run.outcome(Finish.ERROR, run.undo(), f"{type(failure).__name__}: {failure}")
    finally:
        forget_bases(backend, job.state)
    if run.header_read and not run.ids:  # it ended at once, by an id that is spared: there is no reply
        return run.outcome(finish, run.undo())
    return run.outcome(finish, backend.position(job.state))
