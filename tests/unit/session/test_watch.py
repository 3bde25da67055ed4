"""The disk as it changes, beside the event loop: real events for every style of saving."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from qmlx_lsp.session.eyes import Event
from qmlx_lsp.session.pace import BURST_EVENTS
from qmlx_lsp.session.rules import ignore_rules
from qmlx_lsp.session.watch import Pending, Watch
from qmlx_lsp.settings import Watch as Settings
from qmlx_lsp.workspace.changes import Changes
from tests.support.disk import LINUX, Events, changes, made, root
from tests.support.waiting import until

__all__ = ["root"]


class Watched:
    def __init__(self, root: Path, **settings: object) -> None:
        self.heard: list[Changes] = []
        self.said: list[tuple[str, str | None]] = []
        about = replace(Settings(step_ms=10), **settings)
        self.watch = Watch(
            root, lambda: ignore_rules(root), about, self.heard.append, lambda *notice: self.said.append(notice)
        )

    async def hears(self, expected: Changes) -> None:
        """The net effect becomes this, and the index agrees with the disk; then it is told."""
        await until(lambda: self.watch.pending.changes == expected)
        self.watch.told(self.watch.pending)


@asynccontextmanager
async def watched(root: Path, **settings: object) -> AsyncIterator[Watched]:
    made_ = Watched(root, **settings)
    await made_.watch.start()
    try:
        await asyncio.wait_for(made_.watch.ready.wait(), 20)
        yield made_
    finally:
        await made_.watch.stop()


async def test_the_first_look_finds_what_is_not_excluded(root: Path) -> None:
    async with watched(root) as here:
        assert sorted(here.watch.index.paths()) == [".gitignore", "a.py", "src/b.py", "src/deep/c.py"]
        assert here.watch.excluded == {".git/": "folder", "node_modules/": "folder", "out/": ".gitignore"}
        assert (here.watch.state, here.watch.branch) == ("watching", "main")
    assert here.heard == []


async def test_a_file_written_in_place(root: Path) -> None:
    async with watched(root) as here:
        for text in ("one", "two", "three"):
            (root / "src/b.py").write_text(text, encoding="utf-8")
            await here.hears(changes(changed="src/b.py"))


async def test_a_file_renamed_over_another(root: Path) -> None:
    async with watched(root) as here:
        for text in ("one", "two", "three"):
            made(root, "a.py.tmp")
            (root / "a.py.tmp").write_text(text, encoding="utf-8")
            (root / "a.py.tmp").rename(root / "a.py")
            await here.hears(changes(changed="a.py"))
        assert all("a.py.tmp" not in path for part in here.heard for path in (*part.added, *part.removed))


async def test_a_save_as_vim_does_it(root: Path) -> None:
    async with watched(root) as here:
        for text in ("one", "two", "three"):
            made(root, "4913", ".a.py.swp")
            (root / "4913").unlink()
            (root / "a.py").rename(root / "a.py~")
            (root / "a.py").write_text(text, encoding="utf-8")
            (root / "a.py~").unlink()
            await here.hears(changes(changed="a.py"))
        assert {path for part in here.heard for path in (*part.added, *part.changed)} == {"a.py"}


async def test_a_file_deleted_and_made_again_is_changed_and_nothing_else(root: Path) -> None:
    async with watched(root) as here:
        (root / "a.py").unlink()
        await until(lambda: here.watch.pending.changes == changes(removed="a.py"))
        made(root, "a.py")
        await here.hears(changes(changed="a.py"))


async def test_folders_that_are_new_are_watched_with_all_below(root: Path) -> None:
    async with watched(root) as here:
        made(root, "new/er/est/d.py")
        await here.hears(changes(added="new/er/est/d.py"))
        made(root, "new/er/est/e.py")
        await here.hears(changes(added="new/er/est/e.py"))
        shutil.rmtree(root / "new")
        await here.hears(changes(removed="new/er/est/d.py new/er/est/e.py"))
        made(root, "new/er/est/d.py")  # its watch went with it
        await here.hears(changes(added="new/er/est/d.py"))
        (root / "new/er/est/d.py").write_text("again", encoding="utf-8")
        await here.hears(changes(changed="new/er/est/d.py"))


async def test_a_folder_that_is_moved_takes_its_files_along(root: Path) -> None:
    async with watched(root) as here:
        (root / "src").rename(root / "lib")
        expected = changes(added="lib/b.py lib/deep/c.py", removed="src/b.py src/deep/c.py")
        await until(lambda: here.watch.pending.changes == expected)
        here.watch.told(here.watch.pending)
        (root / "lib/deep/c.py").write_text("moved", encoding="utf-8")
        await here.hears(changes(changed="lib/deep/c.py"))


async def test_ignore_files_hold_from_the_moment_they_are_saved(root: Path) -> None:
    async with watched(root) as here:
        # Renamed into its place: written there, it would be empty for a moment, and hide nothing.
        saved = root.with_name("saved")
        saved.write_text("/src/deep/\n", encoding="utf-8")
        saved.replace(root / ".gitignore")
        await here.hears(changes(added="out/o.txt", changed=".gitignore"))  # what is hidden now was not removed
        assert here.watch.excluded["src/deep/"] == ".gitignore"
        made(root, "out/p.txt")
        await here.hears(changes(added="out/p.txt"))
        (root / ".git/info/exclude").write_text("p.txt\n", encoding="utf-8")
        await until(lambda: "out/p.txt" not in here.watch.index)


async def test_excluded_files_are_no_news(root: Path) -> None:
    async with watched(root) as here:
        made(root, ".env", "out/q.txt", "node_modules/y.js", "src/id_rsa", "src/x.swp", "a.py~")
        made(root, "src/last.py")
        await here.hears(changes(added="src/last.py"))
        assert {path for part in here.heard for path in part.added} == {"src/last.py"}
        assert here.watch.excluded["src/id_rsa"] == "secret"


async def test_a_branch_switch_is_named(root: Path) -> None:
    async with watched(root) as here:
        (root / ".git/HEAD.lock").write_text("ref: refs/heads/feature/x\n", encoding="utf-8")
        (root / ".git/HEAD.lock").rename(root / ".git/HEAD")
        await until(lambda: here.watch.branch == "feature/x")
        (root / ".git/HEAD").write_text("0123456789abcdef0123456789abcdef01234567\n", encoding="utf-8")
        await until(lambda: here.watch.branch is None)


async def test_a_linked_work_tree_has_its_own_branch(root: Path, tmp_path: Path) -> None:
    linked = root.parent / "linked"
    made(root, ".git/worktrees/linked/HEAD")
    made(linked, "a.py")
    (linked / ".git").write_text(f"gitdir: {root}/.git/worktrees/linked\n", encoding="utf-8")
    head = root / ".git/worktrees/linked/HEAD"
    head.write_text("ref: refs/heads/one\n", encoding="utf-8")
    async with watched(linked) as here:
        assert here.watch.branch == "one"
        head.write_text("ref: refs/heads/two\n", encoding="utf-8")
        await until(lambda: here.watch.branch == "two")


@pytest.mark.skipif(not LINUX, reason="file names of macOS are text")
async def test_a_name_that_is_no_text_does_not_end_the_watching(root: Path) -> None:
    async with watched(root, poll_s=0.1) as here:
        (root / os.fsdecode(b"b\xff.py")).write_text("x", encoding="utf-8")
        await here.hears(Changes(frozenset({os.fsdecode(b"b\xff.py")})))
        made(root, "src/n.py")
        await here.hears(changes(added="src/n.py"))


async def test_what_is_pending_stays_until_it_was_told(root: Path) -> None:
    async with watched(root) as here:
        made(root, "one.py")
        await until(lambda: here.watch.pending.changes == changes(added="one.py"))
        first = here.watch.pending
        made(root, "two.py")
        await until(lambda: here.watch.pending.changes == changes(added="one.py two.py"))
        second = here.watch.pending
        here.watch.told(first)
        (root / "one.py").unlink()
        await until(lambda: here.watch.pending.changes == changes(added="two.py", removed="one.py"))
        here.watch.told(second)
        assert here.watch.pending.changes == changes(removed="one.py")


async def test_stop_ends_the_thread_and_may_come_at_any_time(root: Path) -> None:
    here = Watched(root)
    await here.watch.stop()
    async with watched(root) as running:
        pass
    assert not running.watch._thread.is_alive()
    assert running.watch.pending == Pending(Changes(), 0)


async def test_a_burst_is_looked_at_as_a_whole(root: Path) -> None:
    async with watched(root) as here:
        names = [f"gen/d{n % 20}/f{n}.py" for n in range(3 * BURST_EVENTS)]
        made(root, *names)
        await here.hears(Changes(frozenset(names)))
        made(root, "gen/d3/after.py")
        await here.hears(changes(added="gen/d3/after.py"))


async def test_a_root_that_is_moved_away_and_back(root: Path) -> None:
    async with watched(root, poll_s=0.1) as here:
        root.rename(root.parent / "elsewhere")
        await until(lambda: here.watch.state == "polling")
        (root.parent / "elsewhere").rename(root)
        await until(lambda: here.watch.state == "watching")
        made(root, "src/n.py")
        await here.hears(changes(added="src/n.py"))


async def test_polling_finds_what_events_would(root: Path) -> None:
    async with watched(root, mode="poll", poll_s=0.1) as here:
        made(root, "new/n.py")
        (root / "a.py").unlink()
        (root / "src/b.py").write_text("other", encoding="utf-8")
        await here.hears(changes(added="new/n.py", changed="src/b.py", removed="a.py"))


async def test_without_watches_the_editor_is_told_what_it_is_about(root: Path) -> None:
    events = Events()
    events.refuse = OSError(errno.ENOSPC, "No space left on device")
    said: list[tuple[str, str | None]] = []
    watch = Watch(
        root, lambda: ignore_rules(root), Settings(), lambda _: None, lambda *notice: said.append(notice), events
    )
    await watch.start()
    await asyncio.wait_for(watch.ready.wait(), 20)
    await watch.stop()
    assert [about for about, _ in said] == [f"the disk: {root}"]
    assert (said[0][1] or "").startswith(f"Changes in {root} are looked for now and then")


async def test_a_fault_of_ours_is_no_quiet_disk(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    def faulty(*folders: str, recursive: bool) -> Generator[set[Event], None, None]:
        raise KeyError(folders[0])

    said: list[str | None] = []
    watch = Watch(
        root, lambda: ignore_rules(root), Settings(), lambda _: None, lambda _, text: said.append(text), faulty
    )
    await watch.start()
    await asyncio.wait_for(watch.ready.wait(), 20)
    await watch.stop()
    assert (watch.state, watch.reason) == ("off", "a fault in qmlx-lsp: KeyError")
    assert len(said) == 1
    assert "looking at the disk failed" in caplog.text
