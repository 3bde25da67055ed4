"""What broke document sync elsewhere, over the wire: one test per kind of fault, named after the report's number.

Kinds that need no wire stand in the tests of ``workspace``: B01, B04 and B07 in test_document and test_positions, B10
in test_diff, B15 in test_uris. The others of the life cycle: B17 and B11 in session/test_files, B20 in test_lsp_wire,
B21 in test_daemon and test_daemon_ends.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from qmlx_lsp.transcript.entry import Kind
from tests.support.bench import Bench, bench
from tests.support.fake_editor import CLIENT_NAMES, InMemory, edit, initialize_params
from tests.support.processes import Editor, home
from tests.support.waiting import until

INVALID_REQUEST, INVALID_PARAMS, REQUEST_FAILED, CANCELLED = -32600, -32602, -32803, -32800
MAIN = "import sys; from qmlx_lsp.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path) as made:
        yield made


async def editor_of(b: Bench, client: str = "vscode-1.139", **options: Any) -> InMemory:
    editor = InMemory(b.app, **options)
    await editor.initialize(initialize_params(client, b.project))
    return editor


async def held(editor: InMemory, file: Path | str) -> Any:
    return (await editor.request("qmlx/context", {"file": str(file)}))["text"]


def told(b: Bench) -> list[str]:
    return [entry.text for entry in b.entries() if entry.kind is Kind.CONTEXT]


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
async def test_b01_separators_that_end_no_line(b: Bench, separator: str) -> None:
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, f's="a{separator}b"\nq')
    editor.change(file, 2, edit(1, 0, 1, "Q"))
    assert await held(editor, file) == f's="a{separator}b"\nQ'
    await editor.request("qmlx/ask", {"text": "Q", "textDocument": {"uri": file.as_uri()}})
    assert f's="a{separator}b"\nQ\n' in told(b)[-1]
    assert await editor.leave()


async def test_b02_half_characters_reach_nothing(b: Bench) -> None:
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "a😋b")
    editor.change(file, 2, edit(0, 2, 2, "Z"))
    assert await held(editor, file) == "aZ😋b"
    wrong = {"text": "\ud83d and \ude00", "textDocument": {"uri": file.as_uri()}}
    for escaped in (True, False):
        body = json.dumps({"jsonrpc": "2.0", "id": f"half {escaped}", "method": "qmlx/ask", "params": wrong})
        raw = (
            body.encode()
            if escaped
            else json.dumps(json.loads(body), ensure_ascii=False).encode("utf-8", "surrogatepass")
        )
        editor._asked.append(f"half {escaped}")
        editor.send_bytes(b"Content-Length: %d\r\n\r\n%s" % (len(raw), raw))
        assert (await editor.result(f"half {escaped}"))["finish"] == "complete"
    asked = [entry.text for entry in b.entries() if entry.kind is Kind.QUESTION]
    assert asked == ["\ufffd and \ufffd", "\ufffd and \ufffd"]
    turns = (await editor.request("qmlx/conversation"))["turns"]
    assert [turn["question"] for turn in turns] == asked
    assert await editor.leave()


async def test_b02_bytes_that_are_no_text_spoil_one_character_and_no_more(b: Bench) -> None:
    """A change that is dropped unsaid would leave a text that drifts."""
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "ab\n")
    change = {"textDocument": {"uri": file.as_uri(), "version": 2}, "contentChanges": [edit(0, 1, 1, "??")]}
    body = json.dumps({"jsonrpc": "2.0", "method": "textDocument/didChange", "params": change}).encode()
    body = body.replace(b"??", b"\xe9(")
    editor.send_bytes(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    assert await held(editor, file) == "a\ufffd(b\n"
    assert await editor.leave()


@pytest.mark.parametrize("client", CLIENT_NAMES)
async def test_b03_columns_are_those_that_were_agreed_on(b: Bench, client: str) -> None:
    editor = InMemory(b.app)
    capabilities = (await editor.initialize(initialize_params(client, b.project)))["capabilities"]
    encoding = capabilities.get("positionEncoding", "utf-16")
    file = b.project / "a.py"
    editor.open(file, "ö𝒳bc")
    editor.change(file, 2, edit(0, *{"utf-8": (6, 6), "utf-16": (3, 3), "utf-32": (2, 2)}[encoding], "a"))
    assert await held(editor, file) == "ö𝒳abc"
    assert await editor.leave()


async def test_b04_lone_cr_and_all_three_in_one_file(b: Bench) -> None:
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "one\rtwo\r\nthree\nfour")
    editor.change(file, 2, edit(0, 3, 999, "!"), edit(1, 3, 999, "!"), edit(2, 5, 999, "!"), edit(3, 4, 999, "!"))
    assert await held(editor, file) == "one!\rtwo!\r\nthree!\nfour!"
    assert await editor.leave()


async def test_b04_lines_that_are_pointed_at_are_the_editors(b: Bench) -> None:
    file = b.project / "mac.py"
    file.write_bytes(b"".join(b"line_%d = %d\r" % (n, n) for n in range(1, 3000)))  # too large to be told whole
    editor = await editor_of(b)
    span = {"start": {"line": 1499, "character": 0}, "end": {"line": 1500, "character": 1}}
    about = {"text": "Q", "textDocument": {"uri": file.as_uri()}, "range": span}
    await editor.request("qmlx/ask", about)
    assert "Lines 1500-1501 of mac.py:\n```python\nline_1500 = 1500\nline_1501 = 1501\n```" in told(b)[-1]
    (b.project / "named.py").write_bytes(file.read_bytes())
    await editor.request("qmlx/ask", {"text": "@named.py:2500-2501"})
    assert "line_2500 = 2500\nline_2501 = 2501\n" in told(b)[-1]
    assert "line_1 = 1\n" not in told(b)[-1]
    assert await editor.leave()


async def test_b07_no_change_outside_ends_anything(b: Bench) -> None:
    editor = await editor_of(b)
    file = b.project / "a.py"
    editor.open(file, "a\n")
    editor.change(file, 2, {"text": "b\nc\n"}, edit(1, 0, 1, "d"))
    assert await held(editor, file) == "b\nd\n"
    editor.change(file, 3)
    editor.change(file, 4, edit(9, 0, 0, "Z"), edit(2**63, 2**70, 2**70, "!"))
    assert await held(editor, file) == "b\nd\nZ!"
    editor.change(file, 5, {"text": "abcdef"}, edit(0, 4, 1, ""), edit(0, -5, -1, "<"))
    assert await held(editor, file) == "<aef"
    assert await editor.leave()


NO_CHANGES: list[Any] = [
    None, {}, "x", [{"text": None}], [{"range": {}, "text": "x"}],
    [{"text": "x", "range": {"start": None, "end": 0}}],
    [{"text": "x", "range": {"start": {"line": 1e308, "character": 0.5}, "end": {"line": 0, "character": 0}}}],
    [{"text": "whole"}, {"text": "x", "range": []}],
]  # fmt: skip


async def test_b07_what_cannot_be_understood_marks_the_document_until_its_whole_text_comes(b: Bench) -> None:
    editor = await editor_of(b)
    file = b.project / "a.py"
    file.write_text("disk\n")
    for nonsense in NO_CHANGES:
        editor.open(file, "open\n")
        assert await held(editor, file) == "open\n"
        document = {"uri": file.as_uri(), "version": 2}
        editor.notify("textDocument/didChange", {"textDocument": document, "contentChanges": nonsense})
        assert await held(editor, file) == "disk\n", nonsense
        editor.change(file, 3, edit(0, 0, 0, "x"))
        assert await held(editor, file) == "disk\n"
        editor.change(file, 4, {"text": "x", "range": 5}, {"text": "known\n"}, edit(0, 0, 0, "well "))
        assert await held(editor, file) == "well known\n"
    assert await editor.leave()


@pytest.mark.parametrize("version", [None, 2.0, -7, 2**70, "2", [], True, {}])
async def test_b07_versions_that_are_no_numbers_count_for_nothing(b: Bench, version: Any) -> None:
    editor = await editor_of(b)
    file = b.project / "a.py"
    document = {"uri": file.as_uri(), "languageId": None, "version": "?", "text": "a"}
    editor.notify("textDocument/didOpen", {"textDocument": document})
    changed = {"textDocument": {"uri": file.as_uri(), "version": version}, "contentChanges": [edit(0, 1, 1, "b")]}
    editor.notify("textDocument/didChange", changed)
    assert await held(editor, file) == "ab"
    assert await editor.leave()


async def test_b08_ranges_in_wide_characters(b: Bench) -> None:
    editor = await editor_of(b)
    file = b.project / "a.py"
    text = "x = 1  # 소 ─ 👩\u200d💻\nnext = 2\n"
    file.write_text(text)
    editor.open(file, text)
    about = {"textDocument": {"uri": file.as_uri()}}
    for start, end in ((9, 10), (10, 10), (12, 17), (13, 14), (400, 401)):
        span = {"start": {"line": 0, "character": start}, "end": {"line": 0, "character": end}}
        actions = {**about, "range": span, "context": {"diagnostics": []}}
        offered = await editor.request("textDocument/codeAction", actions)
        assert {action["command"]["arguments"][0]["uri"] for action in offered} == {file.as_uri()}
        await editor.request("qmlx/ask", {"text": "Q", **about, "range": span})
    assert all("next" not in text for text in told(b)[1:]), "the selected line and no other"
    assert "# 소 ─ 👩\u200d💻\n" in told(b)[-1]
    assert await editor.leave()


async def test_b10_line_ends_of_an_editor_are_no_change(b: Bench) -> None:
    file = b.project / "a.txt"
    file.write_bytes(b"line one\r\nline two\r\nline three\r\n" * 9)
    await b.ask("Q", path=str(file))
    before = len(b.ids())
    editor = await editor_of(b)
    editor.open(file, "line one\nline two\nline three\n" * 9)
    result = await editor.request("qmlx/ask", {"text": "Q", "textDocument": {"uri": file.as_uri()}})
    assert len(told(b)) == 1
    assert len(b.ids()) - before < 100 < result["usage"]["context"]
    assert await editor.leave()


async def test_b12_a_huge_document_holds_nobody_up(b: Bench) -> None:
    """200 keystrokes at the end of 10 MB in one line, and thousands of edits in one message."""
    editor, other = await editor_of(b), await editor_of(b, "helix-25.07")
    huge, many, small = (b.project / name for name in ("huge.py", "many.py", "small.py"))
    editor.open(huge, "x=1;" * 2_500_000)
    for version in range(2, 202):
        editor.change(huge, version, edit(0, 9_999_998 + version, 9_999_998 + version, "y"))
    editor.open(many, "line\n" * 20_000)
    editor.change(many, 2, *[edit(line, 0, 4, "LINE") for line in range(5000)])
    other.open(small, "a = 1\n")
    result = await other.request("qmlx/ask", {"text": "Q", "textDocument": {"uri": small.as_uri()}})
    assert result["usage"]["prefilled"] < 1000
    await editor.request("qmlx/status")
    document = b.app.registry.mirror.document(huge.as_uri())
    assert document is not None
    assert document.text == "x=1;" * 2_500_000 + "y" * 200
    assert await held(editor, many) == "LINE\n" * 5000 + "line\n" * 15_000
    assert await editor.leave()
    assert await other.leave()


async def test_b13_every_order_of_open_change_and_close(b: Bench) -> None:
    editor = await editor_of(b)
    late, ranged = b.project / "late.py", b.project / "ranged.py"
    editor.close_file(late)
    editor.change(late, 2, {"text": "(ns foo)\n"})
    editor.open(late, "", version=1)
    assert await held(editor, late) == "(ns foo)\n"
    editor.change(ranged, 4, edit(0, 0, 0, "x"))
    assert "There is no file" in (await editor.refused("qmlx/context", {"file": str(ranged)}))[1]
    editor.close_file(ranged)
    editor.close_file(ranged)
    editor.close_file(late)
    await editor.request("qmlx/status")
    assert b.app.registry.mirror.open_uris() == []
    assert await editor.leave()


async def test_b14_nobody_sees_half_of_a_change(b: Bench) -> None:
    """Two thousand entries in one message while fifty questions are asked: each was told some whole version."""
    editor, other = await editor_of(b), await editor_of(b, "neovim-0.12")
    file = b.project / "a.py"
    versions = {f"{'ba' * (1000 * n)}\n" for n in range(4)}
    editor.open(file, "\n")
    numbers = [other.begin("qmlx/context", {"file": str(file)}) for _ in range(10)]
    for version in range(2, 5):
        editor.change(file, version, *[edit(0, 0, 0, letter) for letter in ["a", "b"] * 1000])
        numbers += [other.begin("qmlx/context", {"file": str(file)}) for _ in range(20)]
    asked = editor.begin("qmlx/ask", {"text": "Q", "textDocument": {"uri": file.as_uri()}})
    seen = [(await other.response(number)).get("result", {}).get("text") for number in numbers]
    assert set(seen) - {None} <= versions
    await editor.result(asked)
    assert f"```python\n{'ba' * 3000}\n```" in told(b)[-1]
    editor.change(file, 3, edit(0, 0, 0, "Z"))
    assert "There is no file" in (await editor.refused("qmlx/context", {"file": str(file)}))[1]
    assert await editor.leave()
    assert await other.leave()


async def test_b15_what_is_one_document_and_what_is_not(b: Bench) -> None:
    editor = await editor_of(b, "helix-25.07")
    names = ["caf\u00e9.py", "cafe\u0301.py", "a b.py", "a%20b.py"]
    for name in names:
        (b.project / name).write_text(f"disk {name}\n")
    for name in names:
        editor.open(b.project / name, f"open {name}\n")
    assert [await held(editor, b.project / name) for name in names] == [f"open {name}\n" for name in names]
    assert len(b.app.registry.mirror.open_uris()) == 4
    for uri in ("git:/x/a.py?ref=HEAD", "untitled:Untitled-1", "vscode-vfs://host/a.py", f"git:{b.project}/a b.py"):
        document = {"uri": uri, "languageId": "python", "version": 1, "text": "SECRET\n"}
        editor.notify("textDocument/didOpen", {"textDocument": document})
    await editor.request("qmlx/ask", {"text": "Q"})
    assert sorted(told(b)) == sorted(f"File {name}:\n```python\nopen {name}\n```\n" for name in names)
    assert "SECRET" in await held(editor, "untitled:Untitled-1")
    for uri in ("git:/x/a.py?ref=HEAD", "http://h/a.py", f"git:{b.project}/a b.py"):
        _, said = await editor.refused("qmlx/ask", {"text": "Q", "textDocument": {"uri": uri}})
        assert said == f"{uri} is not a file on disk: save it first, or ask without it."
    assert await editor.leave()


STRANGE = [
    "", ":", "file:", "file://", "file:///", "///", "%", "%00", "file:///a%00b", "untitled:%00", "file:///%FF%FE",
    "\0", "file:///" + "a" * 5000, "file:///" + "a/" * 2000, "x" * 100_000, "file:///\ud800", "\ud800", "file://[::1",
    "%ud800",
]  # fmt: skip


async def test_b15_uris_that_can_be_no_files(b: Bench) -> None:
    """They are documents like others, in a project or nowhere; nothing raises, and nobody has to wait."""
    editor = await editor_of(b)
    for uri in [*STRANGE, *(f"{b.project.as_uri()}/{uri}" for uri in STRANGE)]:
        document = {"uri": uri, "languageId": "python", "version": 1, "text": "x\n"}
        changed = {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [{"text": "y\n"}]}
        about = {"textDocument": {"uri": uri}}
        for method, params in (
            ("textDocument/didOpen", {"textDocument": document}), ("textDocument/didChange", changed),
            ("textDocument/didSave", {**about, "text": "y\n"}), ("qmlx/didFocus", about),
        ):  # fmt: skip
            body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()
            editor.send_bytes(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    assert (await editor.request("qmlx/ask", {"text": "Q"}))["finish"] == "complete"
    for name in ("a\0b", "a" * 5000, "a/" * 3000, "/" + "a/" * 3000):
        code, said = await editor.refused("qmlx/context", {"file": name})
        assert code == REQUEST_FAILED
        assert said.endswith("can be no file's name: check it.")
        said = (await editor.refused("qmlx/ask", {"text": "Q", "root": f"/{name}"}))[1]
        assert said.endswith("is not a folder: give the path or file URI of one.")
    for name in ("a\0b", '"a\0/b"', "a" * 5000, f'"{"a/" * 1500}"'):
        assert (await editor.request("qmlx/ask", {"text": f"@{name}"}))["finish"] == "complete"
    assert await editor.leave()


async def test_a_name_that_is_no_text_is_a_name(b: Bench) -> None:
    """Bytes of a path that are not UTF-8 travel as half characters, in paths alone."""
    editor = await editor_of(b)
    file = str(b.project / "\udcff.py")
    Path(file).write_text("disk\n")
    body = json.dumps({"jsonrpc": "2.0", "id": "x", "method": "qmlx/context", "params": {"file": file}}).encode()
    editor._asked.append("x")
    editor.send_bytes(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    assert (await editor.result("x"))["text"] == "disk\n"
    assert await editor.leave()


async def test_b22_answers_are_taken_until_the_end(tmp_path: Path) -> None:
    """The daemon has asked for a progress; shutdown comes first, then the answer, then nothing but refusals."""
    async with bench(tmp_path, replies=["abcdefghij"]) as b:
        editor = await editor_of(b, "neovim-0.12", answers=False)
        create = await editor.until(lambda m: m.get("method") == "window/workDoneProgress/create")
        editor.begin("shutdown", None, 9)
        editor.send({"jsonrpc": "2.0", "id": create["id"], "result": None})
        assert (await editor.response(9))["result"] is None
        assert (await editor.refused("shutdown"))[0] == INVALID_REQUEST
        assert (await editor.refused("qmlx/ask", {"text": "Q"}))[0] == INVALID_REQUEST
        editor.notify("exit", None)
        assert await asyncio.wait_for(editor.serving, 5)
        editor.check()


async def test_b23_answers_to_what_nobody_asked_touch_no_request_of_the_clients_own(tmp_path: Path) -> None:
    async with bench(tmp_path, replies=["abcdefghij"]) as b:
        editor = await editor_of(b)
        b.gate.hold("decode", 3)
        number = editor.begin("qmlx/ask", {"text": "Q"})
        await b.gate.reached()
        for answer in ({"result": None}, {"result": {"a": 1}}, {"error": {"code": 1, "message": "x"}}, {"error": 5}):
            editor.send({"jsonrpc": "2.0", "id": number, **answer})
        other = editor.begin("qmlx/status", {})
        await editor.result(other)
        b.gate.open()
        assert (await editor.result(number))["text"] == "abcdefghij"
        assert await editor.leave()


@pytest.mark.parametrize(
    "root",
    [{"rootUri": "file://[::1"}, {"rootUri": ""}, {"rootPath": "relative"}, {"rootPath": "/a\0"},
     {"processId": 2**70}, {"workspaceFolders": [{"uri": "file://[::1", "name": "x"}, {"uri": "%", "name": ""}]}],
)  # fmt: skip
async def test_strange_folders_are_no_folders(b: Bench, root: dict[str, Any]) -> None:
    editor = InMemory(b.app)
    params = {"processId": None, "rootUri": None, "capabilities": {}, **root}
    body = json.dumps({"jsonrpc": "2.0", "id": "x", "method": "initialize", "params": params}).encode()
    editor._asked.append("x")
    editor.send_bytes(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    assert (await editor.result("x"))["capabilities"]["textDocumentSync"]["change"] == 2
    event = {"added": [{"uri": "file://[::1", "name": ""}], "removed": [{"uri": "%00", "name": ""}]}
    editor.notify("workspace/didChangeWorkspaceFolders", {"event": event})
    assert "No workspace folder is open" in (await editor.refused("qmlx/ask", {"text": "Q"}))[1]
    assert await editor.leave()


async def test_a_second_initialize_changes_nothing(b: Bench) -> None:
    editor = await editor_of(b, "helix-25.07")
    file = b.project / "a.py"
    editor.open(file, "öb")
    again = await editor.refused("initialize", initialize_params("vscode-1.139", b.project))
    assert again == (INVALID_REQUEST, "The server has been initialized already.")
    editor.change(file, 2, edit(0, 2, 2, "a"))
    assert await held(editor, file) == "öab"
    assert await editor.leave()


async def test_methods_that_are_no_names_and_values_that_are_too_deep(b: Bench) -> None:
    editor = await editor_of(b)
    for method in (5, [], {}, None, True):
        number = editor.begin(method, {})  # type: ignore[arg-type]
        assert (await editor.error(number))[0] == INVALID_REQUEST
    for deep in (b"[" * 100_000, b'{"a":' * 900 + b"1" + b"}" * 900):
        start = len(editor.messages)
        body = b'{"jsonrpc": "2.0", "method": "textDocument/didOpen", "params": ' + deep + b"}"
        editor.send_bytes(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        if deep.startswith(b"["):
            await editor.until(lambda m: m.get("id", 0) is None and m["error"]["code"] == -32700, start)
    assert (await editor.request("qmlx/conversation", {"limit": 2**70}))["turns"] == []
    assert await editor.leave()


NOISE = """
import ctypes, os, subprocess, sys, warnings
from tqdm import tqdm
from qmlx_lsp.engine.scripted import ScriptedBackend
feed = ScriptedBackend.prefill
def loud(self, *given):
    print("noise"); sys.stdout.flush(); os.write(1, b"noise")
    libc = ctypes.CDLL(None); libc.printf(b"noise\\n"); libc.fflush(None)
    list(tqdm(range(3), desc="noise", file=sys.stdout)); sys.stdout.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("always"); warnings.warn("noise")
    subprocess.run(["sh", "-c", "echo noise; echo noise >&2"])
    feed(self, *given)
