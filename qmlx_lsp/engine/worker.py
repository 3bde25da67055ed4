"""The one thread that owns the backend, and the queue in front of it.

MLX binds lazy arrays and streams to the thread that made them, so the backend is built, used and closed on this
thread alone. Work is a function of the backend; short work (``Priority.SHORT``) overtakes long work in the queue. It
interrupts nothing that runs, but what runs may let it in (``let_in``).

Invariant: the event loop only ever awaits; it never runs backend code and never holds a backend object.
Invariant: every call gets its one result or exception, also when the worker is closed.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from enum import IntEnum
from typing import Any, Protocol, TypeVar

from qmlx_lsp.engine.backend import Backend
from qmlx_lsp.errors import QmlxError

T = TypeVar("T")


class Priority(IntEnum):
    """Lower runs first."""

    SHORT = 0
    TURN = 1
    BACKGROUND = 2


class EngineBusy(QmlxError):
    """The queue is full."""


class EngineClosed(QmlxError):
    """The engine has been stopped."""


_Item = tuple[int, int, "Callable[[Backend], Any] | None", "Future[Any] | None"]


def _portable(error: BaseException) -> BaseException:
    """``error`` fit to leave the thread.

    The frames of its tracebacks hold the model's arrays, in memory and on a thread that must not have them, for as
    long as someone keeps the error. A StopIteration cannot be set on an asyncio future: the await would never end.
    """
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next  # our own frame, which cannot be cleared while it runs
    seen: BaseException | None = error
    while seen is not None:
        traceback.clear_frames(seen.__traceback__)
        seen = seen.__cause__ or seen.__context__
    if isinstance(error, StopIteration):
        return RuntimeError("the work raised StopIteration")
    return error


class Calls(Protocol):
    """What work is given to: a worker, or one that stands in front of it."""

    def submit(self, work: Callable[[Backend], T], priority: Priority = Priority.TURN) -> Future[T]: ...

    async def call(self, work: Callable[[Backend], T], priority: Priority = Priority.TURN) -> T: ...


class Beside:
    """Gives work to a worker for the companion of its backend: a second model on the same thread."""

    def __init__(self, worker: Calls) -> None:
        self._worker = worker

    def submit(self, work: Callable[[Backend], T], priority: Priority = Priority.TURN) -> Future[T]:
        return self._worker.submit(lambda backend: work(backend.companion()), priority)

    async def call(self, work: Callable[[Backend], T], priority: Priority = Priority.TURN) -> T:
        return await self._worker.call(lambda backend: work(backend.companion()), priority)


class Worker:
    """Runs functions of the backend, one at a time, on a thread of its own.

    ``make_backend`` is called on that thread. ``queue_max`` bounds the calls that wait.
    """

    def __init__(self, make_backend: Callable[[], Backend], *, queue_max: int = 256) -> None:
        self._make_backend = make_backend
        self._queue: queue.PriorityQueue[_Item] = queue.PriorityQueue()
        self._queue_max = queue_max
        self._order = itertools.count()
        self._closed = False
        self._lock = threading.Lock()
        self._running = False
        self._thread = threading.Thread(target=self._run, name="qmlx-engine", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Worker {'closed' if self._closed else 'open'}, {self.waiting} waiting>"

    @property
    def waiting(self) -> int:
        """Calls in the queue, the running one not counted."""
        return self._queue.qsize()

    @property
    def running(self) -> bool:
        return self._running

    def submit(self, work: Callable[[Backend], T], priority: Priority = Priority.TURN) -> Future[T]:
        """Queue ``work``; the future belongs to ``concurrent.futures``.

        Raises:
            EngineBusy: ``queue_max`` calls are waiting.
            EngineClosed: the worker has been closed.
        """
        with self._lock:
            if self._closed:
                raise EngineClosed("The engine has been stopped.")
            if self._queue.qsize() >= self._queue_max:
                raise EngineBusy(f"{self._queue_max} requests are waiting for the model; try again later.")
            future: Future[T] = Future()
            self._queue.put((priority, next(self._order), work, future))
            return future

    async def call(self, work: Callable[[Backend], T], priority: Priority = Priority.TURN) -> T:
        """Run ``work`` on the engine thread and await its result.

        Cancelling the await withdraws work that has not begun; work that runs goes on to its end (give it a flag
        to look at).
        """
        return await asyncio.wrap_future(self.submit(work, priority))

    def let_in(self, backend: Backend) -> None:
        """Run the short work that waits. Called on the engine thread, by work that runs; never raises."""
        while (item := self._next_short()) is not None:
            self._serve(item, backend)
            self._running = True  # the one that lets it in

    def _next_short(self) -> _Item | None:
        """Nobody else takes from the queue, so that what is seen there can be had."""
        with self._queue.mutex:
            waiting = bool(self._queue.queue) and self._queue.queue[0][0] == Priority.SHORT
        return self._queue.get_nowait() if waiting else None

    def close(self, timeout_s: float | None = None) -> None:
        """Let the running call finish, refuse what waits, close the backend, end the thread."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._queue.put((-1, next(self._order), None, None))
        self._thread.join(timeout_s)

    def _run(self) -> None:
        backend: Backend | None = None
        while True:
            item = self._queue.get()
            if item[2] is None:
                break
            backend = self._serve(item, backend)
            del item  # idle, the thread holds nothing of the last call
        self._refuse_waiting()
        if backend is not None:
            backend.close()

    def _serve(self, item: _Item, backend: Backend | None) -> Backend | None:
        """Run one call; returns the backend, which the first call makes."""
        _, _, work, future = item
        assert work is not None
        assert future is not None
        if not future.set_running_or_notify_cancel():
            return backend
        self._running = True
        try:
            if backend is None:
                backend = self._make_backend()
            result = work(backend)
        except BaseException as error:  # noqa: BLE001 - carried to whoever awaits the call
            self._running = False
            future.set_exception(_portable(error))
        else:
            self._running = False
            future.set_result(result)
        return backend

    def _refuse_waiting(self) -> None:
        while True:
            try:
                _, _, _, future = self._queue.get_nowait()
            except queue.Empty:
                return
            if future is not None and future.set_running_or_notify_cancel():
                future.set_exception(EngineClosed("The engine has been stopped."))
