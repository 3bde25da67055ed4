"""Frames, nonsense, and parameters that are not what they should be: one line for each, and the next is served."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bench import Bench, bench
from tests.support.fake_editor import InMemory, initialize_params

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
REQUEST_FAILED = -32803


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path) as made:
        yield made


@pytest.fixture
async def editor(b: Bench) -> AsyncIterator[InMemory]:
    made = InMemory(b.app)
    await made.initialize(initialize_params("vscode-1.139", b.project))
    yield made
    assert await made.leave()


def nobody(code: int) -> Any:
    return lambda m: m.get("id", 0) is None and m["error"]["code"] == code


async def test_malformed_messages_are_answered_and_the_next_is_read(editor: InMemory) -> None:
    for body, code in {
        b"{nonsense": PARSE_ERROR, b"\xff\xfe": PARSE_ERROR, b"[]": INVALID_REQUEST, b"7": INVALID_REQUEST,
        b"{}": INVALID_REQUEST, b'{"jsonrpc": "1.0", "id": 5, "method": "x"}': INVALID_REQUEST, b"": PARSE_ERROR,
        b'{"jsonrpc": "2.0", "id": [1], "method": "qmlx/status"}': INVALID_REQUEST,
        b'{"jsonrpc": "2.0", "id": {}, "result": 1}': INVALID_REQUEST,
    }.items():  # fmt: skip
        start = len(editor.messages)
        editor.send_bytes(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        await editor.until(nobody(code), start)
    assert (await editor.request("qmlx/status"))["clients"] == 1


async def test_headers_in_any_case_in_any_company_byte_by_byte(editor: InMemory) -> None:
    body = json.dumps(
        {"jsonrpc": "2.0", "id": "é😋", "method": "qmlx/ask", "params": {"text": "你好 😋?"}}, ensure_ascii=False
    ).encode()
    head = b"content-type: application/vscode-jsonrpc; charset=utf-8\r\ncontent-length: %d\r\n\r\n" % len(body)
    editor._asked.append("é😋")
    for byte in head + body:
        editor.send_bytes(bytes([byte]))
    assert (await editor.result("é😋"))["finish"] == "complete"
    assert json.loads(editor.raw.rsplit(b"\r\n\r\n", 1)[1])  # lengths are of bytes: checked frame by frame as well


@pytest.mark.parametrize(
    "broken",
    [b"Content-Length: x\r\n\r\n{}", b"Content-Length: -1\r\n\r\n", b"Content-Length: 99999999999\r\n\r\n",
     b"x" * 5000 + b"\r\n", b"y" * (2 << 20), b"Content-Length: 5"],
)  # fmt: skip
async def test_broken_frame_ends_the_connection_alone(b: Bench, editor: InMemory, broken: bytes) -> None:
    other = InMemory(b.app)
    await other.initialize(initialize_params("helix-25.07", b.project))
    other.send_bytes(broken)
    assert not await other.drop()
    assert (await editor.request("qmlx/ask", {"text": "Q"}))["finish"] == "complete"


async def test_unknown_methods(editor: InMemory) -> None:
    assert (await editor.refused("qmlx/nothing", {"a": 1}))[0] == METHOD_NOT_FOUND
    hover = {"textDocument": {"uri": "file:///x"}, "position": {"line": 0, "character": 0}}
    assert (await editor.refused("textDocument/hover", hover))[0] == METHOD_NOT_FOUND
    editor.notify("qmlx/nothing", {"a": 1})
    editor.notify("$/setTrace", {"value": "off"})
    editor.notify("workspace/didChangeConfiguration", {"settings": None})
    editor.send({"jsonrpc": "2.0", "method": "initialized"})
    editor.send({"jsonrpc": "2.0", "method": "textDocument/didChange", "params": {"nonsense": True}})
    editor.send({"jsonrpc": "2.0", "id": "never asked", "error": {"code": 1, "message": "x"}})
    assert (await editor.request("qmlx/status"))["clients"] == 1


async def test_nested_keys_that_are_no_names(editor: InMemory) -> None:
    params = {"text": "Q", "class": 1, "a-b": {"jsonrpc": "2.0", "id": 3, "method": "x"}, "jsonrpc": "3.0"}
    assert (await editor.request("qmlx/ask", params))["finish"] == "complete"


WRONG: list[tuple[Any, str]] = [
    ({"text": 5}, "text is 5, but must be a text."),
    ({"text": ""}, "The question is empty"),
    ({"text": " \n\t"}, "The question is empty"),
    ({}, "The question is empty"),
    (None, "The question is empty"),
    ([1], "The parameters of qmlx/ask must be an object."),
    ({"text": "Q", "maxTokens": "9"}, "maxTokens is '9', but must be a whole number."),
    ({"text": "Q", "maxTokens": True}, "maxTokens is True, but must be a whole number."),
    ({"text": "Q", "maxTokens": 0}, "maxTokens is 0, but must be 1 or more."),
    ({"text": "Q", "maxTokens": 1.5}, "maxTokens is 1.5, but must be a whole number."),
    ({"text": "Q", "root": 5}, "root is 5, but must be a text."),
    ({"text": "Q", "root": "relative"}, "root relative is not a folder"),
    ({"text": "Q", "root": "/no/such/folder"}, "root /no/such/folder is not a folder"),
    ({"text": "Q", "textDocument": "x"}, "textDocument must be an object."),
    ({"text": "Q", "textDocument": {"uri": 3}}, "textDocument.uri is 3, but must be a text."),
    ({"text": "Q", "textDocument": {}}, "textDocument.uri is missing"),
    ({"text": "Q", "textDocument": {"uri": "git:/x"}}, "git:/x is not a file on disk"),
    ({"text": "Q", "range": {"start": 1}}, "range must be {start: {line, character}"),
    (
        {"text": "Q", "range": {"start": {"line": "1", "character": 0}, "end": {"line": 1, "character": 0}}},
        "range must be {start: {line, character}",
    ),
    ({"text": "Q", "workDoneToken": {}}, "workDoneToken is {}, but must be a text or a whole number."),
    ({"text": "Q", "partialResultToken": [1]}, "partialResultToken is [1], but must be"),
    ({"text": "Q", "root": {"x": "y" * 10_000}}, "root is {'x': 'yyy"),
    ({"text": "y" * 300_000}, "more than 256 KiB"),
]


async def test_wrong_parameters_are_named_in_one_line(editor: InMemory) -> None:
    for params, said in WRONG:
        code, message = await editor.refused("qmlx/ask", params)
        assert code == REQUEST_FAILED
        assert said in message
        assert len(message) < 400


async def test_wrong_parameters_of_the_others(editor: InMemory) -> None:
    for params, said in (
        ({"limit": -1}, "limit is -1"),
        ({"limit": "x"}, "limit is 'x'"),
        ({"root": 1}, "root is 1"),
    ):
        assert said in (await editor.refused("qmlx/conversation", params))[1]


async def test_file_outside_every_folder_names_them(b: Bench, editor: InMemory) -> None:
    _, message = await editor.refused("qmlx/ask", {"text": "Q", "textDocument": {"uri": "file:///etc/hostname"}})
    assert message == (
        f"/etc/hostname is outside every workspace folder ({b.project}): open a folder that contains it."
    )


async def test_no_folder_is_open(b: Bench) -> None:
    other = InMemory(b.app)
    await other.initialize({"processId": None, "rootUri": None, "capabilities": {}})
    assert "No workspace folder is open" in (await other.refused("qmlx/ask", {"text": "Q"}))[1]
    given = await other.request("qmlx/ask", {"text": "Q", "root": f"{b.project}/x/.."})
    assert given["finish"] == "complete"
    assert b.entries()  # one conversation, whatever the folder is called
    assert await other.leave()


async def test_trouble_is_told_to_each_editor_once(b: Bench, editor: InMemory) -> None:
    await editor.request("qmlx/status")
    b.app.registry.notice("disk", "The disk is full.")
    b.app.registry.notice("disk", "The disk is very full.")
    late = InMemory(b.app)
    await late.initialize(initialize_params("helix-25.07", b.project))
    await late.request("qmlx/status")
    for one in (editor, late):
        assert [shown["message"] for shown in one.of("window/showMessage")] == ["The disk is full."]
    assert await late.leave()
