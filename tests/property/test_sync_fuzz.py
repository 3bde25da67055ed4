"""Whatever two editors send, in whatever order and pieces: what is held is what a plain model says, every connection
goes on, and nothing is an error of ours.

``Model`` keeps, per editor and document, what the mirror's own rules say of versions and of changes that were missed;
its texts are edited by the slow reference.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.bench import Bench, quick
from tests.support.fake_editor import WAIT_S, InMemory, initialize_params
from tests.support.memory_home import tmp_path
from tests.support.reference_text import reference_edit

__all__ = ["tmp_path"]

CLIENTS = {"helix-25.07": "utf-8", "vscode-1.139": "utf-16"}
DISK = "disk\n"
SCRIPT = "# %%\ndisk\n"
NOTEBOOK = json.dumps({"cells": [{"cell_type": "code", "source": "disk"}], "metadata": {}, "nbformat": 4})
# Spellings of what is one document; ROOT is the project.
SPELLINGS = {
    "a b.py": [
        "file://ROOT/a%20b.py",
        "file://ROOT/%61 b.py",
        "file://localhostROOT//a%20b.py",
        "FILE:ROOT/./a b.py",
    ],
    "a%20b.py": ["file://ROOT/a%2520b.py"],
    "caf\u00e9.py": ["file://ROOT/caf%C3%A9.py", "file://ROOT/caf\u00e9.py"],
    "cafe\u0301.py": ["file://ROOT/cafe%CC%81.py"],
    "untitled:U-1": ["untitled:U-1", "untitled:U%2D1"],
}
PIECES = ["", "a", "bc ", "\n", "\r\n", "\r", "😋", "e\u0301", "소", "\x0c", "\u2028", "\ufeff", "\ud83d", "\udc00"]
# What is no change, no document, nothing at all.
NONSENSE: list[Any] = [
    None, 5, -1.5, "x", [], {}, [None], {"textDocument": None}, {"textDocument": {"uri": None}},
    {"textDocument": {"uri": 7, "version": 1}}, {"notebookDocument": {"uri": []}},
    {"notebookDocument": 0, "change": 0},
    {"textDocument": {"uri": "file:///\ud800", "version": 2**70, "text": "\ud800"}, "contentChanges": [{"text": 5}]},
]  # fmt: skip
NO_CHANGES: list[Any] = [
    None, 5, "x", {}, [None], [5], [{}], [{"text": None}], [{"text": 5}], [{"text": "x", "range": 5}],
    [{"text": "x", "range": {}}], [{"text": "x", "range": {"start": {"line": 0, "character": 0}}}],
    [{"text": "x", "range": {"start": {"line": "0", "character": 0}, "end": {"line": 0, "character": 0}}}],
    [{"text": "x", "range": {"start": {"line": 0.5, "character": 0}, "end": {"line": 0, "character": 0}}}],
    [{"text": "whole"}, {"range": {"start": {"line": True, "character": 0}, "end": {}}, "text": "x"}],
]  # fmt: skip
METHODS = [f"textDocument/did{verb}" for verb in ("Open", "Change", "Close", "Save")]
METHODS += [f"notebookDocument/did{verb}" for verb in ("Open", "Change", "Close", "Save")]
METHODS += ["qmlx/didFocus", "workspace/didChangeWorkspaceFolders", "window/workDoneProgress/cancel", "$/setTrace"]
METHODS += [
    "$/cancelRequest",
    "workspace/didChangeConfiguration",
    "textDocument/willSave",
    "qmlx/nothing",
    "initialized",
]

names = st.sampled_from(sorted(SPELLINGS))
spelling = st.integers(0, 3)
texts = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
versions = st.none() | st.integers(1, 8) | st.sampled_from([2**63, -(2**70)])
lines = st.integers(-1, 5) | st.sampled_from([2**31, 2**63])
columns = st.integers(-1, 9) | st.sampled_from([2**31, 2**63])
places = st.tuples(lines, columns)
edits = st.lists(st.tuples(st.none() | st.tuples(places, places), texts), max_size=4)
cell_steps = st.one_of(
    st.tuples(st.just("open notebook"), st.lists(st.tuples(st.booleans(), texts), max_size=3)),
    st.tuples(st.just("splice"), st.integers(0, 2), st.integers(0, 1), st.lists(texts, max_size=2)),
    st.tuples(st.just("splice"), st.integers(-1, 4), st.integers(0, 3), st.lists(texts, max_size=2)),
    st.tuples(st.just("type"), st.integers(0, 3), edits),
    st.tuples(st.just("close notebook")),
)
steps = st.one_of(
    st.tuples(st.just("open"), names, spelling, versions, texts),
    st.tuples(st.just("change"), names, spelling, versions, edits),
    st.tuples(st.just("change"), names, spelling, versions, edits),
    st.tuples(st.just("spoil"), names, spelling, versions, st.sampled_from(NO_CHANGES)),
    st.tuples(st.just("close"), names, spelling),
    st.tuples(st.sampled_from(["save", "focus"]), names, spelling),
    st.tuples(st.just("nonsense"), st.sampled_from(METHODS), st.sampled_from(NONSENSE)),
    cell_steps,
)
cell_bursts = st.tuples(st.just("vscode-1.139"), st.lists(cell_steps, min_size=1, max_size=2), st.integers(0, 2**32))
bursts = st.tuples(st.sampled_from(sorted(CLIENTS)), st.lists(steps, min_size=1, max_size=6), st.integers(0, 2**32))


def whole(text: str) -> str:
    """``text`` as it may be told: no half characters. Halves that stand side by side in one text are one."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class Model:
    """What must be held, by editor and document."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], dict[str, Any]] = {}
        self.notebook: dict[str, Any] | None = None
        self.now = 0

    def open(self, client: str, name: str, version: int | None, text: str) -> None:
        before = self.held.get((client, name))
        early = before is not None and not before["opened"]
        late = early and None not in (version, before["version"]) and version < before["version"]
        if late and before["text"] is not None:
            before["opened"] = self.now
        else:
            state = {"version": version, "text": whole(text), "synced": not late, "opened": self.now, "changed": 0}
            self.held[client, name] = state

    def change(self, client: str, name: str, version: int | None, edits: list[Any]) -> None:
        state = self.held.setdefault((client, name), self.unknown(None))
        if None not in (version, state["version"]) and version <= state["version"]:
            state["synced"] = state["synced"] and not edits
            return
        state["version"] = version
        for span, piece in edits:
            if span is None:
                state.update(text=whole(piece), synced=True, changed=self.now)
            elif state["text"] is not None:
                text = reference_edit(state["text"], *span, whole(piece), CLIENTS[client])
                state.update(text=text, changed=self.now)

    def spoil(self, client: str, name: str, version: int | None) -> None:
        state = self.held.setdefault((client, name), self.unknown(version))
        state["synced"] = False
        if version is not None and (state["version"] is None or version > state["version"]):
            state["version"] = version

    @staticmethod
    def unknown(version: int | None) -> dict[str, Any]:
        return {"version": version, "text": None, "synced": False, "opened": 0, "changed": 0}

    def close(self, client: str, name: str) -> None:
        self.held.pop((client, name), None)

    def text(self, name: str) -> str | None:
        states = [state for (_, other), state in self.held.items() if other == name]
        best = max(
            states, key=lambda s: (s["synced"], s["text"] is not None, s["changed"], s["opened"]), default=None
        )
        if best is not None and best["synced"]:
            text: str = best["text"]
            return text
        return None if name.startswith("untitled:") else DISK

    @property
    def script(self) -> str:
        if self.notebook is None or not self.notebook["synced"]:
            return SCRIPT
        out = ""
        for _, prose, text in self.notebook["cells"]:
            shown = re.sub("\r\n?", "\n", text)
            out += "# %% [markdown]\n" if prose else "# %%\n"
            for line in shown.split("\n") if text else ():
                out += f"# {line}".rstrip(" " if not line else "") + "\n" if prose else line + "\n"
        return out


class Editor:
    """One editor of the program: makes steps into messages, and tells the model."""

    def __init__(self, client: str, b: Bench, model: Model) -> None:
        self.client = client
        self.root = str(b.project)
        self.model = model
        self.editor = InMemory(b.app)
        self.numbers = iter(range(1, 1 << 30))

    def uri(self, name: str, spelled: int) -> str:
        choices = SPELLINGS[name]
        return choices[spelled % len(choices)].replace("ROOT", self.root)

    def messages(self, step: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
        """The notifications of a step."""
        self.model.now += 1
        verb, *rest = step
        if verb in ("open notebook", "splice", "type", "close notebook"):
            if self.client == "vscode-1.139":
                yield from self.of_notebook(verb, rest)
        elif verb == "nonsense":
            yield rest[0], rest[1]
        else:
            yield self.of_document(verb, *rest)

    def of_document(self, verb: str, name: str, spelled: int, *rest: Any) -> tuple[str, Any]:
        document: dict[str, Any] = {"uri": self.uri(name, spelled)}
        if rest:
            document["version"] = rest[0]
        if verb == "open":
            self.model.open(self.client, name, *rest)
            return "textDocument/didOpen", {"textDocument": document | {"languageId": "x", "text": rest[1]}}
        if verb == "change":
            self.model.change(self.client, name, *rest)
            return "textDocument/didChange", {"textDocument": document, "contentChanges": changes(rest[1])}
        if verb == "spoil":
            self.model.spoil(self.client, name, rest[0])
            return "textDocument/didChange", {"textDocument": document, "contentChanges": rest[1]}
        if verb == "close":
            self.model.close(self.client, name)
            return "textDocument/didClose", {"textDocument": document}
        return {"save": "textDocument/didSave", "focus": "qmlx/didFocus"}[verb], {"textDocument": document}

    def of_notebook(self, verb: str, rest: list[Any]) -> Iterator[tuple[str, Any]]:
        held = self.model.notebook
        document = {"uri": f"file://{self.root}/nb.ipynb", "version": self.model.now}
        if verb == "open notebook":
            cells = [(next(self.numbers), prose, whole(text)) for prose, text in rest[0]]
            self.model.notebook = {"cells": cells, "synced": True}
            entries = [self.entry(number, prose) for number, prose, _ in cells]
            items = [self.item(number, text) for (number, _, _), (_, text) in zip(cells, rest[0], strict=True)]
            yield "notebookDocument/didOpen", {
                "notebookDocument": document | {"notebookType": "x", "cells": entries}, "cellTextDocuments": items,
            }  # fmt: skip
        elif verb == "close notebook":
            self.model.notebook = None
            yield "notebookDocument/didClose", {"notebookDocument": document, "cellTextDocuments": []}
        elif held is not None:
            held["version"] = self.model.now
            yield (
                "notebookDocument/didChange",
                {
                    "notebookDocument": document,
                    "change": {"cells": self.splice(held, *rest) if verb == "splice" else self.type(held, *rest)},
                },
            )

    def splice(self, held: dict[str, Any], start: int, delete: int, put: list[str]) -> dict[str, Any]:
        cells = held["cells"]
        held["synced"] &= start >= 0 and start + delete <= len(cells)
        fresh = [(next(self.numbers), False, text) for text in put]
        at = min(max(start, 0), len(cells))
        gone = cells[at : at + delete]
        cells[at : at + delete] = [(number, prose, whole(text)) for number, prose, text in fresh]
        array = {"start": start, "deleteCount": delete, "cells": [self.entry(n, prose) for n, prose, _ in fresh]}
        opened = [self.item(number, text) for number, _, text in fresh]
        closed = [{"uri": self.entry(number, False)["document"]} for number, _, _ in gone]
        return {"structure": {"array": array, "didOpen": opened, "didClose": closed}}

    def type(self, held: dict[str, Any], at: int, edits: list[Any]) -> dict[str, Any]:
        cells = held["cells"]
        if not cells:
            return {"textContent": []}
        number, prose, text = cells[at % len(cells)]
        for span, piece in edits:
            text = whole(piece) if span is None else reference_edit(text, *span, whole(piece), "utf-16")
        cells[at % len(cells)] = (number, prose, text)
        document = {"uri": self.entry(number, prose)["document"], "version": self.model.now + 1}
        return {"textContent": [{"document": document, "changes": changes(edits)}]}

    def entry(self, number: int, prose: bool) -> dict[str, Any]:
        return {"kind": 1 if prose else 2, "document": f"vscode-notebook-cell:{self.root}/nb.ipynb#c{number}"}

    def item(self, number: int, text: str) -> dict[str, Any]:
        uri = self.entry(number, False)["document"]
        return {"uri": uri, "languageId": "python", "version": 1, "text": text}

    def send(self, wire: bytes, chance: random.Random) -> None:
        """In pieces, cut anywhere."""
        while wire:
            cut = chance.choice([1, 7, 100, len(wire)])
            self.editor.send_bytes(wire[:cut])
            wire = wire[cut:]


def changes(edits: list[Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for span, piece in edits:
        change: dict[str, Any] = {"text": piece}
        if span is not None:
            start, end = ({"line": line, "character": column} for line, column in span)
            change["range"] = {"start": start, "end": end}
        found.append(change)
    return found


def frame(message: Any, *, escaped: bool) -> bytes:
    """Half characters come as escapes, or as the bytes that some programs write for them."""
    body = json.dumps(message, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


class Faults(logging.Handler):
    """Everything that is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(self.format(record))


