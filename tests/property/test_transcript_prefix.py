"""Random conversations: what was said before is never touched, and the log is well formed after every step."""

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from qmlx_lsp.engine.scripted_tokenizer import CONTROL, END_OF_TURN, tokenizer_json
from qmlx_lsp.transcript.encoder import Codec
from qmlx_lsp.transcript.entry import Finish, Kind
from qmlx_lsp.transcript.families import FAMILIES
from qmlx_lsp.transcript.fragments import Marks, derive
from qmlx_lsp.transcript.suffix import Place, Renderer
from qmlx_lsp.transcript.template import JinjaTemplate
from qmlx_lsp.transcript.tokens import TokenLog
from qmlx_lsp.transcript.transcript import Transcript
from tests.support import templates
from tests.support.small_tokenizers import with_marks
from tests.support.templates import CALL, NAMED, TAG_TEMPLATE, WITH_TOOLS

CODEC = Codec("m", tokenizer_json())
EOS = frozenset({END_OF_TURN, 256})
RENDERERS = [
    Renderer(derive("m", template, CODEC, EOS, thinking=True, marks=Marks(("<think>", "</think>"))), CODEC, EOS)
    for template in (templates.ChatMl(), templates.Thinking())
]
TAGS = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")
HEADS = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>")


def other(template: str, marks: tuple[str, ...], stops: tuple[str, ...]) -> Renderer:
    codec = with_marks(*marks)
    eos = frozenset(token for stop in stops if (token := codec.control(stop)) is not None)
    made = derive("m", JinjaTemplate("m", template, {}), codec, eos, thinking=False, marks=Marks(call=CALL))
    return Renderer(made, codec, eos)


# Templates with tool roles, channels and tags; a model of any of them may say anything.
OTHERS = [
    other(WITH_TOOLS, CALL, ("<|im_end|>",)),
    other(NAMED, CALL, ("<|im_end|>",)),
    other(FAMILIES["Harmony"][1], HEADS, ("<|return|>", "<|call|>")),
    other(TAG_TEMPLATE, TAGS, ("<|end_of_msg|>",)),
]
TEXT = st.lists(st.text(st.characters(), max_size=12) | st.sampled_from(CONTROL), max_size=5).map("".join)
HEADED = TEXT.map(lambda text: f"File a.py:\n{text}\n")
# Ids as a model could produce them: any text, cut characters, thinking marks; end tokens only as the last one.
SAID = st.lists(st.integers(0, 255) | st.sampled_from([259, 260]), min_size=1, max_size=20)
REPLY = st.one_of(
    st.tuples(
        st.just(Finish.COMPLETE), st.builds(lambda said, eos: [*said, eos], SAID, st.sampled_from(sorted(EOS)))
    ),
    st.tuples(st.sampled_from([Finish.CANCELLED, Finish.LENGTH, Finish.ERROR]), SAID),
    st.tuples(st.just(Finish.CANCELLED), st.just([])),  # withdrawn before the first token
)
STEP = st.one_of(
    st.tuples(st.just(Kind.CONTEXT), HEADED),
    st.tuples(st.just(Kind.QUESTION), TEXT),
    st.tuples(st.just(Kind.ASSISTANT), REPLY),
)


def apply(transcript: Transcript, step) -> None:
    kind, what = step
    if kind is not Kind.ASSISTANT:
        transcript.extend(transcript.draft([(kind, what, "a.py" if kind is Kind.CONTEXT else None)]))
        return
    finish, generated = what
    if transcript.tail.place is Place.ASKED and generated:
        transcript.extend([transcript.reply(transcript.reply_header(), generated, finish, "")])


ANY_REPLY = st.lists(st.integers(0, 255) | st.integers(256, 268), min_size=1, max_size=12)
ANY_STEP = st.one_of(
    st.tuples(st.just("context"), HEADED),
    st.tuples(st.just("question"), TEXT),
    st.tuples(st.just("reply"), ANY_REPLY),
    st.tuples(st.just("result"), TEXT),
)


