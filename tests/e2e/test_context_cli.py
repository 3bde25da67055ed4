"""``qmlx-lsp context`` beside real editors: what is known, pending and private; and the text that is held."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_editor import edit
from tests.support.processes import WAIT_S, Home, home

TEXT = "".join(f"line number {n}\n" for n in range(30))


def rows(out: str) -> dict[str, Any]:
    return {row["path"]: row for row in map(json.loads, out.splitlines())}


@pytest.fixture
async def h() -> AsyncIterator[Home]:
    async with home() as made:
        made.environ["QMLX_READ_AHEAD"] = "false"  # what is pending stays so until it is asked about
        yield made


async def run_bytes(h: Home, *arguments: str) -> tuple[int, bytes, bytes]:
    process = await h.start(*arguments)
    out, err = await asyncio.wait_for(process.communicate(b""), WAIT_S)
    return process.returncode, out, err


async def context(h: Home, *arguments: str) -> str:
    code, out, err = await h.run("context", "--root", str(h.project), *arguments)
    assert (code, err) == (0, "")
    return out


async def test_files_with_what_was_told_and_what_is_pending(h: Home) -> None:
    files = {name: h.project / name for name in ("a.py", "b.py", "c.py", ".env")}
    for file in files.values():
        file.write_text(TEXT)
    editor = await h.connect()
    for file in files.values():
        editor.open(file, TEXT)
    await editor.request("qmlx/ask", {"text": "Q", "textDocument": {"uri": files["a.py"].as_uri()}})
    editor.change(files["a.py"], 2, edit(3, 0, 4, "LINE"))
    files["new.py"] = h.project / "new.py"
    editor.open(files["new.py"], "new\n")
    await editor.request("qmlx/status")  # so that all of it has been read
    found = rows(await context(h, "--json"))
    assert set(found) >= {"a.py", "b.py", "c.py", "new.py", ".env"}
    assert {"path", "tokens", "told", "current", "pending", "excluded"} <= set(found["a.py"])
    a, b, new, env = (found[name] for name in ("a.py", "b.py", "new.py", ".env"))
    entries = [json.loads(line) for line in (await h.run("log", "--root", str(h.project), "--json"))[1].splitlines()]
    spans = {e["path"]: e["span"] for e in entries if e["kind"] == "context"}
    assert a["tokens"] == spans["a.py"][1] - spans["a.py"][0]
    assert a["told"] != a["current"]
    assert "-line number 3\n+LINE number 3\n" in a["pending"]
    assert a["state"] == "changed"
    assert (b["told"], b["pending"], b["state"]) == (b["current"], None, "up to date")
    assert (new["told"], new["tokens"], new["state"]) == (None, 0, "not told yet")
    assert new["pending"] == "File new.py:\n```python\nnew\n```\n"
    assert (env["excluded"], env["pending"], env["current"]) == ("secret", None, None)
    files["c.py"].unlink()
    editor.close_file(files["c.py"])
    await editor.request("qmlx/status")
    assert rows(await context(h, "--json"))["c.py"]["state"] == "gone"
    said = await context(h)
    assert "b.py" in said
    assert "up to date" in said
    assert ".env" not in said.replace("(--all shows them)", "")
    assert "left out: secret" in await context(h, "--all")
    assert "+LINE number 3" in await context(h, "--diff")
    await editor.request("qmlx/ask", {"text": "Q"})
    after = rows(await context(h, "--json"))
    assert all(row["pending"] is None for row in after.values())
    assert after["a.py"]["told"] == a["current"]
    await editor.leave()


@pytest.mark.slow
async def test_the_text_of_a_file_is_printed_byte_for_byte(h: Home) -> None:
    file = h.project / "a.py"
    odd = '\ufeffs = "😋é"\r\nform\x0cfeed\rlone\u2028\r\nno end'
    file.write_bytes(b"on the disk\r\n")
    code, out, err = await run_bytes(h, "context", "--root", str(h.project), "--file", str(file))
    assert (code, out, err) == (0, b"on the disk\r\n", b"")
    editor = await h.connect()
    editor.open(file, odd)
    await editor.request("qmlx/status")
    for name in (str(file), "a.py"):
        code, out, err = await run_bytes(h, "context", "--root", str(h.project), "--file", name)
        assert (code, out, err) == (0, odd.encode(), b"")
    editor.close_file(file)
    await editor.request("qmlx/status")
    _, out, _ = await run_bytes(h, "context", "--root", str(h.project), "--file", "a.py")
    assert out == b"on the disk\r\n"
    await editor.leave()


@pytest.mark.slow
async def test_what_cannot_be_shown_is_one_line(h: Home) -> None:
    (h.project / ".env").write_text("canary")
    (h.project / "bin").write_bytes(b"\x00\xff")
    outside = Path(h.project).parent / "outside.py"
    outside.write_text("canary")
    for name, said in {
        ".env": "private (secret)", "none.py": "There is no file none.py", "bin": "not text in UTF-8",
        str(outside): "outside the folder",
    }.items():  # fmt: skip
        code, out, err = await h.run("context", "--root", str(h.project), "--file", name)
        assert (code, out) == (2, "")
        assert said in err
        assert err.count("\n") == 1
        assert "canary" not in err
    code, out, err = await h.run("context", "--root", "/no/such/folder")
    assert (code, out) == (2, "")
    assert "is no folder" in err


@pytest.mark.slow
async def test_an_empty_project_loads_no_model(h: Home) -> None:
    assert "Nothing was told of any file yet." in await context(h)
    _, out, _ = await h.run("status", "--json")
    assert json.loads(out)["model"]["state"] == "idle"
