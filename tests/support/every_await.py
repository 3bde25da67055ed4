"""Something happens at the k-th await of all that runs: every place at which a task can be interrupted, one by one.

The tasks that are made meanwhile are run by hand, one step at a time, and each step that ends in waiting is counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any


class Awaits:
    """``count`` awaits have been come to; at number ``at`` (from 1), ``happens`` is called soon."""

    def __init__(self, at: int, happens: Callable[[], None]) -> None:
        self.count = 0
        self.over = False
        self._at, self._happens = at, happens

    def come_to(self) -> None:
        if self.over:
            return
        self.count += 1
        if self.count == self._at:
            asyncio.get_running_loop().call_soon(self._happens)


class _Stepped(Coroutine[Any, Any, Any]):
    def __init__(self, inner: Coroutine[Any, Any, Any], awaits: Awaits) -> None:
        self._inner, self._awaits = inner, awaits

    def send(self, value: Any) -> Any:
        waits_for = self._inner.send(value)
        self._awaits.come_to()
        return waits_for

    def throw(self, kind: Any, value: Any = None, trace: TracebackType | None = None) -> Any:
        waits_for = self._inner.throw(kind) if value is None else self._inner.throw(kind, value, trace)
        self._awaits.come_to()
        return waits_for

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        raise NotImplementedError


@asynccontextmanager
async def counted(at: int, happens: Callable[[], None]) -> AsyncIterator[Awaits]:
    """Count the awaits of all tasks that are made inside; see ``Awaits``."""
    loop = asyncio.get_running_loop()
    awaits = Awaits(at, happens)

    def make(loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> asyncio.Task[Any]:
        return asyncio.Task(_Stepped(coro, awaits), loop=loop, **more)

    before = loop.get_task_factory()
    loop.set_task_factory(make)
    try:
        yield awaits
    finally:
        awaits.over = True
        loop.set_task_factory(before)