@settings(deadline=None, max_examples=120)
@given(st.sampled_from(OTHERS), st.lists(ANY_STEP, max_size=14))
def test_prefix_stability_whatever_a_model_says(renderer, steps):
    """Tools, channels and tags, closed or not, in any order: ids that were read never change, and each entry's text
    is found again in what it added."""
    transcript = Transcript(renderer)
    transcript.extend(transcript.draft([(Kind.SYSTEM, "S", None)]))
    for kind, what in steps:
        before, place = transcript.log.ids(), transcript.tail.place
        if kind == "reply":
            if place in (Place.ASKED, Place.TOLD):
                transcript.extend([transcript.reply(transcript.reply_header(), what, Finish.CANCELLED, "")])
                assert transcript.log.ids()[-len(what) :] == what
        elif kind == "result":
            with contextlib.suppress(ValueError):  # nothing has called
                transcript.extend([transcript.result("look", what)])
        else:
            kind_ = Kind.CONTEXT if kind == "context" else Kind.QUESTION
            (entry,) = transcript.draft([(kind_, what, None)])
            transcript.extend([entry])
            said = "".join("\ufffd" if 0xD800 <= ord(c) <= 0xDFFF else c for c in what)
            assert renderer.codec.decode(entry.ids).endswith(said)
        assert transcript.log.ids(0, len(before)) == before
    again = Transcript(renderer, transcript.entries)
    assert (again.log.ids(), again.tail) == (transcript.log.ids(), transcript.tail)


def turn_marks(transcript: Transcript) -> str:
    """The log's ``<|im_start|>`` and ``<|im_end|>`` tokens, as S and E."""
    return "".join({257: "S", 258: "E"}.get(token, "") for token in transcript.log.ids())


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(RENDERERS), TEXT, st.lists(STEP, max_size=12))
def test_prefix_stability(renderer, system, steps):
    transcript = Transcript(renderer)
    transcript.extend(transcript.draft([(Kind.SYSTEM, system, None)]))
    for step in steps:
        before = transcript.log.ids()
        digests = [transcript.log.digest(n) for n in range(0, len(before) + 1, 50)]
        entries = transcript.entries
        apply(transcript, step)
        assert transcript.log.ids(0, len(before)) == before
        assert transcript.entries[: len(entries)] == entries
        assert [transcript.log.digest(n) for n in range(0, len(before) + 1, 50)] == digests
    ids = transcript.log.ids()
    assert [token for entry in transcript.entries for token in entry.ids] == ids
    assert transcript.log.digest(len(ids)) == TokenLog(ids).digest(len(ids))
    again = Transcript(renderer, transcript.entries)
    assert (again.log.ids(), again.tail) == (ids, transcript.tail)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(RENDERERS), TEXT, st.lists(STEP, max_size=12))
def test_turns_open_and_close_in_pairs(renderer, system, steps):
    """Whatever the data and the model say, turns are started and ended in turn, and only by the template."""
    transcript = Transcript(renderer)
    transcript.extend(transcript.draft([(Kind.SYSTEM, system, None)]))
    for step in steps:
        apply(transcript, step)
        marks = turn_marks(transcript)
        closed = transcript.tail.place is Place.REPLIED and transcript.tail.reply[-1] == END_OF_TURN
        assert marks == "SE" * (len(marks) // 2) + ("" if closed else "S")
        replies = sum(entry.kind is Kind.ASSISTANT for entry in transcript.entries)
        assert CODEC.decode(transcript.log.ids()).count("<|im_start|>assistant\n") >= replies
        # system, then user and assistant in turn
        turns = 1 + 2 * replies + (0 if transcript.tail.place is Place.REPLIED else 1)
        assert marks.count("S") == turns


@settings(deadline=None, max_examples=60)
@given(st.lists(REPLY, min_size=1, max_size=4))
def test_generated_ids_stand_in_the_log_as_generated(replies):
    transcript = Transcript(RENDERERS[0])
    transcript.extend(transcript.draft([(Kind.SYSTEM, "s", None)]))
    for finish, generated in replies:
        apply(transcript, (Kind.QUESTION, "q"))
        start = len(transcript.log) + len(transcript.reply_header())
        apply(transcript, (Kind.ASSISTANT, (finish, generated)))
        assert transcript.log.ids(start) == generated
