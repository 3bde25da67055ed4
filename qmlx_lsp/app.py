"""The composition root: the only module that names every layer. Builds the daemon, runs it, takes it down in order.

Start: log and store are opened, replies cut off by a crash are closed, then the socket listens. The model comes
later, on the engine thread. Stop: running turns are cancelled and recorded, the store's queue is written within
``daemon.stop_s``, then the engine and the databases are closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import partial
from pathlib import Path

from qmlx_lsp.daemon.listener import STREAM_LIMIT_BYTES, Listener
from qmlx_lsp.daemon.memory import give_back_freed_memory
from qmlx_lsp.daemon.socket import daemon_lock
from qmlx_lsp.engine.backend import Backend
from qmlx_lsp.engine.worker import Worker
from qmlx_lsp.errors import StoreError
from qmlx_lsp.lsp.server import serve, warm_up
from qmlx_lsp.paths import Paths
from qmlx_lsp.session.checkpoint import TROUBLE
from qmlx_lsp.session.loading import Loader
from qmlx_lsp.session.registry import Registry
from qmlx_lsp.session.session import Services, Session
from qmlx_lsp.settings import GIB, Settings
from qmlx_lsp.storage.answers import Answers
from qmlx_lsp.storage.checkpoints import CheckpointStore
from qmlx_lsp.storage.conversations import ConversationLog
from qmlx_lsp.storage.files import FileSystem
from qmlx_lsp.storage.writer import WriteBehind

logger = logging.getLogger(__name__)

STDIN_BLOCK_BYTES = 1 << 16
# Seconds that a thread may keep the interpreter when others want it: with the default, 0.005, keystrokes wait for it.
SWITCH_S = 0.001


class App:
    """Everything of one daemon, built and torn down in order. ``files`` is the file system of the checkpoints;
    ``today`` gives the day on which a conversation begins."""

    def __init__(
        self,
        paths: Paths,
        settings: Settings,
        make_backend: Callable[[], Backend] | None = None,
        files: FileSystem | None = None,
        today: Callable[[], date] = date.today,
    ) -> None:
        self.paths = paths
        self.settings = settings
        self._log_thread = ThreadPoolExecutor(1, "qmlx-log")
        self._store_thread = ThreadPoolExecutor(1, "qmlx-store")
        self._log = ConversationLog(paths.conversations, clock=time.time)
        recovered = self._log.recover()
        if recovered:
            logger.info("closed %d replies that were cut off", recovered)
        problem, self._store = _open_store(paths, settings, files)
        self._worker = Worker(make_backend or backend_factory(paths, settings), queue_max=settings.engine.queue_max)
        self._writer = WriteBehind(self._store, int(settings.store.queue_gib * GIB)) if self._store else None
        self.registry = Registry(
            Services(
                settings, self._worker, self._log, self._log_thread, self._store, self._store_thread, self._writer,
                later=self._later, notice=self._notice,
            ),
            Loader(self._worker, settings.model.name, thinking=settings.model.thinking, today=today),
        )  # fmt: skip
        self.registry.answers = Answers(paths.answers)
        if problem:
            self.registry.notice(TROUBLE, problem)

    def _later(self, seconds: float, session: Session) -> None:
        self.registry.live_states.later(seconds, session)

    def _notice(self, about: str, text: str | None) -> None:
        self.registry.notice(about, text)

    async def stop(self) -> None:
        """See the module's docstring."""
        deadline = time.monotonic() + self.settings.daemon.stop_s
        await self.registry.stop(self.settings.daemon.stop_s / 2)
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.registry.live_states.hand_over(), self.settings.daemon.stop_s / 4)
        if self._writer is not None:
            left = max(0.1, deadline - time.monotonic())
            if lost := await loop.run_in_executor(None, self._writer.stop, left):
                logger.warning("%d checkpoints were not written within daemon.stop_s", lost)
        for executor in (self._log_thread, self._store_thread):
            left = max(0.1, deadline - time.monotonic())
            closing = loop.run_in_executor(None, executor.shutdown)
            await asyncio.wait({closing}, timeout=left)
        await loop.run_in_executor(None, self._worker.close, max(0.1, deadline - time.monotonic()))
        if self._store is not None:
            self._store.close()
        self._log.close()