class Stage:
    """One daemon for all programs of a test; every program has its own two editors."""

    def __init__(self, base: Path) -> None:
        self.runner = asyncio.Runner()
        self.b = self.runner.run(self._start(base))
        self.faults = Faults()
        logging.getLogger().addHandler(self.faults)

    async def _start(self, base: Path) -> Bench:
        # Nothing is read ahead: this is about what is held.
        b = Bench(base, quick(ahead={"enabled": False}))
        for name in SPELLINGS:
            if not name.startswith("untitled:"):
                (b.project / name).write_text(DISK)
        (b.project / "nb.ipynb").write_text(NOTEBOOK)
        return b

    def end(self) -> None:
        logging.getLogger().removeHandler(self.faults)
        self.runner.run(self.b.app.stop())
        self.runner.close()

    async def connect(self, client: str) -> InMemory:
        editor = InMemory(self.b.app)
        await editor.initialize(initialize_params(client, self.b.project))
        return editor


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    base = tmp_path_factory.mktemp("fuzz")
    made = Stage(base)
    yield made
    made.end()
    shutil.rmtree(base, ignore_errors=True)


@given(st.lists(bursts, min_size=1, max_size=5))
@settings(
    deadline=None, max_examples=80, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
def test_what_is_held_is_what_the_model_says(stage: Stage, program: list[Any]) -> None:
    stage.runner.run(_play(stage, program))


@given(st.lists(cell_bursts, min_size=1, max_size=6))
@settings(
    deadline=None, max_examples=50, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
def test_what_is_held_of_notebooks_is_what_the_model_says(stage: Stage, program: list[Any]) -> None:
    stage.runner.run(_play(stage, program))


async def _play(stage: Stage, program: list[Any]) -> None:
    model = Model()
    editors = {client: Editor(client, stage.b, model) for client in CLIENTS}
    for client, one in editors.items():
        await one.editor.initialize(initialize_params(client, stage.b.project))
    shown = ("vscode-1.139", [("open notebook", [(False, "one"), (True, "two\n")])], 0)
    for client, burst, seed in [shown, *program]:
        chance = random.Random(seed)
        one = editors[client]
        sent = [message for step in burst for message in one.messages(step)]
        wire = b"".join(
            frame({"jsonrpc": "2.0", "method": method, "params": params}, escaped=chance.random() < 0.5)
            for method, params in sent
        )
        one.send(wire, chance)
        asked = {name: one.editor.begin("qmlx/context", {"file": name}) for name in SPELLINGS}
        asked["nb.ipynb"] = one.editor.begin("qmlx/context", {"file": "nb.ipynb"})
        for name, number in asked.items():
            want = model.script if name == "nb.ipynb" else model.text(name)
            response = await one.editor.response(number)
            got = response.get("result", {}).get("text")
            assert got == want, (name, response)
    for one in editors.values():
        assert await one.editor.leave()
    assert stage.b.app.registry.mirror.open_uris() == []
    assert stage.faults.said == []


# --- bytes that no editor would send -------------------------------------------------------------------------------


def _valid(root: Path) -> list[Any]:
    uri = (root / "a b.py").as_uri()
    document = {"uri": uri, "version": 2}
    span = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 1}}
    cell = {"kind": 2, "document": "vscode-notebook-cell:/x#1"}
    notebook = {"uri": (root / "nb.ipynb").as_uri(), "version": 1, "notebookType": "x", "cells": [cell]}
    item = {"uri": "vscode-notebook-cell:/x#1", "languageId": "python", "version": 1, "text": "x"}
    opened = {"textDocument": document | {"languageId": "x", "text": "소\n"}}
    return [
        {"method": "textDocument/didOpen", "params": opened},
        {"method": "textDocument/didChange",
         "params": {"textDocument": document, "contentChanges": [{"text": "x", "range": span}, {"text": "y"}]}},
        {"method": "textDocument/didSave", "params": {"textDocument": document, "text": "y"}},
        {"method": "textDocument/didClose", "params": {"textDocument": document}},
        {"method": "notebookDocument/didOpen",
         "params": {"notebookDocument": notebook, "cellTextDocuments": [item]}},
        {"method": "notebookDocument/didChange",
         "params": {"notebookDocument": notebook, "change": {"cells": {"structure": {
             "array": {"start": 0, "deleteCount": 1, "cells": []}, "didClose": [item]}}}}},
        {"method": "workspace/didChangeWorkspaceFolders",
         "params": {"event": {"added": [{"uri": root.as_uri(), "name": "x"}], "removed": []}}},
        {"method": "$/cancelRequest", "params": {"id": 3}},
        {"id": 3, "method": "qmlx/context", "params": {"file": "a b.py"}},
        {"id": 4, "method": "qmlx/ask", "params": {"text": "Q", "textDocument": {"uri": uri}, "range": span}},
        {"id": 5, "method": "textDocument/codeAction",
         "params": {"textDocument": document, "range": span, "context": {"diagnostics": []}}},
        {"id": 6, "method": "workspace/executeCommand", "params": {"command": "qmlx.cancel", "arguments": []}},
        {"id": 7, "method": "qmlx/conversation", "params": {"limit": 3}},
        {"id": 8, "method": "qmlx/toolResult", "params": {"name": "t", "output": "x", "exitCode": 1}},
        {"id": "mine", "result": None},
        {"id": "mine", "error": {"code": 1, "message": "x"}},
    ]  # fmt: skip


