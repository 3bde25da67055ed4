"""What a completion is shown of its document: it stays as it is while somebody types."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmlx_lsp.session.window import Place, window
from qmlx_lsp.settings import Inline
from qmlx_lsp.workspace.positions import all_lines

SETTINGS = Inline(before_lines=8, behind_lines=3, window_kb=1)


def seen(text, line, column, **more):
    return window(Place("src/a.py", "python", all_lines(text), line, column, False, **more), SETTINGS, 9)


def test_both_sides_of_a_cursor():
    text = "".join(f"line {n}\n" for n in range(30))
    found = seen(text, 14, 4)
    assert found.before == "".join(f"line {n}\n" for n in range(8, 14)) + "line"
    assert found.gap.behind == "line 15\nline 16\nline 17\n"
    assert (found.cursor.before, found.cursor.behind) == ("line", " 14")
    assert found.cursor.following == ["line 15", "line 16", "line 17"]
    assert found.gap.lead == "```python\n"
    assert found.gap.about == "src/a.py\n"
    assert "```python\nline 15\nline 16\nline 17\n```\n" in found.gap.request


def test_the_first_line_moves_in_jumps():
    text = "".join(f"line {n}\n" for n in range(30))
    firsts = [seen(text, line, 0).before.partition("\n")[0] for line in range(1, 20)]
    assert firsts == [f"line {max(0, line // 4 - 1) * 4}" for line in range(1, 20)]


def test_no_more_than_the_window_holds():
    text = "".join(f"{'x' * 300} {n}\n" for n in range(30))
    found = seen(text, 20, 0)
    assert found.before.count("\n") == 2  # of 8 lines that do not fit half are left, and of those half
    assert found.gap.behind.count("\n") == 3
    assert seen("x" * 2000, 0, 2000) is None
    assert seen("x" * 2000, 0, 20).before == "x" * 20


def test_nothing_behind_is_not_spoken_of_and_a_fence_is_longer_than_those_in_the_text():
    found = seen("a = '```'\n", 0, 9)
    assert found.gap.lead == "````python\n"
    assert "Behind" not in found.gap.request
    odd = window(Place("a\nb", "x\n```y", ["z"], 0, 1, False), SETTINGS, 9)
    assert (odd.gap.lead, odd.gap.about) == ("```xy\n", "a\\u000ab\n")


@pytest.mark.parametrize(
    ("text", "eol"), [("a\r\nb", "\r\n"), ("a\nb", "\n"), ("a\rb", "\r"), ("ab", "\n"), ("a\nb\r\nc", "\r\n")]
)
def test_lines_end_as_the_cursors_does_or_as_the_first_one(text, eol):
    assert seen(text, len(all_lines(text)) - 1 - (text.count("\n") > 1), 0).cursor.eol == eol


def test_selected_item_stands_where_it_would():
    place = Place("a.py", "python", ["os.pa + 1\n"], 0, 3, False, selected="path", covered=2)
    found = window(place, SETTINGS, 9)
    assert (found.before, found.cursor.before, found.cursor.behind) == ("os.path", "os.path", " + 1")


LINES = st.lists(st.text(alphabet="ab é`", max_size=40), min_size=1, max_size=30)


@given(LINES, st.data())
def test_while_a_line_is_typed_all_else_stays(lines, data):
    line = data.draw(st.integers(0, len(lines) - 1))
    typed = lines[line].replace("`", "")
    windows = []
    for count in range(len(typed) + 1):
        text = "\n".join([*lines[:line], typed[:count], *lines[line + 1 :]])
        windows.append(seen(text, line, count))
    for one in windows:
        assert one.gap == windows[0].gap
        assert one.before.startswith(windows[0].before)
