"""The engine thread and its queue. Every wait is for an event, none for a time."""

import asyncio
import gc
import threading
import weakref

import pytest

from qmlx_lsp.engine.scripted import ScriptedBackend
from qmlx_lsp.engine.worker import EngineBusy, EngineClosed, Priority, Worker

PATIENCE_S = 10  # an upper bound, never waited for when all is well


@pytest.fixture
def worker():
    made = Worker(ScriptedBackend)
    yield made
    made.close(PATIENCE_S)


class Gate:
    """Work that holds the thread until it is let go."""

    def __init__(self, worker: Worker) -> None:
        self._entered, self._open = threading.Event(), threading.Event()
        self.future = worker.submit(self._hold)
        assert self._entered.wait(PATIENCE_S)

    def _hold(self, _backend) -> str:
        self._entered.set()
        assert self._open.wait(PATIENCE_S)
        return "held"

    def open(self) -> None:
        self._open.set()


def test_order_is_priority_then_arrival(worker):
    gate, order = Gate(worker), []
    wanted = [
        (Priority.BACKGROUND, "b1"), (Priority.TURN, "t1"), (Priority.SHORT, "s1"), (Priority.TURN, "t2"),
        (Priority.BACKGROUND, "b2"), (Priority.SHORT, "s2"),
    ]  # fmt: skip
    calls = [worker.submit(lambda _b, name=name: order.append(name), priority) for priority, name in wanted]
    assert (worker.waiting, worker.running) == (6, True)
    gate.open()
    for call in calls:
        call.result(PATIENCE_S)
    assert order == ["s1", "s2", "t1", "t2", "b1", "b2"]
    assert gate.future.result(PATIENCE_S) == "held"


def test_one_thread_one_backend(worker):
    seen = [worker.submit(lambda backend: (threading.get_ident(), id(backend))).result(PATIENCE_S) for _ in range(3)]
    assert len(set(seen)) == 1
    assert seen[0][0] != threading.get_ident()


def test_every_call_gets_its_own_result_or_exception(worker):
    def work(number: int):
        if number % 3 == 0:
            raise ValueError(str(number))
        return number * 2

    calls = [worker.submit(lambda _b, n=number: work(n), Priority(number % 3)) for number in range(60)]
    for number, call in enumerate(calls):
        if number % 3 == 0:
            with pytest.raises(ValueError, match=f"^{number}$"):
                call.result(PATIENCE_S)
        else:
            assert call.result(PATIENCE_S) == number * 2


def test_close_lets_the_running_call_finish_and_refuses_what_waits():
    closed = []

    class Backend(ScriptedBackend):
        def close(self) -> None:
            closed.append(threading.current_thread().name)

    worker = Worker(Backend)
    gate = Gate(worker)
    waiting = [worker.submit(lambda _b: "ran", priority) for priority in Priority]
    worker.close(0)  # asks, and does not wait for the call that runs
    gate.open()
    worker.close(PATIENCE_S)
    assert gate.future.result(PATIENCE_S) == "held"
    for call in waiting:
        with pytest.raises(EngineClosed):
            call.result(PATIENCE_S)
    with pytest.raises(EngineClosed):
        worker.submit(lambda _b: None)
    assert closed == ["qmlx-engine"]
    worker.close(PATIENCE_S)
    assert closed == ["qmlx-engine"]


def test_close_before_any_call_makes_no_backend():
    made = []
    Worker(lambda: made.append(1)).close(PATIENCE_S)
    assert made == []


def test_full_queue_refuses():
    worker = Worker(ScriptedBackend, queue_max=2)
    gate = Gate(worker)
    calls = [worker.submit(lambda _b: 1) for _ in range(2)]
    with pytest.raises(EngineBusy, match="2 requests are waiting"):
        worker.submit(lambda _b: 1)
    gate.open()
    assert [call.result(PATIENCE_S) for call in calls] == [1, 1]
    worker.close(PATIENCE_S)


def test_factory_that_raises_answers_every_call_and_may_recover():
    answers = [OSError("no device"), OSError("still none"), ScriptedBackend()]

    def make():
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    worker = Worker(make)
    for want in ("no device", "still none"):
        with pytest.raises(OSError, match=want):
            worker.submit(lambda _b: "never").result(PATIENCE_S)
    assert worker.submit(lambda _b: "works").result(PATIENCE_S) == "works"
    worker.close(PATIENCE_S)


async def test_cancelled_await_withdraws_work_that_waits(worker):
    gate, ran = Gate(worker), []
    task = asyncio.create_task(worker.call(lambda _b: ran.append("withdrawn")))
    await asyncio.sleep(0)  # lets the task begin
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.open()
    await worker.call(lambda _b: ran.append("after"))
    assert ran == ["after"]


async def test_cancelled_await_lets_running_work_end(worker):
    entered, leave, ended = asyncio.Event(), threading.Event(), []
    loop = asyncio.get_running_loop()

    def work(_backend) -> None:
        loop.call_soon_threadsafe(entered.set)
        assert leave.wait(PATIENCE_S)
        ended.append(True)

    task = asyncio.create_task(worker.call(work))
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    leave.set()
    assert await worker.call(lambda _b: "next") == "next"
    assert ended == [True]


async def test_stop_iteration_reaches_the_await(worker):
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(worker.call(lambda _b: next(iter(()))), PATIENCE_S)


def test_error_takes_nothing_of_the_model_off_the_thread(worker):
    """What a failed pass had in its frames must go when it fails, not when the last holder of the error goes."""

    class Array:
        pass

    alive = []

    def outer(_backend) -> None:
        array = Array()
        alive.append(weakref.ref(array))
        try:
            inner(Array())
        except KeyError as error:
            raise ValueError("outer") from error

    def inner(array) -> None:
        alive.append(weakref.ref(array))
        raise KeyError("inner")

    with pytest.raises(ValueError, match="outer") as caught:
        worker.submit(outer).result(PATIENCE_S)
    gc.collect()
    assert [ref() for ref in alive] == [None, None]
    assert caught.value.__cause__.args == ("inner",)


def test_idle_thread_holds_nothing_of_the_last_call(worker):
    class Result:
        pass

    def work(_backend) -> Result:
        return Result()

    made = weakref.ref(worker.submit(work).result(PATIENCE_S))
    work_ref = weakref.ref(work)
    del work
    worker.submit(lambda _b: None).result(PATIENCE_S)
    gc.collect()
    assert made() is None
    assert work_ref() is None
