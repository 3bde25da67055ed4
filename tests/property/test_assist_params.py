"""Arguments of commands, whatever an editor sends: understood, or one clear line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmlx_lsp.errors import QuestionError
from qmlx_lsp.lsp.assist_params import AssistParams, assist_params
from qmlx_lsp.workspace.diagnostics import Diagnostic
from qmlx_lsp.workspace.instructions import Kind

NAMES = ["uri", "textDocument", "range", "text", "instruction", "diagnostic", "root", "workDoneToken", "sel", "start",
         "end", "line", "character", "message", "severity", "source", "code"]  # fmt: skip
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 1 << 40), st.floats(allow_nan=False), st.text(max_size=6),
    st.sampled_from(["/a.py", "file:///a.py", "untitled:1", "/\0", "12"]),
)  # fmt: skip
values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(NAMES), inner, max_size=5)),
    max_leaves=12,
)


@given(st.sampled_from(list(Kind)), st.lists(values, max_size=5))
@settings(deadline=None, max_examples=600)
def test_nothing_else_is_ever_raised(kind, arguments):
    try:
        found = assist_params(kind, arguments)
    except QuestionError:
        return
    assert kind is Kind.ASK or (found.uri or found.place) is not None
    assert kind not in (Kind.ASK, Kind.REWRITE) or found.text.strip()
    assert found.lines is None or 1 <= found.lines[0] <= found.lines[1]
    assert found.at is None or found.at >= 1


SPAN = {"start": {"line": 2, "character": 0}, "end": {"line": 4, "character": 0}}
CURSOR = {"start": {"line": 2, "character": 3}, "end": {"line": 2, "character": 3}}
FOUND = {"range": CURSOR, "message": "m", "source": "ruff", "code": "E1", "severity": 2}


@pytest.mark.parametrize(
    ("kind", "arguments", "params"),
    [
        (Kind.ASK, ["q"], AssistParams("q")),
        (Kind.ASK, ["q", "/a b.py", 3, {"sel": [5, 2]}], AssistParams("q", place="/a b.py", lines=(2, 5), at=3)),
        (Kind.ASK, ["q", "/a.py", "3", {"sel": [3, 3]}], AssistParams("q", place="/a.py", at=3)),
        (Kind.ASK, ["q", "/a.py", None, {"sel": [4, 4]}], AssistParams("q", place="/a.py", at=4)),
        (Kind.EXPLAIN, ["untitled:1", 3], AssistParams(place="untitled:1", at=3)),
        (Kind.EXPLAIN, [{"uri": "file:///a", "range": SPAN}], AssistParams(uri="file:///a", lines=(3, 4))),
        (Kind.EXPLAIN, [{"textDocument": {"uri": "file:///a"}, "range": CURSOR, "workDoneToken": 7}],
         AssistParams(uri="file:///a", at=3, work_done_token=7)),
        (Kind.REWRITE, [{"uri": "file:///a", "instruction": "i", "root": "/r"}],
         AssistParams("i", "file:///a", root="/r")),
        (Kind.REWRITE, [{"uri": "file:///a", "instruction": "i", "text": "t"}], AssistParams("t", "file:///a")),
        (Kind.FIX, [{"uri": "file:///a", "diagnostic": FOUND}],
         AssistParams(uri="file:///a", at=3, diagnostic=Diagnostic(3, 2, "m", "ruff E1"))),
    ],
)  # fmt: skip
def test_what_is_understood(kind, arguments, params):
    assert assist_params(kind, arguments) == params
