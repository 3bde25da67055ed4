"""What happens on the disk of a real folder, as the model hears of it: saves, renames, branch switches, once each."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from qmlx_lsp.transcript.entry import Kind
from tests.support.bench import Bench, bench, quick
from tests.support.fake_editor import InMemory, edit, initialize_params
from tests.support.waiting import until

TEXT = "".join(f"line number {n}\n" for n in range(30))


@pytest.fixture
async def b(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path, quick(watch={"step_ms": 10})) as made:
        yield made


async def working(b: Bench, client: str = "neovim-0.12") -> InMemory:
    """An editor that has told a.py and b.py and watches the folder."""
    for name in ("a.py", "b.py"):
        (b.project / name).write_text(TEXT)
    editor = InMemory(b.app)
    await editor.initialize(initialize_params(client, b.project))
    editor.open(b.project / "b.py", TEXT)
    await b.pause()
    await b.ask("@a.py")
    await watched(b)
    return editor


def told(b: Bench) -> list[str]:
    return [entry.text for entry in b.entries() if entry.kind is Kind.CONTEXT]


async def watched(b: Bench) -> None:
    """The first look at the disk is over."""
    project = b.app.registry.project(b.project)
    await until(lambda: bool((project.status() or {}).get("ready")))


def waits(b: Bench) -> int:
    return len(b.pauses.seconds)


async def happened(b: Bench, act: Callable[[], object]) -> None:
    """``act``, the watcher's notice of it, and the pause after it."""
    before = waits(b)
    act()
    await until(lambda: waits(b) > before)
    await b.pause()


def in_place(file: Path, text: str) -> None:
    file.write_text(text)


def renamed_over(file: Path, text: str) -> None:
    temporary = file.with_name(f"{file.name}.tmp")
    temporary.write_text(text)
    temporary.rename(file)


def as_vim(file: Path, text: str) -> None:
    file.with_name("4913").write_text("")
    file.with_name("4913").unlink()
    backup = file.rename(file.with_name(f"{file.name}~"))
    file.write_text(text)
    backup.unlink()


def anew(file: Path, text: str) -> None:
    file.unlink()
    file.write_text(text)


@pytest.mark.parametrize("save", [in_place, renamed_over, as_vim, anew])
async def test_three_saves_of_any_style_are_three_differences_in_order(
    b: Bench, save: Callable[[Path, str], None]
) -> None:
    editor = await working(b)
    before = len(told(b))
    for number in range(3):
        await happened(b, lambda number=number: save(b.project / "a.py", TEXT + f"save {number}\n"))  # type: ignore[misc]
    news = told(b)[before:]
    assert [text.split("\n")[0] for text in news] == ["Change in a.py:"] * 3
    for number, text in enumerate(news):
        assert f"+save {number}\n" in text
    assert not [name for name in ("tmp", "4913", "~") if name in "".join(told(b))]
    assert await editor.leave()


async def test_the_same_bytes_again_are_nothing(b: Bench) -> None:
    editor = await working(b)
    before = told(b)
    await happened(b, lambda: anew(b.project / "a.py", TEXT))
    await happened(b, lambda: (b.project / "a.py").touch())
    assert told(b) == before
    assert await editor.leave()


async def test_our_own_save_its_echo_and_the_reload_are_one_difference(b: Bench) -> None:
    editor = await working(b)
    file, before = b.project / "b.py", len(told(b))
    editor.change(file, 2, edit(3, 0, 4, "LINE"))
    await b.pause()
    assert len(told(b)) == before + 1
    new = TEXT.replace("line number 3\n", "LINE number 3\n")
    await happened(b, lambda: file.write_text(new))
    watched = {"changes": [{"uri": file.as_uri(), "type": 2}]}
    editor.notify("workspace/didChangeWatchedFiles", watched)
    editor.notify("textDocument/didSave", {"textDocument": {"uri": file.as_uri()}})
    editor.change(file, 3, {"text": new})
    await b.pause()
    assert len(told(b)) == before + 1
    editor.close_file(file)
    await b.pause()
    assert len(told(b)) == before + 1
    await happened(b, lambda: file.write_text(new.replace("number 9", "number nine")))
    assert len(told(b)) == before + 2
    assert "-line number 9\n+line number nine\n" in told(b)[-1]
    assert await editor.leave()


async def test_an_open_buffer_wins_over_the_disk(b: Bench) -> None:
    editor = await working(b)
    before = told(b)
    await happened(b, lambda: (b.project / "b.py").write_text("the disk says otherwise\n"))
    assert told(b) == before
    editor.close_file(b.project / "b.py")
    await b.pause()
    assert "the disk says otherwise" in told(b)[-1]
    assert await editor.leave()


async def test_a_move_to_another_folder_is_one_line(b: Bench) -> None:
    editor = await working(b)
    before = len(told(b))
    (b.project / "lib").mkdir()
    await happened(b, lambda: (b.project / "a.py").rename(b.project / "lib" / "z.py"))
    assert told(b)[before:] == ["File a.py was renamed to lib/z.py.\n"]
    assert await editor.leave()


