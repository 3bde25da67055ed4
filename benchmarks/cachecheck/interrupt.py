"""Bug 2: what was interrupted is lost, or stands between the history and the state.

A reply is cut and the conversation goes on; beside it, a reply of the same length that was not cut. A prefill is cut
half-way, by the time that a cold one takes in the same run, and asked again: at once, and after a wait.
"""

from __future__ import annotations

from benchmarks.cachecheck import verdict
from benchmarks.cachecheck.context import snippet
from benchmarks.cachecheck.conversation import CUT
from benchmarks.cachecheck.run import FIRST, Control, Run
from benchmarks.cachecheck.verdict import Bug, Ruling, Verdict

SNIPPET_CHARS = 400
"""Characters of code in a question, so that reading it again shows."""
REPLY_FACTOR = 4
"""A reply that is to be cut may be as much longer."""
CUT_SHARE = 0.5
WAIT_FACTOR = 2.0
"""Cold turns to wait before the request is repeated."""
PROMPT, REPLY = "reply cut: what stood before it", "reply cut: the reply"


def findings(run: Run, control: Control) -> None:
    _reply(run, control)
    _prefill(run, control, "prefill cut at 50 %, repeated at once", wait=False)
    _prefill(run, control, "prefill cut at 50 %, repeated after a wait", wait=True)


def _reply(run: Run, control: Control) -> None:
    after, seed = run.options.cut_after, run.options.seed
    conversation, _ = run.begin(PROMPT, "reply_cut")
    long = [
        f"Explain line by line:\n{snippet(f'snippet{n}_{run.options.tokens}', SNIPPET_CHARS, seed)}" for n in "ab"
    ]
    whole = run.ask(conversation, PROMPT, "reply not cut", long[0], max_tokens=after)
    behind = run.ask(conversation, PROMPT, "follow-up")
    uncut = run.continued(behind, whole)
    cut = run.ask(conversation, PROMPT, "reply cut", long[1], max_tokens=REPLY_FACTOR * after, cut_after=after)
    follow_up = run.ask(conversation, PROMPT, "follow-up to the cut reply")
    if cut.finish != CUT:
        for name in (PROMPT, REPLY):
            run.found(Bug.INTERRUPT, name, Ruling(Verdict.UNKNOWN, "the reply ended before it could be cut"))
        return
    cut = conversation.measured(cut, follow_up)
    run.note(PROMPT, "reply cut, measured afterwards", cut)
    for name, ruling in zip((PROMPT, REPLY), verdict.reply_cut(follow_up, cut, uncut, run.cold), strict=True):
        run.found(Bug.INTERRUPT, name, control.unless_broken(ruling), follow_up, cut)


def _prefill(run: Run, control: Control, name: str, *, wait: bool) -> None:
    cold = run.cold_turn
    if cold is None or cold.ttft_s is None:
        run.found(Bug.INTERRUPT, name, Ruling(Verdict.UNKNOWN, "no cold turn had a first token"))
        return
    conversation = run.new("prefill_wait" if wait else "prefill_once")
    cut = run.ask(conversation, name, "cut", FIRST, cut_prefill_at=CUT_SHARE * cold.ttft_s)
    if wait:
        run.sleep(WAIT_FACTOR * cold.ttft_s)
    again = run.ask(conversation, name, "again", FIRST)
    ruling = verdict.prefill_cut(cut, again, cold, run.cold)
    run.found(Bug.INTERRUPT, name, control.unless_broken(ruling), again)
