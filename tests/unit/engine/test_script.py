"""The scripted model with a script: which rule answers, at which pace, and what a bad file says."""

import json
import time

import pytest

from qmlx_lsp.engine.backend import Sampling
from qmlx_lsp.engine.script import Script
from qmlx_lsp.engine.scripted import ScriptedBackend
from qmlx_lsp.engine.scripted_tokenizer import CONTROL, END_OF_TURN, START_OF_TURN, parts
from qmlx_lsp.errors import ModelError

RULES = [
    {"when": "loop", "say": "It walks the list.", "pace_ms": 10},
    {"line": "return total\n    # done"},
    {"when": "walks", "say": "never, for the first rule that fits answers"},
]


def turn(role, text, *, ended=True):
    return [START_OF_TURN, *f"{role}\n{text}".encode(), *([END_OF_TURN, *b"\n"] if ended else [])]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"rules": RULES}))
    return path


def said(backend, *turns):
    """What the backend writes after ``turns``; the last one is the head of its reply."""
    state = backend.new_state()
    *before, head = turns
    backend.prefill(state, [token for turn in before for token in turn])
    ids = list(backend.decode(state, head, Sampling(), 1000, frozenset()))
    return bytes(token for token in ids if token < 256).decode()


def test_parts_are_the_last_message_and_what_is_begun_of_the_reply():
    ids = [*turn("system", "S"), *turn("user", "two\nlines é"), *turn("assistant", "def f", ended=False)]
    assert parts(ids) == ("two\nlines é\n", "def f")
    assert parts(turn("assistant", "", ended=False)) == ("", "")
    assert parts([]) == ("", "")
    assert CONTROL[START_OF_TURN - 256] == "<|im_start|>"


def test_the_first_rule_that_fits_the_question_answers(file):
    backend = ScriptedBackend(script=Script(file))
    head = turn("assistant", "", ended=False)
    assert said(backend, turn("user", "the loop walks"), head) == "It walks the list."
    assert said(backend, turn("user", "and this?"), head).startswith("I have read ")
    assert said(backend, turn("user", "loop"), turn("assistant", "x"), turn("user", "more?"), head)[:6] == "I have"


def test_a_place_in_code_is_completed_from_its_line_or_not_at_all(file):
    backend = ScriptedBackend(script=Script(file))
    asked = turn("user", "the loop")
    assert said(backend, asked, turn("assistant", "def f():\n    ret", ended=False)) == "urn total\n    # done"
    assert said(backend, asked, turn("assistant", "def f():\n    raise", ended=False)) == ""
    assert said(backend, asked, turn("assistant", "def f():\n    ", ended=False)) == ""
    assert said(backend.companion(), asked, turn("assistant", "return", ended=False)) == " total\n    # done"


def test_a_pace_is_kept_while_a_completion_comes_between(file, monkeypatch):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    backend = ScriptedBackend(script=Script(file))
    state = backend.new_state()
    backend.prefill(state, turn("user", "the loop"))
    mark = backend.mark(state)
    writing = backend.decode(state, turn("assistant", "", ended=False), Sampling(), 1000, frozenset())
    next(writing)
    lifted = backend.lift(state, mark, copy=True)
    list(backend.decode(state, turn("assistant", "ret", ended=False), Sampling(), 5, frozenset()))
    backend.rewind(state, mark)
    assert backend.lay(state, lifted)
    slept.clear()
    next(writing)
    assert slept == [0.01]


def test_a_script_is_read_again_when_it_has_changed(file):
    script = Script(file)
    assert script.reply("a loop", "").text == "It walks the list."
    file.write_text(
        json.dumps({"rules": [{"when": "loop", "say": "Changed, and longer than it was before, by far."}]})
    )
    assert script.reply("a loop", "").text.startswith("Changed")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"rules": [{}]}',
        '{"rules": [{"when": "a", "line": "b"}]}',
        '{"rules": [{"when": "a"}]}',
        '{"rules": 3}',
    ],
)
def test_a_bad_script_is_one_line(file, text):
    file.write_text(text)
    with pytest.raises(ModelError, match=r"^The script .* cannot be read: .*\.$") as error:
        Script(file).reply("a", "")
    assert "\n" not in str(error.value)


def test_a_missing_script_is_one_line(tmp_path):
    with pytest.raises(ModelError, match="cannot be read"):
        Script(tmp_path / "none.json").rules()
