"""Work in idle time: after a rest, one at a time, told to stop at once."""

from __future__ import annotations

import asyncio

from qmlx_lsp.session.event import Job
from qmlx_lsp.session.rest import Rest
from tests.support.bench import Idle
from tests.support.waiting import until


class Work:
    """Notes when it begins; ends when told, or by itself when ``quick``."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.quick = False
        self.may_end = asyncio.Event()

    async def __call__(self, job: Job) -> None:
        self.log.append("begins")
        if not self.quick:
            await job.unless_cancelled(asyncio.Event().wait())
            self.log.append("is told")
            await self.may_end.wait()
        self.log.append("ends")


def make() -> tuple[Rest, Work, Idle]:
    work, idle = Work(), Idle()
    rest = Rest(work, 7.5)
    rest.sleep = idle.sleep
    return rest, work, idle


async def test_begins_after_the_rest_and_is_told_when_somebody_asks() -> None:
    rest, work, idle = make()
    rest.begin()
    await until(lambda: idle.seconds)
    assert (idle.seconds, work.log) == ([7.5], [])
    await idle.passes()
    await until(lambda: work.log)
    rest.interrupt()
    await until(lambda: len(work.log) == 2)
    assert work.log == ["begins", "is told"]
    rest.begin()  # while the former is on its way out
    work.may_end.set()
    await until(lambda: len(idle.seconds) == 2)
    assert work.log == ["begins", "is told", "ends"]
    await rest.stop(10)


async def test_a_question_before_the_rest_is_over_begins_it_anew() -> None:
    rest, work, idle = make()
    work.quick = True
    rest.begin()
    await until(lambda: idle.seconds)
    rest.interrupt()
    rest.interrupt()
    await until(lambda: not rest._running())
    assert work.log == []
    rest.begin()
    await idle.passes()
    await until(lambda: work.log)
    assert work.log == ["begins", "ends"]


async def test_after_the_end_nothing_begins_and_what_does_not_end_is_ended() -> None:
    rest, work, idle = make()
    rest.begin()
    await idle.passes()
    await until(lambda: work.log)
    await rest.stop(0.0)
    assert work.log == ["begins"]
    assert not rest._running()
    rest.begin()
    assert not rest._running()
