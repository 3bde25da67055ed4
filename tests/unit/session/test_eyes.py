"""Many watchers as one."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from qmlx_lsp.session.eyes import FOLDERS_MAX, SMALL_MAX, Eyes
from qmlx_lsp.session.watch import system_events
from tests.support.disk import Events, root

__all__ = ["root"]


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
