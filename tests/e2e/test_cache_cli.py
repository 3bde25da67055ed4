"""``qmlx-lsp cache`` against a real store, while a daemon runs and without one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from qmlx_lsp.engine.scripted_tokenizer import tokenizer_json
from qmlx_lsp.transcript.families import FAMILIES
from tests.support.processes import Home, home, json_line


@pytest.fixture
async def h() -> AsyncIterator[Home]:
    async with home() as made:
        yield made


async def cache(h: Home, *arguments: str, code: int = 0) -> Any:
    """The one JSON object of a verb."""
    got, out, err = await h.run("cache", *arguments, "--json")
    assert got == code, err
    return json_line(out)


def payload(h: Home) -> dict[str, bytes]:
    files = [p for kind in ("segments", "snapshots") for p in (h.paths.checkpoints / kind).iterdir()]
    return {p.name: p.read_bytes() for p in files}


async def ask_twice(h: Home) -> None:
    (h.project / "a.py").write_text("".join(f"line {n}\n" for n in range(1, 60)))
    for question in ("Why?", "How?"):
        code, _, err = await h.run("ask", question, "a.py")
        assert code == 0, err


@pytest.mark.slow
async def test_without_a_store_every_verb_says_so_and_makes_nothing(h: Home) -> None:
    for verb in (("ls",), ("du",), ("verify",), ("gc",), ("forget", "--all", "--yes")):
        code, out, err = await h.run("cache", *verb)
        assert (code, out) == (2, "")
        assert err.startswith("qmlx-lsp: There are no checkpoints yet (")
        assert err.count("\n") == 1
    code, out, err = await h.run("cache", "explain")
    assert (code, out) == (2, "")
    assert err.startswith("qmlx-lsp: There is no conversation for ")
    assert not h.home.exists()


@pytest.mark.slow
async def test_the_verbs_while_a_daemon_runs(h: Home) -> None:
    await ask_twice(h)
    log = [json.loads(line) for line in (await h.run("log", "--json"))[1].splitlines()]
    tokens = log[-1]["span"][1]
    shown = await cache(h, "ls")
    assert (shown["root"], shown["tokens"], shown["restorable"]) == (str(h.project), tokens, tokens)
    assert shown["bytes"] == shown["own_bytes"] == sum(map(len, payload(h).values()))
    used = await cache(h, "du")
    walked = [Path(where) / name for where, _, names in os.walk(h.paths.checkpoints) for name in names]
    assert used["bytes"] == sum(some["bytes"] for some in used["kinds"].values())
    assert used["files"] == len(walked)
    before = payload(h)
    whole = await cache(h, "verify")
    assert (whole["ok"], whole["files"], whole["damaged"]) == (True, len(before), [])
    assert (await cache(h, "gc", "--unclaimed"))["files"] == 0
    assert (await cache(h, "forget", "--all", "--dry-run"))["files"] == len(before)
    assert payload(h) == before
    explained = await cache(h, "explain")
    assert (explained["turn"]["usage"]["plan"], explained["restorable"][0]) == ("live", tokens)
    assert explained["parts"] is None
    code, out, err = await h.run("cache", "forget", "--root", ".")
    assert (code, out) == (2, "")
    assert "--yes" in err
    assert payload(h) == before


@pytest.mark.slow
async def test_a_prompt_from_elsewhere_beside_a_daemon(h: Home) -> None:
    await ask_twice(h)
    log = [json.loads(line) for line in (await h.run("log", "--json"))[1].splitlines()]
    folder = h.base / "model"  # of the same tokenizer; nothing else of a model is needed
    folder.mkdir()
    (folder / "tokenizer.json").write_text(tokenizer_json())
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": FAMILIES["ChatML"][1]}))
    roles = {"system": "system", "context": "user", "question": "user", "assistant": "assistant"}
    messages: list[dict[str, str]] = []
    for entry in log:
        if messages and roles[entry["kind"]] == messages[-1]["role"]:
            messages[-1]["content"] += entry["text"]
        else:
            messages.append({"role": roles[entry["kind"]], "content": entry["text"]})
    h.environ["QMLX_MODEL"] = str(folder)
    for given, reason, at in (
        (messages[:-1], "ends", None),
        ([*messages[:2], *messages[3:]], "missing", next(e for e in log if e["kind"] == "assistant")["span"][0] + 3),
    ):
        code, out, err = await h.run("cache", "explain", "--against", "-", "--json", given=json.dumps(given).encode())
        assert code == 0, err
        shown = json_line(out)
        assert shown["against"]["reason"] == reason
        assert (shown["parts"] and shown["parts"]["at"]) == at
        assert shown["against"]["restorable"] in (0, *shown["restorable"])


@pytest.mark.slow
async def test_damage_is_found_repaired_and_then_explained(h: Home) -> None:
    await ask_twice(h)
    assert (await h.run("daemon", "stop"))[0] == 0
    path = max((h.paths.checkpoints / "snapshots").iterdir(), key=lambda p: p.stat().st_mtime_ns)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    found = await cache(h, "verify", code=1)
    assert [(one["file"], one["reason"]) for one in found["damaged"]] == [(path.name, "corrupt")]
    assert (await cache(h, "verify", "--repair"))["damaged"][0]["repaired"]
    assert (await cache(h, "verify"))["ok"]
    assert (await cache(h, "du"))["kinds"]["quarantine"]["files"] == 1
    answer = json_line((await h.run("ask", "--json", "Again?"))[1])
    assert answer["usage"]["plan"] == "restore"  # from the checkpoint before
    shutil.rmtree(h.paths.checkpoints)
    explained = await cache(h, "explain")
    assert (explained["turn"]["usage"]["restored"], explained["restorable"]) == (answer["usage"]["restored"], [])


@pytest.mark.slow
async def test_forgotten_is_read_anew(h: Home) -> None:
    await ask_twice(h)
    assert (await h.run("daemon", "stop"))[0] == 0
    gone = await cache(h, "forget", "--root", ".", "--yes")
    assert gone["files"] > 0
    assert payload(h) == {}
    answer = json_line((await h.run("ask", "--json", "Again?"))[1])
    assert (answer["usage"]["plan"], answer["finish"]) == ("cold", "complete")
    code, out, _ = await h.run("cache", "explain")
    assert code == 0
    assert "The last turn was cold: " in out
    assert "no checkpoint of this conversation was stored" in out
    assert (await cache(h, "ls"))["restorable"] > 0
