"""A backend that replays a script: a whole model for tests of everything above the engine, in microseconds.

It ships with the package (``model.name = "scripted"``) so that editors' packages and crash tests can run a real
daemon with no model. Its tokenizer is ChatML over single bytes; its state is real data (the ids it has read, and a
running digest that cannot be cut), so that checkpoints, restores, marks and the invariant "state equals log" are
exercised exactly as with a model. With a source, the loop of ``engine.lookup`` runs over it as over a model.

Replies: texts (or ids, as they are) in turn, then those of a script file (``engine.script``); where there is none,
the reply names a digest of everything read, so that a state that differs by one token answers differently.
"""

from __future__ import annotations

import hashlib
import itertools
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from qmlx_lsp.engine import lookup
from qmlx_lsp.engine.backend import Allowed, Lifted, Mark, ModelInfo, Passes, Report, Restored, Sampling, StateId
from qmlx_lsp.engine.draft import Drafter
from qmlx_lsp.engine.script import Script
from qmlx_lsp.engine.scripted_tokenizer import END_OF_TURN, parts, tokenizer_json
from qmlx_lsp.errors import CheckpointRejected
from qmlx_lsp.state import RowBuffer, RowSpec, StateCopy, StoredState, Tensor, TensorSpec
from qmlx_lsp.transcript.families import FAMILIES
from qmlx_lsp.transcript.tokens import ids_from_bytes, ids_to_bytes

DRAFT_ROWS = 8  # rows of a pass at most, where a source is copied
_DIGEST = 16
_OVER = -1  # what the script chooses behind its last id
_SNAPSHOT = TensorSpec("digest", "U8", (_DIGEST,))
_ROW = RowSpec("seen", "I32", heads=1, width=1)


@dataclass(eq=False)
class _Kept:
    """What a mark keeps; worthless once the state has gone back further."""

    position: int
    digest: bytes


class _State:
    def __init__(self, ids: list[int], digest: bytes) -> None:
        self.ids = ids
        self.digest = digest
        self.marks: weakref.WeakSet[_Kept] = weakref.WeakSet()
        self.passes = 0
        self.pace_s = 0.0  # seconds per token of the reply that is being written


@dataclass(frozen=True)
class _Taken:
    """What ``lift`` keeps, of a reply at that pace; ``passes`` counts those the state had seen, None if copied."""

    ids: list[int]
    digest: bytes
    marks: list[_Kept]
    pace_s: float
    passes: int | None


