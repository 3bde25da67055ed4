"""From a reply to edits of the text as it is by then, and how they are known to have been done."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qmlx_lsp.workspace.blocks import Change
from qmlx_lsp.workspace.edits import Replace, apply
from qmlx_lsp.workspace.proposals import Plan, Proposal, plan, proposal

TEXT = "a = 1\nb = 2\nc = 3\n"
ONE = "```\nb = 9\n```"
SEARCH = "<<<<<<< SEARCH\nb = 2\n=======\nb = 9\n>>>>>>> REPLACE\n"


@pytest.mark.parametrize(
    ("reply", "proposed"),
    [
        (ONE, Proposal("b = 9\n")),
        ("Here:\n\n" + ONE + "\n\nThat is all.", Proposal("b = 9\n")),
        (SEARCH, Proposal(changes=(Change("b = 2\n", "b = 9\n"),))),
        ("a.py\n" + SEARCH, Proposal(changes=(Change("b = 2\n", "b = 9\n", "a.py"),))),
        ("./src/a.py\n" + SEARCH, Proposal(changes=(Change("b = 2\n", "b = 9\n", "./src/a.py"),))),
        ("other.py\n" + SEARCH, Proposal(reason="it is about other.py")),
        ("b = 9", Proposal(reason="it has no block of code")),
        (ONE + "\n" + ONE, Proposal("b = 9\n")),
        (ONE + "\n```\nc\n```", Proposal(reason="it has more than one block of code")),
        # What there was, what is to be, and how it is used.
        ("```\nb = 2\n```\n```\nb = 2\nb += 7\n```\n```\nprint(b)\n```", Proposal("b = 2\nb += 7\n")),
        ("```\nb = 2\nb += 7\n```\n```\nb = 2\nb += 8\n```", Proposal(reason="it has more than one block of code")),
        (ONE + "\n```\nb", Proposal(reason="its code is not whole")),
        ("<<<<<<< SEARCH\nb\n=======\n", Proposal(reason="search/replace block 1 is not whole")),
        ("", Proposal(reason="it has no block of code")),
        ("```\n\n```", Proposal(reason="its block of code is empty")),
    ],
)
def test_what_a_reply_proposes(reply, proposed):
    assert proposal(reply, "b = 2\n", ("src/a.py", "/p/src/a.py")) == proposed


@pytest.mark.parametrize(
    "line",
    ["# ... rest of the code ...", "// ... existing code ...", "    ... (unchanged)", "/* … remaining methods … */",
     "# rest of the function stays", "<!-- existing code -->", "# [the rest of your code]"],
)  # fmt: skip
def test_a_line_that_stands_for_code_is_no_code(line):
    reason = f"it leaves out code ({line.strip()})"
    assert proposal(f"```\nb = 9\n{line}\n```", "b = 2\n") == Proposal(reason=reason)
    assert proposal(SEARCH.replace("b = 9\n", f"{line}\n"), "b = 2\n") == Proposal(reason=reason)
    had = f"b = 2\n{line}\n"
    assert proposal(f"```\nb = 9\n{line}\n```", had) == Proposal(f"b = 9\n{line}\n")


@pytest.mark.parametrize(
    "line",
    ["...", "x: ...", "The rest of the story.", "# the rest is silence", "print('... existing')", "other = code"],
)
def test_a_line_that_only_looks_like_it(line):
    assert proposal(f"```\n{line}\n```", "b = 2\n") == Proposal(f"{line}\n")


@pytest.mark.parametrize(
    ("proposed", "now", "edits", "result"),
    [
        (Proposal("b = 9\n"), TEXT, [Replace(6, 12, "b = 9\n")], TEXT.replace("2", "9")),
        (Proposal("b = 9\n"), "x\n" + TEXT, [Replace(8, 14, "b = 9\n")], "x\n" + TEXT.replace("2", "9")),
        (Proposal("b = 9\nd\n"), "b = 2", [Replace(0, 5, "b = 9\nd")], "b = 9\nd"),
        (Proposal("b = 9\nd\n"), "a\r\nb = 2", [Replace(3, 8, "b = 9\r\nd")], "a\r\nb = 9\r\nd"),
        (Proposal(""), TEXT, [Replace(6, 12, "")], "a = 1\nc = 3\n"),
        (Proposal(changes=(Change("b = 2\n", "b = 9\n"),)), "x\n" + TEXT, [Replace(8, 14, "b = 9\n")],
         "x\n" + TEXT.replace("2", "9")),
    ],
)  # fmt: skip
def test_the_edits_of_the_text_as_it_is(proposed, now, edits, result):
    planned = plan(proposed, TEXT, (2, 2), now)
    assert planned == Plan(now, tuple(edits), result)
    assert planned.done(result)
    assert planned.done(result.replace("\n", "\r\n").replace("\r\r", "\r"))
    assert planned.done(f"typed meanwhile\n{result}")
    assert not planned.done(now)


@pytest.mark.parametrize(
    ("proposed", "now", "reason"),
    [
        (Proposal("b = 9\n"), TEXT.replace("2", "3"), "the lines have changed meanwhile"),
        (Proposal("b = 2\n"), TEXT, "there is nothing to change"),
        (Proposal(changes=(Change("d\n", "e\n"),)), TEXT, "the search/replace block fits in no place of the text"),
        (Proposal(changes=(Change("b = 2\n", "b = 2\n"),)), TEXT, "there is nothing to change"),
    ],
)
def test_why_there_are_no_edits(proposed, now, reason):
    assert plan(proposed, TEXT, (2, 2), now) == Plan(reason=reason)


def test_an_end_of_the_last_line_is_told_apart_where_the_edit_is_about_it():
    planned = Plan("a\nb", (Replace(3, 3, "\n"),), "a\nb\n")
    assert planned.done("a\r\nb\r\n")
    assert not planned.done("a\nb")
    assert plan(Proposal("b\n"), "a", (1, 1), "a").done("b\n")


def test_what_may_have_been_put_in_already():
    planned = plan(Proposal("b = 2\nnew\n"), TEXT, (2, 2), TEXT)
    assert planned.may_be_in(planned.result)
    assert planned.may_be_in(TEXT + "new\n")
    assert not planned.may_be_in("x\n" + TEXT)
    assert not plan(Proposal(""), TEXT, (2, 2), TEXT).may_be_in("x\n" + TEXT)


lines = st.lists(st.sampled_from(["a", "b", "  c", "", "d = 1"]), min_size=1, max_size=8)


@given(lines, lines, st.sampled_from(["\n", "\r\n", "\r"]), st.data())
@settings(deadline=None, max_examples=300)
def test_a_text_that_is_as_it_was_always_gets_the_proposal_and_nothing_else(old, new, end, data):
    first = data.draw(st.integers(1, len(old)))
    last = data.draw(st.integers(first, len(old)))
    text, code = "".join(f"{line}{end}" for line in old), "\n".join(new) + "\n"
    planned = plan(Proposal(code), text, (first, last), text)
    wanted = "".join(f"{line}{end}" for line in [*old[: first - 1], *new, *old[last:]])
    if not planned.edits:
        assert wanted == text
        return
    assert planned.result == apply(text, planned.edits) == wanted
    assert planned.done(wanted)
    assert not planned.done(text)
    assert not planned.done(f"typed{end}{text}"), "what was thrown away is not taken for done"
    assert not planned.done(f"{text}typed{end}")
