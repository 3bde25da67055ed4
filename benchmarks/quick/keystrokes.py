"""What is read for a completion at every keystroke, through the whole protocol: the characters typed, not the window.

Invariant: a keystroke whose completion asked no model (what was shown is typed through) counts as one with no rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from benchmarks import inline
from benchmarks.places import places
from benchmarks.quick.bound import Bounded, Sense
from benchmarks.quick.desk import CountedBackend, Passes

KEYS = 12
ROWS_A_KEY = 1.1  # a token is a byte here: the key itself, and now and then the character before it


def figures(kind: str) -> Iterator[Bounded]:
    """Tokens read per typed one, behind the first request of a place, which reads the window."""
    first, *others = asyncio.run(_typed(kind))
    missing = "" if first > len(others) else f"the first request read {first} tokens, which is no window"
    value = None if missing else sum(others) / len(others)
    yield Bounded(f"{kind}: completion: tokens read / typed token", value, Sense.MOST, ROWS_A_KEY, "×", missing)


async def _typed(kind: str) -> list[int]:
    """Rows that were read, not written, for each request."""
    passes, read = Passes(), []
    place = places(1, 0, KEYS)[0]
    async with inline.desk(Path(kind), lambda: CountedBackend(kind, passes)) as here:
        await here.ask("What is this project about?")
        file = here.open(place)
        for typed in range(KEYS):
            if typed:
                here.type(file, place.line, place.column + typed - 1, place.rest[typed - 1])
            passes.begin()
            await here.complete(file, place.line, place.column + typed)
            # Each id of a completion is read by a pass of its own.
            read.append(sum(passes.rows) - here.status["last"]["generated"] if passes.rows else 0)
    return read