ScriptedBackend.prefill = loud
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["--no-daemon", "daemon"])
async def test_b19_noise_of_every_kind_stays_out_of_the_protocol(way: str) -> None:
    async with home() as h:
        noisy = ("-c", NOISE + MAIN)
        if way == "daemon":
            await h.start("daemon", "run", program=noisy)
            await until(lambda: h.paths.socket.exists())
            editor = Editor(await h.start())
        else:
            editor = Editor(await h.start(way, program=noisy))
        await editor.initialize(initialize_params("neovim-0.11", h.project))
        assert (await editor.request("qmlx/ask", {"text": "Q"}))["finish"] == "complete"
        assert await editor.leave() == 0
        assert b"noise" not in editor.raw
        if way != "daemon":
            assert (await editor.process.stderr.read()).count(b"noise") >= 7  # type: ignore[union-attr]


@pytest.mark.slow
async def test_b21_the_end_in_the_middle_of_a_frame_and_of_a_reply_leaves_whole_files() -> None:
    async with home() as h:
        editor = Editor(await h.start("--no-daemon"))
        await editor.initialize(initialize_params("vscode-1.139", h.project))
        await editor.request("qmlx/ask", {"text": "Q" * 3000})
        start = len(editor.messages)
        editor.begin("qmlx/ask", {"text": "R" * 3000})
        await editor.until(lambda m: m.get("method") == "qmlx/stream", start)
        editor.send_bytes(b"Content-Length: 500\r\n\r\n{")
        editor.hang_up()
        assert await editor.ended() == 1
        code, out, _ = await h.run("cache", "verify")
        assert (code, "all checksums are right" in out) == (0, True)
        again = Editor(await h.start("--no-daemon"))
        await again.initialize(initialize_params("vscode-1.139", h.project))
        usage = (await again.request("qmlx/ask", {"text": "S"}))["usage"]
        assert usage["restored"] > 3000
        assert await again.leave() == 0
