"""Bug 1: a byte that changes early voids everything behind it. Which changes of a client make a server read again?

Before each change the conversation goes on unchanged, so that whatever a server keeps, it has the newest; the changed
request is then compared with that turn.
"""

from __future__ import annotations

from benchmarks.cachecheck.conversation import Change, Conversation, Impossible, NotTested, Refused, Turn
from benchmarks.cachecheck.run import Control, Run
from benchmarks.cachecheck.verdict import Bug, Ruling, Verdict

PLAIN = (
    Change.REPEAT,
    Change.FIELDS,
    Change.REASONING_SENT,
    Change.REASONING_DROPPED,
    Change.BLANK,
    Change.DATE,
    Change.EARLY_EDIT,
)
WITH_TOOLS = (Change.CALL_IDS, Change.CALL_ARGUMENTS, Change.TOOL_ORDER)
GOES_ON = "with tools, goes on"


def findings(run: Run, control: Control) -> None:
    for change in PLAIN:
        before = run.ask(control.conversation, change.value, "unchanged")
        _changed(run, control, control.conversation, change, before)
    _with_tools(run, control)


def _changed(run: Run, control: Control, conversation: Conversation, change: Change, before: Turn) -> None:
    try:
        turn = conversation.changed(run.question(), change, max_tokens=run.options.max_tokens)
    except (Impossible, NotTested, Refused) as error:
        run.found(Bug.STABILITY, change.value, not_done(error))
        return
    run.note(change.value, "changed", turn)
    run.found(Bug.STABILITY, change.value, control.unless_broken(run.continued(turn, before)), turn, before)


def not_done(error: Exception) -> Ruling:
    verdict = Verdict.IMPOSSIBLE if isinstance(error, Impossible) else Verdict.UNKNOWN
    return Ruling(verdict, str(error))


def _with_tools(run: Run, control: Control) -> None:
    names = (GOES_ON, *(change.value for change in WITH_TOOLS))
    try:
        conversation, _ = run.begin(GOES_ON, "tools", tools=True)
        shown = _tools_are_shown(run, conversation)
    except (Impossible, NotTested, Refused) as error:
        for name in names:
            run.found(Bug.STABILITY, name, not_done(error))
        return
    if not shown:
        for name in names:
            sentence = "the model's template does not show tools, so nothing was tested"
            run.found(Bug.STABILITY, name, Ruling(Verdict.UNKNOWN, sentence))
        return
    before = run.ask(conversation, GOES_ON, "unchanged")
    after = run.ask(conversation, GOES_ON, "follow-up")
    run.found(Bug.STABILITY, GOES_ON, control.unless_broken(run.continued(after, before)), after, before)
    for change in WITH_TOOLS:
        before = run.ask(conversation, change.value, "unchanged")
        _changed(run, control, conversation, change, before)


def _tools_are_shown(run: Run, conversation: Conversation) -> bool:
    """Whether the prompt is shorter without them; true where that cannot be seen."""
    question, tokens = run.question(), run.options.max_tokens
    without = conversation.changed(question, Change.NO_TOOLS, max_tokens=tokens)
    run.note(GOES_ON, "without tools", without)
    shown = run.ask(conversation, GOES_ON, "with tools", question)
    return without.prompt is None or shown.prompt is None or shown.prompt > without.prompt
