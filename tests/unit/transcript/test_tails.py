"""How a log ended at any position: where it can be gone on from, and where not."""

from datetime import date

from hypothesis import given
from hypothesis import strategies as st

from qmlx_lsp.engine.scripted import ScriptedBackend
from qmlx_lsp.session.model import prepare
from qmlx_lsp.transcript.entry import Finish, Kind
from qmlx_lsp.transcript.suffix import Place
from qmlx_lsp.transcript.transcript import Transcript


def renderer():
    info = ScriptedBackend().load("", lambda _done, _total, _what: None, lambda: False)
    return prepare(info, thinking=False, today=date.today).renderer


RENDERER = renderer()
STEPS = st.lists(st.sampled_from(["context", "question", "reply", "cut"]), max_size=6)


def told(steps):
    transcript = Transcript(RENDERER)
    tails = {0: transcript.tail}
    for step in ["system", *steps]:
        if step in ("reply", "cut"):
            if transcript.tail.place is not Place.ASKED:
                continue
            finish = Finish.COMPLETE if step == "reply" else Finish.CANCELLED
            entries = [transcript.reply(transcript.reply_header(), list(b"Yes."), finish, "Yes.")]
        else:
            kind = {"system": Kind.SYSTEM, "context": Kind.CONTEXT, "question": Kind.QUESTION}[step]
            entries = transcript.draft([(kind, f"{step} it is\n", None)])
        transcript.extend(entries)
        tails[len(transcript.log)] = transcript.tail
    return transcript, tails


@given(STEPS)
def test_at_the_end_of_every_entry_it_is_what_it_was_then(steps):
    transcript, tails = told(steps)
    for position, tail in tails.items():
        assert transcript.tail_at(position) == tail
    assert transcript.tail_at(len(transcript.log) + 1) is None
    assert transcript.tail_at(-1) is None


@given(STEPS)
def test_inside_an_entry_only_plain_text_of_an_open_turn_can_be_gone_on_from(steps):
    transcript, _ = told(steps)
    for entry in transcript.entries:
        for position in range(entry.start + 1, entry.end):
            tail = transcript.tail_at(position)
            behind = entry.ids[position - entry.start :]
            plain = entry.kind is Kind.CONTEXT and max(behind) < 256
            assert (tail is not None) == plain
            assert tail is None or tail.place is Place.OPEN
