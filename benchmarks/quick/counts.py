"""What the model computes, turn by turn, in one conversation after the other: exact numbers, the same on any machine.

Each kind of model gets a project with a file of some thousand tokens and goes through what happens to users: it goes
on, a reply is cut, a prefill is cut, the file is edited near its beginning, two projects take turns, the daemon ends
and begins again, or is killed.

Invariant: a scenario that did not come about (nothing was cut, say) is not measured, whatever was counted in it.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from benchmarks.quick.bound import Bounded, Sense
from benchmarks.quick.desk import Desk, Stop, Turn, desk, settings
from qmlx_lsp.transcript.entry import Finish

LINES = 100  # of a file, some 2,600 tokens: more than there are between two checkpoints of a prefill
CUT_AFTER_PASSES = 8  # of a reply: one that reads, the rest are its ids
CUT_AT = 0.9  # of a prefill
REPEATED_SHARE = 0.15  # of a cold prefill may be computed when one that was cut there is repeated
TOLD_SHARE = 0.1  # of the context is what one changed line may cost: its hunk, its header and the question
WRITTEN_SHARE = 0.15  # of the bytes of a cold turn; small files are rounded up to pages
CHUNKS_SHARE = 1.4  # passes of a cold prefill, of as many as there are full chunks; it stops at checkpoints as well


def figures(kind: str, lines: int = LINES) -> Iterator[Bounded]:
    """All counts of a model of ``kind``."""
    return iter(asyncio.run(_all(kind, lines)))


async def _all(kind: str, lines: int) -> list[Bounded]:
    with tempfile.TemporaryDirectory(prefix="qmlx-") as folder:
        base = Path(folder).resolve()
        async with desk(kind, base / "home") as here:
            return [one async for one in _day(here, base, lines)]


async def _day(here: Desk, base: Path, lines: int) -> AsyncIterator[Bounded]:
    one, two = (project(base, name, lines) for name in ("one", "two"))
    cold = await here.ask(one, "What is this?", path=one / FILE)
    yield _beyond(here, "cold", cold)
    yield _chunks(here, cold)
    follow = await here.ask(one, "And what does it do?")
    yield _beyond(here, "follow-up", follow)
    yield Bounded(
        f"{here.kind}: follow-up: passes beyond one for the question with the reply's head, one an id",
        len(follow.rows) - 1 - follow.generated, Sense.EXACT, 0,
    )  # fmt: skip
    yield Bounded(
        f"{here.kind}: follow-up: checkpoint bytes / those of the cold turn",
        follow.written / cold.written if cold.written and follow.written else None, Sense.MOST, WRITTEN_SHARE, "×",
        why="" if cold.written and follow.written else "no checkpoint was written",
    )  # fmt: skip
    cut = await here.ask(one, "Explain that at length.", stop=lambda rows: len(rows) >= CUT_AFTER_PASSES)
    after = await here.ask(one, "Stop. Is it used?")
    yield _beyond(here, "reply cut, then a question", cut, after, missing=not_cut(cut, replied=True))
    for figure in await _prefill_cut(here, two, cold):
        yield figure
    for figure in await _edit(here, one):
        yield figure
    turns = [await here.ask(root, f"Once more, {n}?") for n in range(2) for root in (one, two)]
    yield _beyond(here, "two projects in turn", *turns)
    await here.restart()
    turns = [await here.ask(root, "After a restart?") for root in (one, two)]
    yield _beyond(here, "after a restart, two projects", *turns)
    await here.crash(base / "killed")
    turns = [await here.ask(root, "After it was killed?") for root in (one, two)]
    yield _beyond(here, "after a kill, two projects", *turns)


async def _prefill_cut(here: Desk, root: Path, cold: Turn) -> Sequence[Bounded]:
    """A prefill as long as ``cold``'s is cancelled and asked again, in another project. Both begin alike, and what
    they begin with is restored there, not read."""
    session = await here.app.registry.session(root.parent / "one")
    opening = session.transcript.entries[0].end
    asked = {"text": "What is this?", "path": root / FILE}
    cut = await here.ask(root, **asked, stop=cut_at(CUT_AT, cold.new, opening))  # type: ignore[arg-type]
    again = await here.ask(root, **asked)  # type: ignore[arg-type]
    missing = not_cut(cut, replied=False)
    share = (sum(again.rows) - again.generated) / cold.new
    return [
        _beyond(here, "prefill cut and repeated, both", cut, again, missing=missing, known=opening),
        Bounded(
            f"{here.kind}: prefill cut at {CUT_AT:.0%}, repeated: tokens / cold",
            None if missing else share, Sense.MOST, REPEATED_SHARE, "×", missing,
        ),
    ]  # fmt: skip


async def _edit(here: Desk, root: Path) -> Sequence[Bounded]:
    """A line near the beginning of the file is another one."""
    file = root / FILE
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join([*lines[:3], "another = line()\n", *lines[4:]]), encoding="utf-8")
    turn = await here.ask(root, "And now?")
    asked = await here.ask(root, "And now?")  # the same without an edit
    missing = "" if turn.new > asked.new else "the edit was not told"
    return [
        _beyond(here, "early edit", turn, missing=missing),
        Bounded(
            f"{here.kind}: early edit: tokens told / context", None if missing else turn.new / turn.context,
            Sense.MOST, TOLD_SHARE, "×", missing,
        ),
    ]  # fmt: skip


FILE = "module.py"


def project(base: Path, name: str, lines: int) -> Path:
    """A folder with a file of ``lines`` lines that no other name's has; equally long for names that are."""
    root = base / name
    root.mkdir()
    text = "".join(f"{name}_{number:04d} = compute({number:04d})\n" for number in range(lines))
    (root / FILE).write_text(text, encoding="utf-8")
    return root


def cut_at(share: float, total: int, known: int = 0) -> Stop:
    """Cancels in front of the pass in which ``share`` of ``total`` rows are reached, ``known`` of which are there."""
    return lambda rows: known + sum(rows) >= share * total


def not_cut(turn: Turn, *, replied: bool) -> str:
    """Why ``turn`` is not one that was cancelled: in its reply, or before it."""
    if turn.answer.finish is not Finish.CANCELLED:
        return f"nothing was cut, it ended as {turn.answer.finish.value}"
    if bool(turn.generated) is not replied:
        return f"cut at another place, after {turn.generated} tokens of a reply"
    return ""


def _beyond(here: Desk, what: str, *turns: Turn, missing: str = "", known: int = 0) -> Bounded:
    """What ``turns`` computed again; ``known`` of their new ids were known from another conversation."""
    for turn in turns:
        if turn.answer.finish is Finish.ERROR:
            missing = missing or f"a turn failed: {turn.answer.error}"
    value = None if missing else known + sum(turn.beyond for turn in turns)
    return Bounded(f"{here.kind}: {what}: tokens beyond the new ones", value, Sense.EXACT, 0, why=missing)


def _chunks(here: Desk, cold: Turn) -> Bounded:
    chunks = math.ceil(cold.new / settings().engine.prefill_chunk_tokens)
    passes = len(cold.rows) - cold.generated
    return Bounded(
        f"{here.kind}: cold: passes that read / full chunks", passes / chunks, Sense.MOST, CHUNKS_SHARE, "×"
    )
