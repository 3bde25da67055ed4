"""Minimal edits and finding lines again, against references that know what was done to a text."""

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from qmlx_lsp.workspace.edits import apply, minimal, rebase, shifted
from tests.support.reference_text import lines_of

ENDS = ["\n", "\r\n", "\r"]
CONTENTS = ["a", "b", "  a", "}", "", "x = 1", "\u2028", "\x0c", "😋"]
contents = st.sampled_from(CONTENTS)
rows = st.lists(st.tuples(contents, st.sampled_from(ENDS)), max_size=9)
quick = settings(deadline=None, max_examples=150)


def joined(rows, *, last_end=True):
    text = "".join(content + end for content, end in rows)
    return text[: len(text) - len(rows[-1][1])] if rows and not last_end else text


def bare(text):
    """The lines without their ends, and whether the last one has one."""
    found = [line for _, line in lines_of(text)]
    ended = not text or text[-1] in "\r\n"
    return (found[:-1] if ended else found), ended


@st.composite
def texts(draw):
    return joined(draw(rows), last_end=draw(st.booleans()))


@given(texts(), texts())
@quick
@example("a\r\nb", "a\n")
@example("a", "b\n")
@example("", "a\nb")
@example("a\nb", "a\nc\nd\n")
@example("a\nb\n", "")
def test_applied_it_is_what_was_wanted_but_for_line_ends(old, new):
    found = minimal(old, new)
    got = apply(old, found)
    assert bare(got)[0] == bare(new)[0]
    if bare(old)[0] == bare(new)[0]:
        assert bare(got)[1] == bare(new)[1], "the edit is about the last end and nothing else"
        assert len(found) <= 1
    elif old and bare(new)[0][-1:] not in ([], [""]):
        assert bare(got)[1] == bare(old)[1], "a last line without an end stays one"


@given(texts(), st.lists(st.tuples(st.integers(0, 8), st.sampled_from(["change", "insert", "delete"])), max_size=3))
@quick
def test_lines_that_both_have_are_not_touched(old, done):
    """What was done is known, so the lines that were left are known with their ends."""
    lines = [old[start : start + len(text)] for start, text in lines_of(old)]
    starts = [start for start, _ in lines_of(old)]
    ends = [*starts[1:], len(old)]
    whole = [old[a:b] for a, b in zip(starts, ends, strict=True)]
    if lines and not whole[-1]:
        whole.pop()
    fresh = list(whole)
    for count, (at, what) in enumerate(done):
        at = min(at, len(fresh))
        if what == "insert":
            fresh.insert(at, f"new {count}\n")
        elif at < len(fresh):
            fresh[at : at + 1] = [f"new {count}\n"] if what == "change" else []
    new = "".join(line if line[-1:] in ("\r", "\n") else f"{line}\n" for line in fresh)
    assume(bare(new)[0] == [bare(line)[0][0] if line.strip("\r\n") else "" for line in fresh])
    found = minimal(old, new)
    touched = sum(one.end - one.start for one in found)
    kept = sum(len(line) for line in fresh if not line.startswith("new "))
    # At most the end of one line, where the last one goes.
    assert touched <= len(old) - kept + 2


@given(texts(), texts(), st.integers(0, 5))
@quick
def test_edits_of_a_part_count_in_the_whole(old, new, by):
    assume(not old.startswith("\n"))
    front = "f" * by + "\n"
    moved = shifted(minimal(old, new), len(front))
    assert apply(front + old, moved) == front + apply(old, minimal(old, new))


def inserted(lines, at, what):
    return lines[:at] + what + lines[at:]


@st.composite
def histories(draw):
    """A text, lines of it, what it is after edits outside of them, and where they really are then."""
    old = draw(st.lists(contents.filter(lambda c: "\u2028" not in c), min_size=1, max_size=9))
    first = draw(st.integers(0, len(old) - 1))
    last = draw(st.integers(first + 1, len(old)))
    above, target, below = old[:first], old[first:last], old[last:]
    for _ in range(draw(st.integers(0, 3))):
        side = draw(st.sampled_from(["above", "below"]))
        lines = above if side == "above" else below
        at = draw(st.integers(0, len(lines)))
        if draw(st.booleans()):
            lines = inserted(lines, at, draw(st.lists(contents, min_size=1, max_size=2)))
        else:
            lines = lines[:at] + lines[at + 1 :]
        above, below = (lines, below) if side == "above" else (above, lines)
    return old, (first + 1, last), [*above, *target, *below], (len(above) + 1, len(above) + len(target))


@given(histories(), st.sampled_from(ENDS), st.sampled_from(ENDS))
@quick
def test_lines_found_again_are_where_they_are_or_look_the_same_there(history, old_end, new_end):
    old, lines, new, truly = history
    found = rebase(old_end.join(old), new_end.join(new), *lines)
    if found is None:
        return
    # Whatever it says has exactly the lines that were asked about.
    assert new[found[0] - 1 : found[1]] == old[lines[0] - 1 : lines[1]]
    if found != truly:
        # Nobody could tell them apart: put something else there, and the outcome must be the same, or the same lines
        # were there before as often, and moved as one.
        target = old[lines[0] - 1 : lines[1]]
        size = len(target)
        was = sum(old[at : at + size] == target for at in range(len(old)))
        now = sum(new[at : at + size] == target for at in range(len(new)))
        assert was == now > 1 or was != now


@given(st.lists(st.integers(0, 99), min_size=1, max_size=12, unique=True), st.data())
@quick
def test_lines_that_are_each_alone_are_always_found(numbers, data):
    old = [f"line {number}" for number in numbers]
    first = data.draw(st.integers(0, len(old) - 1))
    last = data.draw(st.integers(first + 1, len(old)))
    above = data.draw(st.lists(st.sampled_from(["new", "other", ""]), max_size=4))
    below = data.draw(st.lists(st.sampled_from(["new", "other", ""]), max_size=4))
    kept = data.draw(st.integers(0, first))
    new = [*above, *old[kept:last], *below, *old[last:]]
    at = len(above) + first - kept
    assert rebase("\n".join(old), "\n".join(new), first + 1, last) == (at + 1, at + last - first)


@given(st.lists(st.integers(0, 99), min_size=2, max_size=12, unique=True), st.data())
@quick
def test_lines_that_were_touched_are_not_found(numbers, data):
    old = [f"line {number}" for number in numbers]
    first = data.draw(st.integers(0, len(old) - 2))
    last = data.draw(st.integers(first + 2, len(old)))
    at = data.draw(st.integers(first, last - 1))
    how = data.draw(st.sampled_from(["change", "delete", "insert"]))
    if how == "insert":
        at = max(at, first + 1)
    new = list(old)
    new[at : at + (how != "insert")] = [] if how == "delete" else ["other"]
    assert rebase("\n".join(old), "\n".join(new), first + 1, last) is None