async def test_a_file_found_by_its_last_name(b: Bench) -> None:
    editor = await working(b)
    for folder in ("x", "y"):
        (b.project / folder).mkdir()
        (b.project / folder / "twice.py").write_text(TEXT)
    (b.project / "x" / "once.py").write_text("once\n")
    index = b.app.registry.project(b.project)
    await until(lambda: len(index.news().named("once.py")) == 1 and len(index.news().named("twice.py")) == 2)
    await editor.request("qmlx/ask", {"text": "See @once.py"})
    assert told(b)[-1] == "File x/once.py:\n```python\nonce\n```\n"
    _, message = await editor.refused("qmlx/ask", {"text": "See @twice.py"})
    assert message == "@twice.py may be x/twice.py, y/twice.py: write its whole path."
    assert await editor.leave()


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *arguments],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip


async def test_a_branch_switch_is_one_bounded_summary(tmp_path: Path) -> None:
    async with bench(tmp_path, quick(watch={"step_ms": 10}, context={"changes_max": 5})) as b:
        editor = await working(b)
        git(b.project, "init", "-q", "-b", "main")
        for number in range(300):
            file = b.project / f"pkg{number % 7}" / f"m{number}.py"
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"old {number}\n" + TEXT)
        for number in range(12):  # some of them are known to the model
            await b.ask(f"@pkg{number % 7}/m{number}.py")
        git(b.project, "add", ".")
        git(b.project, "commit", "-qm", "one")
        git(b.project, "checkout", "-qb", "feature/x")
        for number in range(300):
            (b.project / f"pkg{number % 7}" / f"m{number}.py").write_text(f"new {number}\n" + TEXT)
        git(b.project, "commit", "-qam", "two")
        git(b.project, "checkout", "-q", "main")
        project = b.app.registry.project(b.project)
        await until(lambda: project._watch is not None and project._watch.branch == "main")
        await b.ask("Before.")
        await b.pause()
        await b.ask("Before.")
        before = len(told(b))
        git(b.project, "checkout", "-q", "feature/x")
        watch = project._watch
        assert watch is not None
        await until(lambda: len(watch.pending.changes) >= 300 and watch.branch == "feature/x")
        await b.ask("After.")
        news = told(b)[before:]
        assert news[0].startswith("The branch is now feature/x.\nOn disk 29")
        assert "Files that you were shown and that have changed" in news[0]
        assert [text for text in news[1:] if not text.startswith("Change in pkg")] == []
        assert len(news) == 6
        assert sum(len(text) for text in news) < 5_000
        await b.ask("Again.")
        assert len(told(b)) == before + 6, told(b)[before + 6 :]
        rows = (await editor.request("qmlx/context", {}))["files"]
        assert {row["state"] for row in rows if row["path"].startswith("pkg")} == {"up to date", "out of date"}
        for row in rows:
            held = await editor.request("qmlx/context", {"file": row["path"]}) if row["current"] else None
            assert held is None or held["text"] == (b.project / row["path"]).read_text()
        assert await editor.leave()


async def test_what_is_written_over_and_over_is_told_once(tmp_path: Path) -> None:
    async with bench(tmp_path, quick(watch={"step_ms": 10, "burst_files": 3})) as b:
        editor = await working(b)
        watch = b.app.registry.project(b.project)._watch
        assert watch is not None
        expected = {f"made{number}.txt" for number in range(8)}

        def noticed() -> bool:
            changes = watch.pending.changes
            return expected <= changes.added | changes.changed

        for round_ in range(3):
            for number in range(8):
                (b.project / f"made{number}.txt").write_text(f"{round_} {number}\n")
            await until(noticed)
            await b.ask(f"Round {round_}")
        summaries = [text for text in told(b) if text.startswith("On disk 8 files changed")]
        assert len(summaries) == 1
        await b.ask("@made1.txt @made2.txt")
        for number in range(8):
            (b.project / f"made{number}.txt").write_text("again\n")
        await until(noticed)
        await b.ask("Last round.")
        assert len([text for text in told(b) if text.startswith("On disk")]) == 1
        assert [text.split("\n")[0] for text in told(b)[-2:]] == [
            "File made2.txt (new text):",
            "File made1.txt (new text):",
        ]
        assert await editor.leave()


async def test_the_disk_is_watched_while_somebody_works_there(b: Bench) -> None:
    project = b.app.registry.project(b.project)
    first = InMemory(b.app)
    await first.initialize(initialize_params("neovim-0.12", b.project))
    await first.request("qmlx/status")
    assert project.status() is None
    editor = await working(b)
    assert (project.status() or {})["state"] == "watching"
    first.open(b.project / "a.py", TEXT)
    await first.request("qmlx/status")
    assert await editor.leave()
    assert project.status() is not None
    folder = {"uri": b.project.as_uri(), "name": "p"}
    first.notify("workspace/didChangeWorkspaceFolders", {"event": {"added": [], "removed": [folder]}})
    await first.request("qmlx/status")
    assert project.status() is None
    assert await first.leave()


async def test_new_exclusions_are_the_watchers_too(b: Bench) -> None:
    editor = await working(b)
    project = b.app.registry.project(b.project)
    assert "b.py" not in project.excluded
    editor.notify("workspace/didChangeConfiguration", {"settings": {"qmlx": {"exclude": ["b.py"]}}})
    await editor.request("qmlx/status")
    await watched(b)
    await until(lambda: project.excluded.get("b.py") == "exclude")
    rows = {row["path"]: row for row in (await editor.request("qmlx/context", {}))["files"]}
    assert rows["b.py"]["excluded"] == "exclude"
    assert await editor.leave()