def _open_store(paths: Paths, settings: Settings, files: FileSystem | None) -> tuple[str, CheckpointStore | None]:
    """The store, or why there is none: without it everything works, only slower after a restart."""
    try:
        store = CheckpointStore(
            paths.checkpoints,
            files=files,
            quota_bytes=int(settings.store.quota_gib * GIB),
            free_floor_bytes=int(settings.store.free_floor_gib * GIB),
            clock=time.time,
        )
    except StoreError as error:
        return f"No checkpoints: {error}", None
    return "", store


def backend_factory(paths: Paths, settings: Settings) -> Callable[[], Backend]:
    """How to make the backend on the engine thread; MLX is imported there and then."""
    if settings.model.name == "scripted":
        from qmlx_lsp.engine.script import Script
        from qmlx_lsp.engine.scripted import ScriptedBackend

        script = Script(Path(settings.model.script).expanduser()) if settings.model.script else None
        return partial(ScriptedBackend, script=script)

    def make() -> Backend:
        from qmlx_lsp.engine.mlx.blas import preload

        logger.info("BLAS: %s", preload(paths.blas) or "MLX's own")
        from qmlx_lsp.engine.mlx.backend import MlxBackend

        model = settings.model
        return MlxBackend(
            paths.models, kv_bits=model.kv_bits, adapter=model.adapter_folder, draft_rows=settings.engine.draft_rows
        )

    return make


async def run_daemon(paths: Paths, settings: Settings) -> None:
    """Serve until stopped. Raises QmlxError when it cannot start."""
    lock = daemon_lock(paths)
    give_back_freed_memory()
    sys.setswitchinterval(SWITCH_S)
    app = App(paths, settings)
    warm_up()
    listener = Listener(
        paths,
        lambda reader, writer, line, folder: serve(
            app.registry, reader, writer, lambda: listener.clients, line, folder
        ),
        app.registry.status,
        lambda: app.registry.busy,
        settings.daemon.idle_minutes,
    )
    app.registry.leave = listener.stop
    try:
        await listener.run()
    finally:
        await app.stop()
        logger.info("stopped")
        os.close(lock)


async def run_stdio(paths: Paths, settings: Settings, out: int) -> int:
    """Serve one editor over stdio in this process (``--no-daemon``), whose answers go to ``out``; returns the exit
    code."""
    lock = daemon_lock(paths)
    give_back_freed_memory()
    sys.setswitchinterval(SWITCH_S)
    app = App(paths, settings)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=STREAM_LIMIT_BYTES)
    stop = asyncio.Event()
    app.registry.leave = stop.set
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    threading.Thread(target=_read_stdin, args=(loop, reader), name="qmlx-stdin", daemon=True).start()
    serving = asyncio.ensure_future(serve(app.registry, reader, _FdWriter(out, stop.set), lambda: 1))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            return 0 if serving.result() else 1
        serving.cancel()
        await asyncio.wait({serving})
        return 1
    finally:
        stopping.cancel()
        await app.stop()
        os.close(lock)


def _read_stdin(loop: asyncio.AbstractEventLoop, reader: asyncio.StreamReader) -> None:
    """Feed the reader from a thread: stdin may be a file or /dev/null, which no event loop can wait for."""
    with contextlib.suppress(RuntimeError):  # the loop has been closed
        while data := os.read(0, STDIN_BLOCK_BYTES):
            loop.call_soon_threadsafe(reader.feed_data, data)
        loop.call_soon_threadsafe(reader.feed_eof)


class _FdWriter:
    """Blocking writes to the editor's pipe; for ``--no-daemon`` only, where there is one client. ``broken`` is called
    when nobody reads any more; nothing is said about it, for nobody would hear."""

    def __init__(self, out: int, broken: Callable[[], None]) -> None:
        self._out = out
        self._broken = broken

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._out, view) :]
        except OSError:
            self._broken()

    def close(self) -> None:
        return None


def configure_logging(level: str = "INFO") -> None:
    """Lines on stderr (the daemon's log file). Prompt text is never logged."""
    logging.basicConfig(
        level=level, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
