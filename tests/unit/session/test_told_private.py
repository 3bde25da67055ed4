"""What is private is not told, whatever leads to it and whenever it became so."""

from __future__ import annotations

import pytest

from qmlx_lsp.errors import QuestionError
from tests.support.bench import Bench
from tests.support.telling import editor_of, told, write


async def test_a_link_is_as_private_as_what_it_leads_to(b: Bench) -> None:
    write(b, ".gitignore", "hidden/\n*.log\n")
    write(b, ".env", "canary")
    write(b, "hidden/x.py", "canary")
    write(b, "out.log", "canary")
    outside = b.project.parent / ".ssh" / "id_rsa"
    outside.parent.mkdir()
    outside.write_text("canary")
    shared = b.project.parent / "shared.py"
    shared.write_text("fine\n")
    links = {"env.py": ".env", "h.py": "hidden/x.py", "log.py": "out.log", "key.py": str(outside)}
    for name, target in links.items():
        (b.project / name).symlink_to(target)
    (b.project / "folder").symlink_to("hidden", target_is_directory=True)
    (b.project / "shared.py").symlink_to(shared)
    editor = await editor_of(b)
    for name in [*links, "folder/x.py"]:
        with pytest.raises(QuestionError, match="private"):
            await b.ask("Q", path=str(b.project / name))
        with pytest.raises(QuestionError, match="private"):
            await b.ask(f"@{name}")
        editor.open(b.project / name, "canary")
    await editor.request("qmlx/ask", {"text": "Q"})
    await b.pause()
    assert "canary" not in "".join(entry.text for entry in b.entries())
    await b.ask("Q", path=str(b.project / "shared.py"))
    assert told(b) == ["File shared.py:\n```python\nfine\n```\n"]
    assert await editor.leave()


async def test_what_becomes_private_is_told_no_more(b: Bench) -> None:
    file = write(b, "a.py", "public\n")
    await b.ask("Q", path=str(file))
    write(b, ".qmlxignore", "a.py\n")
    write(b, "a.py", "canary\n")
    await b.ask("Now?")
    assert "canary" not in "".join(entry.text for entry in b.entries())
    (b.project / ".qmlxignore").unlink()
    await b.ask("Now?")
    assert "canary" in told(b)[-1]
