"""What events mean, and what happens where they fail."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from qmlx_lsp.session.disk import Disk
from qmlx_lsp.session.eyes import Event
from qmlx_lsp.session.pace import BROKEN_S, BURST_EVENTS, RETRY_S, VERIFY_S
from qmlx_lsp.session.rules import ignore_rules
from qmlx_lsp.session.watch import system_events
from qmlx_lsp.settings import Watch as Settings
from qmlx_lsp.workspace.changes import Changes
from tests.support.disk import Events, Looked, changes, made, root
from tests.support.waiting import until

__all__ = ["root"]


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
    assert here.after(0.2) == changes(added="out/o.txt", changed=".gitignore")
    assert "src/b.py" not in here.disk.index
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