class ScriptedBackend:
    """Replays ``replies``; ``hybrid`` adds a state that cannot be cut, as recurrent models have.

    ``before_pass(kind, state_length)`` is called before every forward pass, kind ``prefill`` or ``decode``; a test
    raises from it, or blocks in it, to be anywhere at a known time.
    """

    def __init__(
        self,
        replies: Sequence[str | Sequence[int]] = (),
        *,
        hybrid: bool = True,
        context_tokens: int = 32_768,
        before_pass: Callable[[str, int], None] | None = None,
        name: str = "scripted",
        script: Script | None = None,
    ) -> None:
        self.passes = Passes()
        self.beside: dict[StateId, Any] = {}
        self._replies = list(replies)
        self._hybrid = hybrid
        self._context_tokens = context_tokens
        self._before_pass = before_pass or (lambda _kind, _length: None)
        self._name = name
        self._script = script
        self._states: dict[StateId, _State] = {}
        self._numbers = itertools.count(1)
        self._companion: ScriptedBackend | None = None

    def load(self, source: str, report: Report, cancelled: Callable[[], bool]) -> ModelInfo:
        report(1, 1, "script")
        kind = b"hybrid" if self._hybrid else b"rows"
        return ModelInfo(
            name=self._name,
            path="",
            fingerprint=hashlib.blake2b(kind + self._name.encode(), digest_size=_DIGEST).digest(),
            context_tokens=self._context_tokens,
            weight_bytes=0,
            eos_ids=frozenset({END_OF_TURN, 256}),
            needs_snapshot=self._hybrid,
            tokenizer_json=tokenizer_json(),
            template=FAMILIES["ChatML"][1],
            row_bytes=_ROW.heads * _ROW.row_bytes,
        )

    def new_state(self) -> StateId:
        return self._add(_State([], b"\0" * _DIGEST))

    def drop_state(self, state: StateId) -> None:
        self._states.pop(state, None)
        self.beside.pop(state, None)

    def position(self, state: StateId) -> int:
        return len(self._states[state].ids)

    def nbytes(self, state: StateId) -> int:
        return 4 * len(self._states[state].ids) + _DIGEST

    def prefill(self, state: StateId, ids: Sequence[int], *, ready: bool = False) -> None:
        self._feed(state, ids, "prefill")

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
        if source and ids and allowed is None:
            drafter = Drafter(source, DRAFT_ROWS)
            reader = _Reader(self, state, self.position(state) + len(ids))
            yield from lookup.decode(reader, ids, max_tokens, spare | {_OVER}, drafter)
            return
        if ids:
            self._feed(state, ids, "decode")
        forced: list[int] = []
        while allowed is not None and len(forced) < max_tokens and (choice := allowed(forced)) is not None:
            if not choice:
                return
            forced.append(min(choice))
            self._feed(state, forced[-1:], "decode")
            yield forced[-1]
        for token in itertools.islice(self._reply(state), max_tokens - len(forced)):
            if token in spare:
                return
            self._feed(state, [token], "decode")
            yield token

    def mark(self, state: StateId) -> Mark:
        held = self._states[state]
        return self._marked(held, len(held.ids), held.digest)

    def rewind(self, state: StateId, mark: Mark) -> None:
        held = self._states[state]
        if mark.kept not in held.marks:
            raise ValueError(f"the mark at {mark.position} is of another state, or lies behind a later rewind")
        del held.ids[mark.position :]
        held.digest = mark.kept.digest
        for other in [kept for kept in held.marks if kept.position > mark.position]:
            held.marks.discard(other)

    def cut(self, state: StateId, position: int) -> bool:
        held = self._states[state]
        if self._hybrid or position > len(held.ids):
            return False
        self.rewind(state, self._marked(held, position, held.digest))
        return True

    def lift(self, state: StateId, mark: Mark, *, copy: bool) -> Lifted:
        held = self._states[state]
        if mark.kept not in held.marks:
            raise ValueError(f"the mark at {mark.position} is of another state, or lies behind a later rewind")
        beyond = [kept for kept in held.marks if kept.position > mark.position]
        taken = _Taken(held.ids[mark.position :], held.digest, beyond, held.pace_s, None if copy else held.passes)
        end = len(held.ids)
        self.rewind(state, mark)
        return Lifted(mark.position, end, taken)

    def lay(self, state: StateId, lifted: Lifted) -> bool:
        held, taken = self._states[state], lifted.kept
        if len(held.ids) != lifted.start or taken.passes not in (None, held.passes):
            return False
        for other in [kept for kept in held.marks if kept.position > lifted.start]:
            held.marks.discard(other)
        held.ids += taken.ids
        held.digest = taken.digest
        held.pace_s = taken.pace_s
        held.marks.update(taken.marks)
        return True

    @staticmethod
    def _marked(held: _State, position: int, digest: bytes) -> Mark:
        kept = _Kept(position, digest)
        held.marks.add(kept)
        return Mark(position, kept)

    def copy_state(self, state: StateId, start: int, end: int | None = None) -> StateCopy:
        held = self._states[state]
        last = len(held.ids) if end is None else end
        rows = Tensor(_ROW.tensor(last - start), memoryview(ids_to_bytes(held.ids[start:last])))
        whole = self._hybrid and end is None
        return StateCopy(start, last, (rows,), (Tensor(_SNAPSHOT, memoryview(held.digest)),) if whole else None)

    def restore(self, stored: StoredState) -> Restored:
        if list(stored.rows) != [_ROW] or list(stored.snapshot or ()) != [_SNAPSHOT] * self._hybrid:
            raise CheckpointRejected("foreign", "The checkpoint does not fit the scripted model.")
        rows, digest = bytearray(4 * stored.position), bytearray(_DIGEST)
        buffers = [memoryview(digest)] if self._hybrid else []
        read = stored.fill([RowBuffer(_ROW, stored.position, memoryview(rows))], buffers)
        ids = list(ids_from_bytes(bytes(rows[: 4 * stored.position])))
        return Restored(self._add(_State(ids, bytes(digest))), read)

    def companion(self) -> ScriptedBackend:
        if self._companion is None:
            self._companion = ScriptedBackend(
                hybrid=self._hybrid, before_pass=self._before_pass, name="companion", script=self._script
            )
        return self._companion

    def close(self) -> None:
        self._states.clear()
        self.beside.clear()

    def ids(self, state: StateId) -> list[int]:
        """What the state has read; for tests."""
        return list(self._states[state].ids)

    def _add(self, state: _State) -> StateId:
        number = StateId(next(self._numbers))
        self._states[number] = state
        return number

    def _feed(self, state: StateId, ids: Sequence[int], kind: str) -> None:
        assert ids, "a forward pass needs at least one token"
        held = self._states[state]
        self._before_pass(kind, len(held.ids))
        if kind == "decode" and held.pace_s:
            time.sleep(held.pace_s * len(ids))
        self.passes.passes += 1
        self.passes.rows += len(ids)
        held.passes += 1
        for token in ids:
            held.ids.append(token)
            held.digest = hashlib.blake2b(held.digest + ids_to_bytes([token]), digest_size=_DIGEST).digest()

    def _reply(self, state: StateId) -> list[int]:
        held = self._states[state]
        if self._replies:
            text = self._replies.pop(0)
            if not isinstance(text, str):
                return list(text)
        elif said := self._script and self._script.reply(*parts(held.ids)):
            text, held.pace_s = said.text, said.pace_s
        else:
            seen = held.digest if self._hybrid else hashlib.blake2b(ids_to_bytes(held.ids)).digest()
            text = f"I have read {len(held.ids)} tokens, digest {seen.hex()[:16]}."
        return [*text.encode(), END_OF_TURN]


