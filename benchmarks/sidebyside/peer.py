"""mlx_lm.server as a target: started, restarted and ended here, as it comes, on a loopback port.

Invariant: only the process that was started here is ended, by its pid.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.cachecheck.conversation import CheckError, Impossible, Restart
from benchmarks.cachecheck.openai import POLL_S, OpenAI
from qmlx_lsp import paths

START_S = 120.0
GONE_S = 30.0


class MlxLm(OpenAI):
    """The server on ``model``; what it prints goes to ``log``."""

    def __init__(self, model: Path, log: Path, *, timeout_s: float) -> None:
        self._model = model
        self._log = log
        self._port = _free_port()
        self._process = self._started()
        self._until_listening()
        super().__init__(f"http://127.0.0.1:{self._port}", model=str(model), timeout_s=timeout_s)
        self.name = "mlx_lm.server"

    def about(self) -> dict[str, Any]:
        return {"kind": "mlx_lm.server", "arguments": "as it comes", "temperature": 0}

    def restart(self, how: Restart) -> None:
        if how is Restart.KILL:
            raise Impossible("it keeps nothing on disk, however it ends")
        self._end()
        self._process = self._started()
        self._until_listening()

    def close(self) -> None:
        self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        command = [
            sys.executable, "-m", "benchmarks.sidebyside.launch", str(paths.find().blas),
            "--model", str(self._model), "--host", "127.0.0.1", "--port", str(self._port),
        ]  # fmt: skip
        with self._log.open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _until_listening(self) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=POLL_S).close()
            except OSError:
                time.sleep(POLL_S)
            else:
                return
        last = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        raise CheckError(f"mlx_lm.server does not listen: {''.join(last) or 'it said nothing'}")

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(GONE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
