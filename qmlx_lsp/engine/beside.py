"""What is kept beside a live state for its branches: where they can stand, and the one that was read last.

It lives on the engine thread with the state (``Backend.beside``) and goes with it.

Invariant: a base that is noted is a mark of the state; whoever rewinds the state before it makes it worthless.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from qmlx_lsp.engine.backend import Backend, Lifted, Mark, StateId


@dataclass(frozen=True, slots=True)
class Marked:
    """A mark behind ``at`` ids of a branch; ``ready`` as in ``Backend.prefill``."""

    at: int
    mark: Mark
    ready: bool


@dataclass(slots=True)
class Branch:
    """A branch that was read: its ids behind the base, marks in it, ascending, and itself, lifted."""

    base: int
    ids: list[int] = field(default_factory=list)
    marks: list[Marked] = field(default_factory=list)
    lifted: Lifted | None = None


@dataclass(slots=True)
class Beside:
    """What is kept with a state: where a reply may be gone back from, and the branch read last."""

    bases: dict[int, Mark] = field(default_factory=dict)
    branch: Branch | None = None


def beside_of(backend: Backend, state: StateId) -> Beside:
    found = backend.beside.get(state)
    if not isinstance(found, Beside):
        found = backend.beside[state] = Beside()
    return found


def note_base(backend: Backend, state: StateId) -> None:
    """A reply that is being computed stands where a branch could stand."""
    beside_of(backend, state).bases[backend.position(state)] = backend.mark(state)


def forget_bases(backend: Backend, state: StateId) -> None:
    """The reply has ended."""
    beside = backend.beside.get(state)
    if beside is not None:
        beside.bases.clear()
        if beside.branch is not None and beside.branch.base != backend.position(state):
            beside.branch = None
