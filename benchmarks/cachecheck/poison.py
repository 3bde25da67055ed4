"""Bug 3: what can never be used again crowds out what can.

A long conversation is left alone while others are served, and then goes on: behind many short ones, behind other
long ones, after a restart, and, where a quota can be set, after more was written than it holds.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.cachecheck.conversation import Conversation, Impossible, NotTested, Restart, Turn
from benchmarks.cachecheck.run import Control, Run
from benchmarks.cachecheck.stability import not_done
from benchmarks.cachecheck.verdict import Bug

CHAT = "Say one word about the number {number}."
QUOTA_SHARE = 0.5
"""Of what is on disk then."""


def findings(run: Run, control: Control) -> None:
    long = _Long(run, control)
    chats, others = run.options.chats, run.options.long_ones
    long.after(f"after {chats} short chats", lambda: _chats(run, "crowd", chats))
    long.after(f"after {others} other long ones", lambda: _others(run, others))
    long.after("after a restart", lambda: _restarted(run, Restart.ORDERLY))
    long.after("after kill -9", lambda: _restarted(run, Restart.KILL))
    long.after(f"quota of {QUOTA_SHARE:.0%} of what is stored, then kill -9", lambda: _quota(run, long))


class _Long:
    """The long conversation."""

    def __init__(self, run: Run, control: Control) -> None:
        self._run = run
        self._control = control
        self.conversation: Conversation
        self.conversation, self.last = run.begin("long conversation", "long")

    def after(self, name: str, happens: Callable[[], None]) -> None:
        self.goes_on(name, "before")
        try:
            happens()
        except (Impossible, NotTested) as error:
            self._run.found(Bug.POISON, name, not_done(error))
            return
        before = self.last
        turn = self.goes_on(name, "after")
        ruling = self._control.unless_broken(self._run.continued(turn, before))
        self._run.found(Bug.POISON, name, ruling, turn, before)

    def goes_on(self, name: str, step: str) -> Turn:
        self.last = self._run.ask(self.conversation, name, step)
        return self.last


def _chats(run: Run, name: str, count: int) -> None:
    for number in range(count):
        conversation = run.target.new(f"{name}_{run.options.tokens}_{number}", None)
        question = CHAT.format(number=run.options.seed + number)
        run.ask(conversation, f"short chats ({name})", str(number), question)


def _others(run: Run, count: int) -> None:
    for number in range(count):
        run.begin("other long ones", f"other_{number}")


def _restarted(run: Run, how: Restart, behind: str = "loaded") -> None:
    run.target.restart(how)
    _chats(run, f"{behind}_{how.name.lower()}", 1)  # whatever is loaded at the first request is loaded now


def _quota(run: Run, long: _Long) -> None:
    run.target.limit_store(QUOTA_SHARE)
    long.goes_on("quota", "under the quota")
    _chats(run, "quota", run.options.chats)
    _restarted(run, Restart.KILL, "quota")
