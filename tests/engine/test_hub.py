"""A Hugging Face id goes the whole way, against a hub on loopback that serves a tiny model folder."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import model_folder

REPO = "someone/tiny"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
ROOT = Path(__file__).parents[2]


class Hub(http.server.ThreadingHTTPServer):
    """The kinds of request that the hub client makes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        prefix = f"/{REPO}/resolve/"
        if self.path.split("?")[0] == f"/api/models/{REPO}/revision/main":
            files = [{"rfilename": file.name} for file in sorted(self.server.folder.iterdir())]
            self._send(json.dumps({"id": REPO, "modelId": REPO, "sha": COMMIT, "siblings": files}).encode(), {})
        elif self.path.startswith(f"/api/models/{REPO}/tree/"):
            tree = [
                {"type": "file", "path": file.name, "size": file.stat().st_size, "oid": _oid(file.read_bytes())}
                for file in sorted(self.server.folder.iterdir())
            ]
            self._send(json.dumps(tree).encode(), {})
        elif self.path.startswith(prefix):
            data = (self.server.folder / self.path.removeprefix(prefix).partition("/")[2]).read_bytes()
            self._send(data, {"ETag": f'"{_oid(data)}"', "X-Repo-Commit": COMMIT})
        else:
            self.send_response(404)
            self.send_header("Content-Length", "0")
            self.end_headers()

    def _send(self, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        return


def _oid(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    server = Hub(model_folder.write(tmp_path / "model"))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def qmlx(hub: Hub, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own: the hub client reads its addresses when it is imported."""
    environment = {
        **os.environ, "QMLX_HOME": str(home / "q"), "HF_HOME": str(home / "hf"), "HF_ENDPOINT": hub.address,
        "QMLX_BLAS": "off",
    }  # fmt: skip
    command = [sys.executable, "-m", "qmlx_lsp", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_an_id_is_fetched_once_and_then_found_on_disk(hub: Hub, tmp_path: Path) -> None:
    pulled = qmlx(hub, tmp_path, "model", "pull", REPO)
    assert (pulled.returncode, f"downloading {REPO}" in pulled.stderr) == (0, True), pulled.stderr
    asked = len(hub.asked)
    shown = qmlx(hub, tmp_path, "model", "show", REPO, "--json")
    described = json.loads(shown.stdout)
    assert (described["installed"], described["type"], described["layers"]) == (True, "llama", 2)
    assert (
        Path(described["folder"], "model.safetensors").read_bytes() == (hub.folder / "model.safetensors").read_bytes()
    )
    assert len(hub.asked) == asked, "the model is on disk; the hub need not be asked"


@pytest.mark.slow
def test_a_name_that_the_hub_does_not_know_is_one_line(hub: Hub, tmp_path: Path) -> None:
    done = qmlx(hub, tmp_path, "model", "pull", "someone/else")
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("qmlx-lsp: The model someone/else could not be fetched from Hugging Face")
    assert "Traceback" not in done.stderr