class _Reader:
    """The loop of ``engine.lookup`` over the script: what is chosen behind a row depends on its position alone, so
    that a row behind a wrong one looks right again, as in a text with one word replaced."""

    def __init__(self, backend: ScriptedBackend, state: StateId, begin: int) -> None:
        self._backend = backend
        self._state = state
        self._begin = begin
        self._script: list[int] | None = None
        self.cuttable = not backend._hybrid

    @property
    def position(self) -> int:
        return self._backend.position(self._state)

    def chosen(self, ids: Sequence[int], count: int) -> list[int]:
        self._backend._feed(self._state, ids, "decode")
        if self._script is None:
            self._script = self._backend._reply(self._state)
        first = self.position - count + 1 - self._begin
        script = self._script[first : first + count]
        return script + [_OVER] * (count - len(script))

    def used(self, count: int) -> None:
        return None  # nothing is drawn

    def queue(self, ids: Sequence[int]) -> int:
        return self.chosen(ids, 1)[0]

    def queue_behind(self, ahead: int) -> int:
        return _OVER if ahead == _OVER else self.queue([ahead])

    def value(self, ahead: int) -> int:
        return ahead

    def mark(self) -> tuple[int, bytes]:
        return self.position, self._held.digest

    def rewind(self, mark: tuple[int, bytes]) -> None:
        position, self._held.digest = mark
        del self._held.ids[position:]

    def cut(self, position: int) -> None:
        assert self.cuttable
        del self._held.ids[position:]  # nobody asks for the digest of a state of rows alone

    @property
    def _held(self) -> _State:
        return self._backend._states[self._state]
