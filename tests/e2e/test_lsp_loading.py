"""Initialize and the model's way to readiness, for every recorded client."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qmlx_lsp.engine.backend import ModelInfo, Report
from qmlx_lsp.engine.scripted import ScriptedBackend
from qmlx_lsp.errors import ModelError
from tests.support.bench import Bench, bench
from tests.support.fake_editor import CLIENT_NAMES, InMemory, initialize_params


async def editor_of(b: Bench, client: str = "vscode-1.139", **changes: Any) -> InMemory:
    editor = InMemory(b.app)
    await editor.initialize(initialize_params(client, b.project, **changes))
    return editor


METHOD_NOT_FOUND, REQUEST_FAILED = -32601, -32803
ENCODINGS = {"emacs-28": "utf-16", "emacs-30": "utf-32", "helix": "utf-8", "neovim": "utf-8", "vscode": "utf-16"}


class SlowBackend(ScriptedBackend):
    """Its load waits for ``go`` and fails as often as ``failures`` says."""

    go = threading.Event()
    failures = 0

    def load(self, source: str, report: Report, cancelled: Callable[[], bool]) -> ModelInfo:
        report(1, 4, "reading weights")
        assert self.go.wait(20)
        if type(self).failures:
            type(self).failures -= 1
            raise ModelError("There is no model 'scripted': check model.name.")
        return super().load(source, report, cancelled)


@pytest.mark.parametrize("client", CLIENT_NAMES)
async def test_initialize_is_answered_before_the_model_is_there(tmp_path: Path, client: str) -> None:
    SlowBackend.go.clear()
    async with bench(tmp_path, make=SlowBackend) as b:
        editor = InMemory(b.app)
        params = initialize_params(client, b.project)
        result = await editor.initialize(params)
        capabilities = result["capabilities"]
        expected = next(value for name, value in ENCODINGS.items() if client.startswith(name))
        assert capabilities["positionEncoding"] == expected
        assert capabilities["experimental"]["qmlx"] == {
            "ask": True, "conversation": True, "status": True, "context": True, "toolResult": True, "stream": True,
            "didChangeStatus": True, "didFocus": True, "didShowCompletion": True, "didPartiallyAccept": True,
        }  # fmt: skip
        assert capabilities["textDocumentSync"]["change"] == 2
        assert result["serverInfo"]["name"] == "qmlx-lsp"
        status = await editor.until(lambda m: m.get("method") == "qmlx/didChangeStatus")
        assert (status["params"]["kind"], status["params"]["busy"]) == ("Busy", True)
        shows_progress = params["capabilities"].get("window", {}).get("workDoneProgress")
        if shows_progress:
            begun = await editor.until(lambda m: m.get("method") == "$/progress")
            assert begun["params"]["value"]["kind"] == "begin"
        number = editor.begin("qmlx/ask", {"text": "Q"})
        assert (await editor.request("qmlx/status"))["model"]["state"] == "loading"
        SlowBackend.go.set()
        usage = (await editor.result(number))["usage"]
        if shows_progress:
            ended = await editor.until(
                lambda m: m.get("method") == "$/progress" and m["params"]["value"]["kind"] == "end"
            )
            assert ended["params"]["token"] == begun["params"]["token"]
        last = await editor.until(lambda m: m.get("method") == "qmlx/didChangeStatus" and not m["params"]["busy"])
        assert last["params"] == {
            "kind": "Normal", "busy": False, "message": f"{usage['prefilled']:,} tokens read, 0 kept",
            "model": "scripted", "root": str(b.project),
        }  # fmt: skip
        assert await editor.leave()


async def test_model_that_cannot_be_loaded_is_one_line_and_the_next_question_tries_again(tmp_path: Path) -> None:
    SlowBackend.go.clear()
    SlowBackend.failures = 1
    async with bench(tmp_path, make=SlowBackend) as b:
        editor = await editor_of(b)
        number = editor.begin("qmlx/ask", {"text": "Q"})
        assert (await editor.request("qmlx/status"))["queue"]["running"] == 1
        SlowBackend.go.set()
        assert await editor.error(number) == (REQUEST_FAILED, "There is no model 'scripted': check model.name.")
        await editor.until(lambda m: m.get("method") == "qmlx/didChangeStatus" and m["params"]["kind"] == "Error")
        assert (await editor.request("qmlx/ask", {"text": "Q"}))["finish"] == "complete"
        assert await editor.leave()


@pytest.mark.parametrize("answer", ["silence", "error"])
async def test_client_that_does_not_create_progress(
    tmp_path: Path, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("qmlx_lsp.lsp.stream.CREATE_PROGRESS_S", 0.05)
    monkeypatch.setattr("qmlx_lsp.lsp.configuration.CONFIGURATION_S", 0.05)
    SlowBackend.go.clear()
    async with bench(tmp_path, make=SlowBackend) as b:
        editor = InMemory(b.app, answers=False)
        await editor.initialize(initialize_params("neovim-0.12", b.project))
        create = await editor.until(lambda m: m.get("method") == "window/workDoneProgress/create")
        if answer == "error":
            error = {"code": METHOD_NOT_FOUND, "message": "no"}
            editor.send({"jsonrpc": "2.0", "id": create["id"], "error": error})
        await editor.until(lambda m: m.get("method") == "qmlx/didChangeStatus")
        SlowBackend.go.set()
        assert (await editor.request("qmlx/ask", {"text": "Q"}))["finish"] == "complete"
        editor.send({"jsonrpc": "2.0", "id": create["id"], "result": None})  # late, to a request given up
        assert (await editor.request("qmlx/status"))["model"]["state"] == "ready"
        assert "$/progress" not in [m.get("method") for m in editor.messages]
        assert await editor.leave()
