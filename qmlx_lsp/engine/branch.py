"""A branch on top of a live state: read, generated, and gone again, as if nothing had been.

An inline completion is one. Its prompt stands behind a *base*, a position of the conversation; between two keystrokes
the branch is lifted away and kept, so that the next one reads the typed characters only. The prompt is compared by
ids: what was read is used up to the first difference, from the newest mark inside what the two have in common.

Runs on the engine thread, by itself or between two tokens of a reply on the same state (``Worker.let_in``): what the
reply has read behind the base is then set aside by value, and put back.

Invariant: a branch leaves the state where it found it, to the bit, whatever ends it. If that cannot be done the state
is dropped, never left in doubt.
Invariant: what a branch has read is exactly its prompt's ids; marks say only how much of it has to be read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

from qmlx_lsp.engine.backend import Allowed, Backend, Lifted, Mark, Sampling, StateId
from qmlx_lsp.engine.beside import Branch, Marked, beside_of
from qmlx_lsp.transcript.entry import Finish

# A mark needs the end of a pass: on a state that cannot be cut, one more pass and at most so many tokens read again.
MARK_TOKENS = 8
# Marks of one prompt at most; the oldest but the first go. Each holds a model's recurrent state.
MARKS_MAX = 3
READY_TOKENS = 8  # of a first reading, for which logits are computed


@dataclass(frozen=True, slots=True)
class Base:
    """A position that a branch can stand on, and the ids that its prompt begins with there."""

    position: int
    head: Sequence[int]


@dataclass(frozen=True, slots=True)
class BranchJob:
    """What to complete on ``state``: behind the first of ``bases`` that can be reached, its head and ``text``.

    With ``max_tokens`` 0 it is read only. ``eos_ids`` end it and are not part of it. ``stops(id)`` is asked after
    every generated id. ``stay``: the state is left behind what was generated, if anything was; only for a state that
    nobody else uses, and not while it answers.
    """

    state: StateId
    bases: Sequence[Base]
    text: Sequence[int]
    eos_ids: frozenset[int]
    max_tokens: int
    chunk_tokens: int
    allowed: Allowed | None = None
    stops: Callable[[int], bool] = lambda _id: False
    stay: bool = False


@dataclass(frozen=True, slots=True)
class Completed:
    """How it ended. ``base`` is the one it stood on; ``prefilled`` rows were computed before the first generated
    token, ``kept`` ones were there. ``position`` is that of the state if it stayed behind the branch, else None.
    Times in milliseconds."""

    finish: Finish
    ids: tuple[int, ...]
    base: Base
    prefilled: int
    kept: int
    passes: int
    prefill_ms: float
    decode_ms: float
    position: int | None = None


def complete(
    backend: Backend,
    job: BranchJob,
    cancelled: Callable[[], bool],
    clock: Callable[[], float] = time.perf_counter,
) -> Completed | None:
    """Run ``job``; None when the state is at none of its bases and remembers none, or cannot be marked."""
    try:
        found = _base(backend, job)
    except KeyError:
        return None  # the state has been dropped
    if found is None:
        return None
    base, mark = found
    answering = backend.position(job.state) > base.position
    assert not (answering and job.stay)
    try:
        reply = backend.lift(job.state, mark, copy=answering)
    except ValueError:  # what cannot be gone back with is not gone on with
        return None
    run = _Run(backend, job, base, mark, clock)
    try:
        return run.through(cancelled)
    finally:
        if not run.stayed:
            _leave(backend, run, reply if answering else None)


def _base(backend: Backend, job: BranchJob) -> tuple[Base, Mark] | None:
    at, known = backend.position(job.state), beside_of(backend, job.state).bases
    for base in job.bases:
        if base.position == at:
            return base, backend.mark(job.state)
        if base.position < at and base.position in known:
            return base, known[base.position]
    return None


def _leave(backend: Backend, run: _Run, reply: Lifted | None) -> None:
    """Lift the branch away and put back what was there."""
    state = run.job.state
    try:
        beside = beside_of(backend, state)
        beside.branch = run.branch if run.settle(answering=bool(beside.bases)) else None
        whole = reply is None or backend.lay(state, reply)
    except Exception:  # noqa: BLE001 - memory that runs out, say: whatever it is, nobody knows what has been read
        whole = False
    if not whole:
        backend.drop_state(state)


class _Run:
    """One completion while it is computed."""

    def __init__(self, backend: Backend, job: BranchJob, base: Base, mark: Mark, clock: Callable[[], float]) -> None:
        self.backend = backend
        self.job = job
        self.base = base
        self.mark = mark
        self.clock = clock
        self.wanted = [*base.head, *job.text]
        self.branch = Branch(base.position)
        self.stayed = False
        self.good = False

    def through(self, cancelled: Callable[[], bool]) -> Completed:
        passes, began = self.backend.passes.passes, self.clock()
        kept = self._resume()
        rows = self.backend.passes.rows
        finish = self._read(kept, cancelled)
        prefilled, read_at = self.backend.passes.rows - rows, self.clock()
        self.good = True
        ids: list[int] = []
        if finish is None:
            self.good = False
            finish = self._write(ids, cancelled)
            self._back(ids)
        return Completed(
            finish,
            tuple(ids),
            self.base,
            prefilled,
            kept,
            self.backend.passes.passes - passes,
            (read_at - began) * 1000,
            (self.clock() - read_at) * 1000,
            self.backend.position(self.job.state) if self.stayed else None,
        )

    def settle(self, *, answering: bool) -> bool:
        """Lift the branch; whether it can be laid back some day. While the state is ``answering``, rows are written
        here before that."""
        backend, state = self.backend, self.job.state
        if not self.good:
            backend.rewind(state, self.mark)
            return False
        self.branch.lifted = backend.lift(state, self.mark, copy=answering)
        return True

    # --- reading --------------------------------------------------------------------------------------------------

    def _resume(self) -> int:
        """Lay back what was read before, as far as it is wanted; returns how many ids of the prompt that is."""
        backend, state = self.backend, self.job.state
        former = beside_of(backend, state).branch
        if former is None or former.base != self.base.position or former.lifted is None:
            return 0
        common = _common(former.ids, self.wanted)
        if not common or not backend.lay(state, former.lifted):
            return 0
        self.branch, former.lifted = former, None
        whole = common == len(self.wanted)
        if whole and (at := next((one for one in former.marks if one.at == common and one.ready), None)):
            backend.rewind(state, at.mark)
            return self._stands(common)
        if not whole and common == len(former.ids):
            return common
        return self._cut(common - 1 if whole else common)

    def _stands(self, at: int) -> int:
        """So many ids of the branch are what has been read."""
        self.branch.marks = [one for one in self.branch.marks if one.at <= at]
        del self.branch.ids[at:]
        return at

    def _cut(self, most: int) -> int:
        """Go back to ``most`` ids of the branch, or to the newest mark before that; returns where it stands."""
        backend, state = self.backend, self.job.state
        newest = next((one for one in reversed(self.branch.marks) if one.at <= most), None)
        if newest is not None and newest.at == most:
            backend.rewind(state, newest.mark)
        elif not backend.cut(state, self.base.position + most):
            backend.rewind(state, self.mark if newest is None else newest.mark)
            most = 0 if newest is None else newest.at
        return self._stands(most)

    def _read(self, kept: int, cancelled: Callable[[], bool]) -> Finish | None:
        """Read the rest of the prompt. The end of it is marked, and so is a place some tokens before."""
        done, total = kept, len(self.wanted)
        while done < total:
            if cancelled():
                return Finish.CANCELLED
            to = self._chunk(done, total)
            self.backend.prefill(self.job.state, self.wanted[done:to], ready=to == total)
            self.branch.ids += self.wanted[done:to]
            done = to
            if done >= len(self.base.head):
                self._mark(done, ready=to == total)
        return Finish.CANCELLED if cancelled() else None

    def _chunk(self, done: int, total: int) -> int:
        """Where the next pass ends: where the head ends, some tokens before the end, or after a chunk."""
        to, head = min(done + self.job.chunk_tokens, total), len(self.base.head)
        if done < head:
            to = min(to, head)
        if to == total and total - done > READY_TOKENS:
            to = total - READY_TOKENS
        return to

    def _mark(self, at: int, *, ready: bool) -> None:
        """Marks are moved lazily: one at the end, and those that lie some tokens apart."""
        marks = self.branch.marks
        if len(marks) > 1 and at - marks[-2].at < MARK_TOKENS:
            marks.pop()
        marks.append(Marked(at, self.backend.mark(self.job.state), ready))
        while len(marks) > MARKS_MAX:
            del marks[1]

    # --- generating -----------------------------------------------------------------------------------------------

    def _write(self, ids: list[int], cancelled: Callable[[], bool]) -> Finish:
        job = self.job
        if not job.max_tokens:
            return Finish.LENGTH
        decoding = self.backend.decode(job.state, [], Sampling(), job.max_tokens, job.eos_ids, allowed=job.allowed)
        with closing(decoding) as stream:
            for token in stream:
                if token in job.eos_ids:  # of a backend for which taking it back is dear
                    return Finish.COMPLETE
                ids.append(token)
                if job.stops(token):
                    return Finish.COMPLETE
                if cancelled():
                    return Finish.CANCELLED
        return Finish.LENGTH if len(ids) == job.max_tokens else Finish.COMPLETE

    def _back(self, ids: Sequence[int]) -> None:
        """To the end of the prompt, unless the state is to stay."""
        backend, state = self.backend, self.job.state
        if self.job.stay and ids:
            if backend.position(state) > self.base.position + len(self.wanted) + len(ids):  # an end was read, too
                backend.rewind(state, self.branch.marks[-1].mark)
                backend.prefill(state, ids)
            self.stayed = True
            backend.beside.pop(state, None)
            return
        backend.rewind(state, self.branch.marks[-1].mark)
        self.good = True


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids the two begin with alike."""
    count = min(len(one), len(other))
    return next((at for at in range(count) if one[at] != other[at]), count)
