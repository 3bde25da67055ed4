"""An editor that has documents and applies edits to them, in the ways that real ones do; its own text is what counts.

Written from what the editors do, and with a reference that counts every character by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

from qmlx_lsp.app import App
from tests.support.fake_editor import InMemory, Message, initialize_params
from tests.support.reference_text import lines_of, reference_edit

APPLY, SHOW = "workspace/applyEdit", "window/showDocument"


class Style(StrEnum):
    """What an editor does with an edit that is for another version than it shows, and how it answers."""

    VSCODE = "applied: false without a reason; the change is sent before the answer"
    HELIX = "applied: false with a reason; the version must be the same"
    NEOVIM = "applied: true though it is thrown away; version 0 is not checked; the answer is sent before the change"
    SILENT = "applied and never answered"
    DEAF = "neither applied nor answered"
    READ_ONLY = "never applied: applied: false"
    BROKEN = "an error as the answer"


CLIENT = {Style.HELIX: "helix-25.07", Style.NEOVIM: "neovim-0.12"}
ENCODING = {Style.HELIX: "utf-8", Style.NEOVIM: "utf-8"}


class Applying(InMemory):
    """``buffers`` holds version and text by URI; ``edits`` every edit that came. ``before_edit`` is called as soon as
    one comes: what it types is not known to the server when it sent it."""

    def __init__(
        self, app: App, style: Style = Style.VSCODE, encoding: str | None = None, folder: str | None = None
    ) -> None:
        super().__init__(app, folder=folder)
        self.style = style
        self.encoding = encoding or ENCODING.get(style, "utf-16")
        self.buffers: dict[str, tuple[int, str]] = {}
        self.edits: list[Message] = []
        self.shown: list[str] = []
        self.before_edit: Callable[[], None] | None = None
        self.holds_back = False
        self.created: list[Path] = []
        self._late: list[Message] = []

    async def begin_as(self, project: Path, client: str | None = None, **changes: Any) -> None:
        params = initialize_params(client or CLIENT.get(self.style, "vscode-1.139"), project, **changes)
        general = {**params["capabilities"].get("general", {}), "positionEncodings": [self.encoding]}
        params["capabilities"] = {**params["capabilities"], "general": general}
        await self.initialize(params)

    # --- the user -------------------------------------------------------------------------------------------------

    def show(self, file: Path, text: str, version: int | None = None, language: str = "python") -> str:
        """Open a file; returns its URI."""
        uri = file.as_uri()
        number = version if version is not None else int(self.style is Style.VSCODE)
        self.buffers[uri] = number, text
        item = {"uri": uri, "languageId": language, "version": number, "text": text}
        self.notify("textDocument/didOpen", {"textDocument": item})
        return uri

    def type(self, uri: str, line: int, start: int, end: int, text: str) -> None:
        """Replace within one line; columns in this editor's units."""
        span = {"start": {"line": line, "character": start}, "end": {"line": line, "character": end}}
        self._changed(uri, [{"range": span, "text": text}])

    def hide(self, uri: str) -> None:
        del self.buffers[uri]
        self.notify("textDocument/didClose", {"textDocument": {"uri": uri}})

    def flush(self) -> None:
        """Send what was held back."""
        self.holds_back = False
        late, self._late = self._late, []
        for params in late:
            self.notify("textDocument/didChange", params)

    def text(self, uri: str) -> str:
        return self.buffers[uri][1]

    def _changed(self, uri: str, changes: list[Message]) -> None:
        version, text = self.buffers[uri]
        for change in changes:
            places = [(change["range"][at]["line"], change["range"][at]["character"]) for at in ("start", "end")]
            text = reference_edit(text, *places, change["text"], self.encoding)
        self.buffers[uri] = version + 1, text
        params = {"textDocument": {"uri": uri, "version": version + 1}, "contentChanges": changes}
        if self.holds_back:
            self._late.append(params)
        else:
            self.notify("textDocument/didChange", params)

    # --- what the server asks -------------------------------------------------------------------------------------

    def _take(self, message: Message) -> None:
        if message.get("method") not in (APPLY, SHOW) or "id" not in message:
            super()._take(message)
            return
        self.messages.append(message)
        if message["method"] == SHOW:
            self.shown.append(message["params"]["uri"])
            self._answer(message, {"success": True})
        else:
            self._apply(message)
        self._news.set()

    def _answer(self, message: Message, result: Any) -> None:
        self.send({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def _apply(self, message: Message) -> None:
        edit = message["params"]["edit"]
        self.edits.append(message["params"])
        if self.before_edit is not None:
            self.before_edit()
        if self.style is Style.BROKEN:
            error = {"code": -32603, "message": "autocmd failed"}
            self.send({"jsonrpc": "2.0", "id": message["id"], "error": error})
        elif self.style is Style.READ_ONLY:
            self._answer(message, {"applied": False})
        elif self.style is Style.HELIX and not self._fits(edit):
            reason = "document has changed"
            self._answer(message, {"applied": False, "failureReason": reason, "failedChange": 0})
        elif self.style is Style.VSCODE and not self._fits(edit):
            self._answer(message, {"applied": False})
        elif self.style is Style.NEOVIM:
            self._answer(message, {"applied": True})
            if self._fits(edit):
                self._do(edit)
        elif self.style is not Style.DEAF:
            self._do(edit)
            if self.style is not Style.SILENT:
                self._answer(message, {"applied": True})

    def _fits(self, edit: Message) -> bool:
        for change in edit.get("documentChanges", ()):
            if "kind" in change:
                continue
            which = change["textDocument"]
            version = self.buffers.get(which["uri"], (None,))[0]
            unchecked = which["version"] is None or (self.style is Style.NEOVIM and which["version"] == 0)
            if not unchecked and which["version"] != version:
                return False
        return True

    def _do(self, edit: Message) -> None:
        assert ("changes" in edit) != ("documentChanges" in edit), edit
        for uri, edits in edit.get("changes", {}).items():
            self._edit(uri, edits)
        done: set[str] = set()
        for change in edit.get("documentChanges", ()):
            if change.get("kind") == "create":
                assert change["options"] == {"overwrite": False, "ignoreIfExists": False}
                file = Path(change["uri"].removeprefix("file://"))
                assert not file.exists(), "an editor refuses that"
                file.touch()
                self.created.append(file)
                self.show(file, "")
                continue
            uri = change["textDocument"]["uri"]
            assert uri not in done, "one edit for each document: one step to undo"
            done.add(uri)
            self._edit(uri, change["edits"])

    def _edit(self, uri: str, edits: list[Message]) -> None:
        """All count in the text as it is, and none lies in another: the last one first."""
        lines = lines_of(self.text(uri))
        places = [(one["range"]["start"], one["range"]["end"]) for one in edits]
        flat = [(at["line"], at["character"]) for pair in places for at in pair]
        assert flat == sorted(flat), "edits are in order and apart"
        assert all(line < len(lines) for line, _ in flat), "within the text"
        self._changed(uri, [{"range": one["range"], "text": one["newText"]} for one in reversed(edits)])