SUBSTITUTES: list[Any] = [None, True, -1, 2**63, 1e300, "", "\ud800", "\0", "x" * 3000, [], {}, [[]], {"uri": {}}]


def _elsewise(value: Any, chance: random.Random) -> Any:
    """``value`` with one place of it replaced, taken away or doubled."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(sorted(value))
        other = dict(value)
        if chance.random() < 0.2:
            del other[key]
        else:
            other[key] = _elsewise(value[key], chance)
        return other
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        return [*value[:at], _elsewise(value[at], chance), *value[at + chance.randint(0, 1) :]]
    return chance.choice(SUBSTITUTES)


def _broken(wire: bytes, chance: random.Random) -> bytes:
    """``wire`` with some bytes changed, lost, or put in."""
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(wire))
        put = bytes(chance.randrange(256) for _ in range(chance.randint(0, 3)))
        wire = wire[:at] + put + wire[at + chance.randint(0, 3) :] or b"\n"
    return wire


def test_messages_of_which_something_is_wrong_are_answered_or_ignored(stage: Stage) -> None:
    async def play(seed: int) -> None:
        chance = random.Random(seed)
        editor, other = await stage.connect("vscode-1.139"), await stage.connect("helix-25.07")
        for message in chance.choices(_valid(stage.b.project), k=12):
            wrong = {**message, "params": _elsewise(message.get("params"), chance)}
            if chance.random() < 0.2:
                wrong = _elsewise(message, chance)
            if isinstance(wrong, dict) and wrong.get("method") not in ("exit", "shutdown"):
                editor.send_bytes(frame({"jsonrpc": "2.0", **wrong}, escaped=True))
        assert (await editor.request("qmlx/status", {}))["version"]
        assert (await other.request("qmlx/ask", {"text": "Q"}))["finish"] == "complete"
        await editor.drop()
        other.of("window/showMessage")  # the conversation may come to its limit in the course of it
        assert await other.leave()
        assert stage.b.app.registry.mirror.open_uris() == []
        assert stage.faults.said == []

    for seed in range(35):
        stage.runner.run(play(seed))


def test_broken_bytes_end_their_own_connection_at_most(stage: Stage) -> None:
    async def play(seed: int) -> None:
        chance = random.Random(seed)
        editor, other = await stage.connect("vscode-1.139"), await stage.connect("helix-25.07")
        valid = chance.choices(_valid(stage.b.project), k=6)
        wire = b"".join(frame({"jsonrpc": "2.0", **message}, escaped=False) for message in valid)
        wire = _broken(wire, chance) if seed % 4 else bytes(chance.randrange(256) for _ in range(300))
        for byte in range(0, len(wire), 50):
            editor.send_bytes(wire[byte : byte + 50])
        assert (await other.request("qmlx/ask", {"text": "Q"}))["finish"] == "complete"
        if not editor.serving.done():
            await editor.drop()
        await asyncio.wait_for(editor.serving, WAIT_S)
        other.of("window/showMessage")
        assert await other.leave()
        assert stage.b.app.registry.mirror.open_uris() == []
        assert stage.faults.said == []

    for seed in range(30):
        stage.runner.run(play(seed))
