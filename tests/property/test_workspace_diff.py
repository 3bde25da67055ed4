"""A diff applied to the old text gives the new one; what is told adds up to what the file holds."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from qmlx_lsp.workspace import diff
from qmlx_lsp.workspace.diff import NO_NEWLINE, unified
from qmlx_lsp.workspace.told import Limits, tell

lines = st.sampled_from(["a", "b", "c", "", "}", "-x", "+y", " z", "@@ -1 @@", "\\ No", "p\x0cq", "u\u2028v", "```"])
endings = st.sampled_from(["\n", "\r\n", "\r"])
texts = st.builds(
    lambda parts, last: "".join(line + end for line, end in parts) + last,
    st.lists(st.tuples(lines, endings), max_size=25),
    st.sampled_from(["", "end", "a"]),
)
quick = settings(deadline=None, max_examples=60)


def normal(text):
    return re.sub(r"\r\n|\r", "\n", text)


def apply_unified(old, patch):
    """A strict patch: every context and removed line must be what the old text has there."""
    old_lines = re.findall(r"[^\n]*\n|[^\n]+", old)
    out, at = [], 0
    for hunk in re.split(r"^(?=@@ -\d+,\d+ \+\d+,\d+ @@\n)", patch, flags=re.MULTILINE)[1:]:
        header, body = hunk.split("\n", 1)
        a, a_count, b, b_count = map(int, re.fullmatch(r"@@ -(\d+),(\d+) \+(\d+),(\d+) @@", header).groups())
        start = a - 1 if a_count else a
        out += old_lines[at:start]
        assert len(out) == (b - 1 if b_count else b)
        at, added = start, 0
        body = body.replace("\n" + NO_NEWLINE, "\x01")
        for mark, line in re.findall(r"([ +-])([^\n\x01]*(?:\n|\x01))", body):
            line = line.replace("\x01", "")
            if mark != "+":
                assert old_lines[at] == line
                at += 1
            if mark != "-":
                out.append(line)
                added += 1
        assert (at - start, added) == (a_count, b_count)
    return "".join(out + old_lines[at:])


@given(texts, texts, st.integers(0, 3))
@settings(deadline=None, max_examples=120)
def test_diff_applied_to_the_old_text_gives_the_new_one(old, new, context):
    patch = unified(old, new, context_lines=context)
    assert apply_unified(normal(old), patch) == normal(new)
    assert (patch == "") == (normal(old) == normal(new))


@given(texts, texts)
@quick
def test_diff_without_any_matching_work_is_still_right(old, new):
    saved = diff.MAX_WORK
    diff.MAX_WORK = 0
    try:
        assert apply_unified(normal(old), unified(old, new)) == normal(new)
    finally:
        diff.MAX_WORK = saved


@given(st.lists(st.none() | texts | st.just("\0"), max_size=8), st.sampled_from([0.0, 0.7, 100.0]))
@quick
def test_blocks_told_one_after_another_add_up_to_the_file(states, share):
    limits, told, seen = Limits(max_file_bytes=120, max_diff_share=share), None, None
    for current in states:
        telling = tell("f.txt", told, current, limits)
        shown = current is not None and "\0" not in current and len(current.encode()) <= 120
        if telling is None:
            assert seen == (normal(current) if shown else None)
            continue
        assert not telling.text[0].isspace()
        assert telling.text.endswith("\n")
        assert not telling.text.endswith("\n\n")
        assert telling.form in ({"whole", "diff"} if shown else {"gone", "named"})
        if shown:
            body = re.fullmatch(r"[^\n]+:\n(`{3,})\w+\n(.*)\1\n", telling.text, re.DOTALL)[2]
            seen = apply_unified(seen, body) if telling.form == "diff" else body
            if telling.form == "whole" and not normal(current).endswith("\n"):
                seen = seen.removesuffix("\n")
            assert seen == normal(current)
        else:
            seen = None
        told = telling.told
        assert tell("f.txt", told, current, limits) is None
