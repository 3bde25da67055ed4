"""Emacs and Eglot with the file that the README says to paste."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.editors.conftest import REPOSITORY, Editors
from tests.editors.scene import FILES, Scene

DRIVER = Path(__file__).with_name("emacs.el")
# What the file lacks would be a warning of the byte compiler.
COMPILE = '(progn (package-initialize) (setq byte-compile-error-on-warn t) (byte-compile-file (getenv "EL")))'
ANSWER = "It adds the numbers up. The end."


async def emacs(editors: Editors, scene: Scene, out: Path) -> dict[str, dict[str, Any]]:
    """What the driver has written, by event."""
    env = {
        **scene.env(),
        "OUT": str(out),
        "QMLX_EL": str(REPOSITORY / "editors" / "emacs" / "qmlx.el"),
        "TERM": "dumb",
    }
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        str(editors.path("emacs")), "--batch", "-l", str(DRIVER), env=env, cwd=scene.root, stdout=pipe, stderr=pipe
    )
    try:
        _, err = await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
    lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    events = [json.loads(line) for line in lines]
    assert events, err.decode()
    assert events[-1]["event"] == "left", (events, err.decode()[-2000:])
    return {event["event"]: event for event in events}


async def test_asking_changing_cancelling(editors: Editors, scene: Scene, tmp_path: Path) -> None:
    scene.say("What is this?", ANSWER, pace_ms=20)
    scene.say("with sum", "```python\ndef total(numbers):\n    return sum(numbers)\n```\n")
    scene.say("Slow?", "word " * 400, pace_ms=10)
    seen = await emacs(editors, scene, tmp_path / "out")
    assert seen["connected"]["encoding"] in ("utf-16", "utf-32")
    assert "The end." not in seen["growing"]["text"], "it is shown while it grows"
    assert seen["answered"]["text"] == f"\n# What is this?\n\n{ANSWER}\n"
    assert "tokens read, 0 kept" in seen["answered"]["status"]
    assert {"Explain", "Document", "Generate tests"} <= set(seen["actions"]["titles"])
    head = FILES["parser.py"][: FILES["parser.py"].index("    result = 0")]
    assert seen["rewritten"]["text"] == f"{head}    return sum(numbers)\n"
    assert seen["cancelled"]["status"].startswith("cancelled, ")
    assert [finish for finish, _ in await scene.replies()] == ["complete", "complete", "cancelled"]


async def test_the_file_compiles_without_a_warning(editors: Editors, scene: Scene, tmp_path: Path) -> None:
    copy = tmp_path / "qmlx.el"
    copy.write_text((REPOSITORY / "editors" / "emacs" / "qmlx.el").read_text(encoding="utf-8"), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        str(editors.path("emacs")), "--batch", "-l", "package", "--eval", COMPILE,
        env={**scene.env(), "EL": str(copy)}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, err = await asyncio.wait_for(process.communicate(), 60)
    assert copy.with_suffix(".elc").exists(), err.decode()
