"""The disk as it changes: real events for every style of saving, and what happens where events fail."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from qmlx_lsp.session.disk import Disk
from qmlx_lsp.session.eyes import FOLDERS_MAX, SMALL_MAX, Event, Eyes
from qmlx_lsp.session.pace import BROKEN_S, BURST_EVENTS, RETRY_S, VERIFY_S
from qmlx_lsp.session.rules import ignore_rules
from qmlx_lsp.session.watch import Pending, Watch, system_events
from qmlx_lsp.settings import Watch as Settings
from qmlx_lsp.workspace.changes import Changes
from tests.support.waiting import until

LINUX = sys.platform == "linux"


def made(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n", encoding="utf-8")


def changes(added: str = "", changed: str = "", removed: str = "") -> Changes:
    return Changes(frozenset(added.split()), frozenset(changed.split()), frozenset(removed.split()))


class Events:
    """A ``Look`` that a test speaks through. ``refuse`` is raised by every watcher to be made, ``broken`` by those
    that are."""

    def __init__(self) -> None:
        self.waiting: set[Event] = set()
        self.refuse: Exception | None = None
        self.broken: Exception | None = None
        self.made: list[list[str]] = []
        self.closed = 0

    def __call__(self, *folders: str, recursive: bool) -> Generator[set[Event], None, None]:
        if self.refuse:
            raise self.refuse
        self.made.append(sorted(folders))
        try:
            while True:
                if self.broken:
                    raise self.broken
                found, self.waiting = self.waiting, set()
                yield found
        finally:
            self.closed += 1


class Looked:
    """A ``Disk`` that is stepped by hand, with a clock that stands."""

    def __init__(
        self, root: Path, look: Callable[..., Generator[set[Event], None, None]], **settings: object
    ) -> None:
        self.now = 1_000.0
        self.said: list[str | None] = []
        self.disk = Disk(
            root, ignore_rules(root), replace(Settings(), **settings), look, self.said.append,
            clock=lambda: self.now, cpu=lambda: 0.0, recursive=False,
        )  # fmt: skip
        self.disk.begin()

    def after(self, seconds: float) -> Changes:
        self.now += seconds
        return self.disk.step()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = Path(os.path.realpath(tmp_path)) / "project"
    made(folder, "a.py", "src/b.py", "src/deep/c.py", "node_modules/x/index.js", "out/o.txt")
    made(folder, ".git/HEAD", ".git/info/exclude")
    (folder / ".git/HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    (folder / ".git/info/exclude").write_text("", encoding="utf-8")
    (folder / ".gitignore").write_text("/out/\n", encoding="utf-8")
    return folder


# --- the thread and the event loop ----------------------------------------------------------------------------------


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
        assert here.watch.index.renamed(expected) == {"src/b.py": "lib/b.py", "src/deep/c.py": "lib/deep/c.py"}
        here.watch.told(here.watch.pending)
        (root / "lib/deep/c.py").write_text("moved", encoding="utf-8")
        await here.hears(changes(changed="lib/deep/c.py"))


async def test_ignore_files_hold_from_the_moment_they_are_saved(root: Path) -> None:
    async with watched(root) as here:
        (root / ".gitignore").write_text("/src/deep/\n", encoding="utf-8")
        await here.hears(changes(added="out/o.txt", changed=".gitignore", removed="src/deep/c.py"))
        assert here.watch.excluded["src/deep/"] == ".gitignore"
        made(root, "out/p.txt")
        await here.hears(changes(added="out/p.txt"))
        (root / ".git/info/exclude").write_text("p.txt\n", encoding="utf-8")
        await here.hears(changes(removed="out/p.txt"))


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


# --- where events fail ----------------------------------------------------------------------------------------------


def test_what_happens_while_watchers_are_made_is_found_by_the_first_step(root: Path) -> None:
    def late(*folders: str, recursive: bool) -> Generator[set[Event], None, None]:
        made(root, "src/late.py")
        return Events()(*folders, recursive=recursive)

    here = Looked(root, late)
    assert here.disk.state == "watching"
    assert here.disk.wait_s == 0.0
    assert here.disk.step() == changes(added="src/late.py")
    assert here.disk.step() == Changes()


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "raise fs.inotify.max_user_watches"),
        (OSError("OS file watch limit reached. about [\"/x\"]"), "raise fs.inotify.max_user_watches"),
        (RuntimeError("Error creating recommended watcher: Too many open files (os error 24)"), "max_user_instances"),
        (RuntimeError("no events here"), "no events here"),
    ],
)  # fmt: skip
def test_without_watches_the_disk_is_polled_and_that_is_said_once(root: Path, error: Exception, remedy: str) -> None:
    events = Events()
    events.refuse = error
    here = Looked(root, events, poll_s=7.0)
    assert here.disk.state == "polling"
    assert remedy in here.disk.reason
    assert len(here.said) == 1
    assert remedy in (here.said[0] or "")
    made(root, "n.py")
    assert here.after(6.9) == Changes()
    assert here.after(0.2) == changes(added="n.py")
    assert here.disk.wait_s == 7.0
    events.refuse = None
    here.after(RETRY_S - 20)
    assert here.disk.state == "polling"
    here.after(20)
    assert here.disk.state == "watching"
    assert here.said[1:] == [None]


def test_polling_costs_no_more_than_half_a_percent(root: Path) -> None:
    spent = iter(range(0, 1_000, 3))  # every look at everything takes three seconds of a core
    disk = Disk(
        root, ignore_rules(root), Settings(mode="poll"), Events(), lambda _: None,
        clock=lambda: 50.0, cpu=lambda: float(next(spent)), recursive=False,
    )  # fmt: skip
    disk.begin()
    assert (disk.state, disk.wait_s) == ("polling", 600.0)


def test_a_watcher_that_breaks_is_made_again_and_everything_looked_at(root: Path) -> None:
    events = Events()
    here = Looked(root, events)
    here.disk.step()
    events.broken = RuntimeError("boom")
    made(root, "n.py")
    here.now += BROKEN_S
    events.refuse = None
    found = _mended(here, events)
    assert found == changes(added="n.py")
    assert here.disk.state == "watching"
    assert here.said == [None, None]


def _mended(here: Looked, events: Events) -> Changes:
    """The step that meets the broken watcher; those made after it work."""
    made_before = len(events.made)
    close = here.disk._eyes.close

    def closing() -> None:
        events.broken = None
        close()

    here.disk._eyes.close = closing  # type: ignore[method-assign]
    found = here.disk.step()
    assert len(events.made) > made_before
    return found


def test_one_that_breaks_again_and_again_gives_way_to_polling_for_a_while(root: Path) -> None:
    events = Events()
    here = Looked(root, events, poll_s=5.0)
    here.disk.step()
    events.broken = RuntimeError("Unable to decode path")
    here.disk.step()
    events.broken = None
    assert here.disk.state == "polling"
    assert "Unable to decode path" in here.disk.reason
    made(root, "n.py")
    assert here.after(5.0) == changes(added="n.py")
    here.after(BROKEN_S)
    assert here.disk.state == "watching"


def test_folders_that_come_and_go_too_fast_are_no_reason_to_complain(root: Path) -> None:
    events = Events()
    events.refuse = OSError(errno.EAGAIN, "folders come and go too fast to be watched")
    here = Looked(root, events)
    assert (here.disk.state, here.said) == ("polling", [])
    events.refuse = None
    here.after(BROKEN_S)
    assert here.disk.state == "watching"


def test_events_that_were_lost_are_made_up_for(root: Path) -> None:
    here = Looked(root, Events())
    here.disk.step()
    made(root, "lost.py")
    assert here.after(VERIFY_S - 1) == Changes()
    assert here.after(1) == changes(added="lost.py")


def test_a_folder_whose_going_and_coming_was_not_heard_of_is_watched_again(root: Path) -> None:
    events = Events()
    here = Looked(root, events)
    here.disk.step()
    shutil.rmtree(root / "src/deep")
    assert here.after(VERIFY_S) == changes(removed="src/deep/c.py")
    made(root, "src/deep/c.py")
    assert here.after(VERIFY_S) == changes(added="src/deep/c.py")
    assert events.made[-1] == [f"{root}/src/deep"]


def test_very_many_events_lead_to_one_look_at_everything_once_it_is_quiet(root: Path) -> None:
    events = Events()
    here = Looked(root, events)
    here.disk.step()
    watchers = len(events.made)
    made(root, "n.py", "src/deep/m.py")
    events.waiting = {(2, f"{root}/src/{n}") for n in range(BURST_EVENTS + 1)}
    assert here.after(0.2) == Changes()
    assert here.disk.wait_s == 0.2
    assert here.after(0.2) == changes(added="n.py src/deep/m.py")
    assert len(events.made) > watchers  # of a folder that went and came the watch is dead


def test_a_burst_without_end_is_looked_at_nevertheless(root: Path) -> None:
    events = Events()
    here = Looked(root, events)
    here.disk.step()
    made(root, "n.py")
    found = []
    for _ in range(30):
        events.waiting = {(2, f"{root}/src/{n}") for n in range(BURST_EVENTS + 1)}
        found.append(here.after(0.2))
    assert [part for part in found if part] == [changes(added="n.py")]


def test_a_root_that_goes_is_no_news_and_one_that_comes_back_is_compared(root: Path) -> None:
    events = Events()
    here = Looked(root, events, poll_s=5.0)
    here.disk.step()
    root.rename(root.parent / "elsewhere")
    events.waiting = {(3, str(root))}
    assert here.disk.step() == Changes()
    assert here.disk.state == "polling"
    assert "not there" in here.disk.reason
    assert "a.py" in here.disk.index
    (root.parent / "elsewhere").rename(root)
    (root / "a.py").unlink()
    assert here.after(5.0) == changes(removed="a.py")
    assert (here.disk.state, here.disk.reason) == ("watching", "")


def test_a_root_that_is_not_there_yet(tmp_path: Path) -> None:
    here = Looked(tmp_path / "none", Events(), poll_s=5.0)
    assert (here.disk.state, len(here.disk.index)) == ("polling", 0)
    made(tmp_path / "none", "a.py")
    assert here.after(5.0) == changes(added="a.py")
    assert here.disk.state == "watching"


def test_too_many_files_are_not_watched_and_that_is_said(root: Path) -> None:
    events = Events()
    here = Looked(root, events, max_files=3)
    assert (here.disk.state, here.disk.wait_s, len(here.disk.index)) == ("off", None, 0)
    assert here.disk.reason.startswith(f"{root} has more than 3 files")
    assert here.said == [here.disk.reason]
    assert events.made == []


def test_rules_that_change_are_read_again_and_what_they_showed_or_hid_is_looked_at(root: Path) -> None:
    events = Events()
    here = Looked(root, events)
    here.disk.step()
    (root / ".gitignore").write_text("b.py\n", encoding="utf-8")
    events.waiting = {(2, f"{root}/.gitignore")}
    assert here.after(0.2) == changes(added="out/o.txt", changed=".gitignore", removed="src/b.py")
    assert events.made[-1] == [f"{root}/out"]
    made(root, "out/b.py", "out/p.txt")
    events.waiting = {(1, f"{root}/out/b.py"), (1, f"{root}/out/p.txt")}
    assert here.after(0.2) == changes(added="out/p.txt")


def test_looking_through_a_folder_again_counts_its_files_once(root: Path) -> None:
    events = Events()
    here = Looked(root, events, max_files=5)
    here.disk.step()
    (root / "src/.gitignore").write_text("x\n", encoding="utf-8")
    events.waiting = {(1, f"{root}/src/.gitignore")}
    assert here.after(0.2) == changes(added="src/.gitignore")
    assert (here.disk.state, len(here.disk.index)) == ("watching", 5)


def test_a_file_that_becomes_a_folder_and_back(root: Path) -> None:
    events = Events()
    here = Looked(root, events)
    here.disk.step()
    (root / "a.py").unlink()
    made(root, "a.py/b")
    events.waiting = {(1, f"{root}/a.py"), (3, f"{root}/a.py")}
    assert here.after(0.2) == changes(added="a.py/b", removed="a.py")
    shutil.rmtree(root / "a.py")
    made(root, "a.py")
    events.waiting = {(1, f"{root}/a.py")}
    assert here.after(0.2) == changes(added="a.py", removed="a.py/b")


def test_a_project_that_grows_too_large_is_not_watched_any_more(root: Path) -> None:
    events = Events()
    here = Looked(root, events, max_files=6)
    here.disk.step()
    made(root, "1.py", "2.py", "3.py")
    events.waiting = {(1, f"{root}/{n}.py") for n in (1, 2, 3)}
    here.after(0.2)
    assert here.disk.state == "off"
    assert events.closed == len(events.made)


@pytest.mark.parametrize(("mode", "state"), [("off", "off"), ("poll", "polling")])
def test_modes(root: Path, mode: str, state: str) -> None:
    events = Events()
    here = Looked(root, events, mode=mode)
    assert (here.disk.state, here.disk.reason) == (state, f"watch.mode is {mode}")
    assert (events.made, here.said) == ([], [])


def test_a_folder_that_cannot_be_looked_at_for_the_moment_keeps_its_files(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Looked(root, Events(), mode="poll")
    scandir = os.scandir

    def failing(path: str) -> object:
        if path.endswith("/src"):
            raise OSError(errno.EMFILE, "Too many open files")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", failing)
    (root / "a.py").unlink()
    assert here.after(5.0) == changes(removed="a.py")
    assert "src/deep/c.py" in here.disk.index


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_left_out(root: Path) -> None:
    (root / "src/deep").chmod(0)
    here = Looked(root, Events())
    (root / "src/deep").chmod(0o755)
    assert sorted(here.disk.index.paths()) == [".gitignore", "a.py", "src/b.py"]


def test_links_and_what_is_no_file_are_left_out(root: Path) -> None:
    (root / "link.py").symlink_to(root / "a.py")
    (root / "loop").symlink_to(root, target_is_directory=True)
    os.mkfifo(root / "pipe")
    here = Looked(root, Events())
    assert sorted(here.disk.index.paths()) == [".gitignore", "a.py", "src/b.py", "src/deep/c.py"]


async def test_where_one_watcher_sees_all_below_the_root_the_rest_is_as_usual(root: Path) -> None:
    """As on macOS, whose events come for node_modules and .git as well."""
    disk = Disk(root, ignore_rules(root), Settings(), system_events, lambda _: None, recursive=True)
    disk.begin()
    net = Changes()

    def stepped(expected: Changes) -> bool:
        nonlocal net
        net = net.merge(disk.step())
        return net == expected

    made(root, *(f"node_modules/y/{n}.js" for n in range(BURST_EVENTS + 9)), ".git/index.lock", ".env")
    made(root, "new/er/a.py")
    (root / ".git/HEAD").write_text("ref: refs/heads/x\n", encoding="utf-8")
    await until(lambda: stepped(changes(added="new/er/a.py")) and disk.branch == "x")
    (root / "new/er/a.py").write_text("", encoding="utf-8")
    shutil.rmtree(root / "src/deep")
    await until(lambda: stepped(changes(added="new/er/a.py", removed="src/deep/c.py")))
    disk.close()


# --- many watchers as one -------------------------------------------------------------------------------------------


def test_folders_are_spread_over_watchers_of_a_bounded_size() -> None:
    events = Events()
    eyes = Eyes(events, recursive=False)
    folders = [f"/p/{n:05}" for n in range(2 * FOLDERS_MAX + 1)]
    eyes.open(folders)
    assert [len(part) for part in events.made] == [FOLDERS_MAX, FOLDERS_MAX, 1]
    assert [name for part in events.made for name in part] == folders
    eyes.close()
    assert events.closed == 3


def test_small_watchers_are_put_together() -> None:
    events = Events()
    eyes = Eyes(events, recursive=False)
    eyes.open(["/p"])
    for n in range(SMALL_MAX + 1):
        events.waiting = {(1, f"/p/{n}")}
        eyes.also([f"/p/{n}"])
    assert len(eyes) == 2
    assert events.made[-1] == [f"/p/{n}" for n in range(SMALL_MAX + 1)]
    assert eyes.events() == {(1, f"/p/{n}") for n in range(SMALL_MAX + 1)}
    eyes.close()
    assert events.closed == len(events.made)


def test_watchers_that_cannot_be_made_leave_the_old_ones() -> None:
    events = Events()
    eyes = Eyes(events, recursive=False)
    eyes.open(["/p"])
    events.refuse = OSError(errno.ENOSPC, "")
    with pytest.raises(OSError, match="28"):
        eyes.open(["/q"])
    events.waiting = {(1, "/p/x")}
    assert eyes.events() == {(1, "/p/x")}
    eyes.close()


def test_a_folder_that_went_before_it_could_be_watched_is_left_out(root: Path) -> None:
    eyes = Eyes(system_events, recursive=False)
    eyes.open([str(root / "src"), str(root / "gone")])
    eyes.also([str(root / "gone too")])
    assert len(eyes) == 2
    eyes.close()
