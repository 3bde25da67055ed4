"""Whatever is said, a Markdown reader finds the exported page's own structure in it, and every block's text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from qmlx_lsp.cli.log_export import markdown
from qmlx_lsp.cli.log_show import visible
from qmlx_lsp.storage.history import Epoch, Told
from qmlx_lsp.transcript.entry import Entry, Finish, Kind

LINES = st.one_of(
    st.sampled_from([
        "", "```", "````", "~~~", "```py", "   ```", "  ```", " ~~~~", "    ```", "> ```", "- ```", "1. a", "- b",
        "> c", "<details>", "<!--", "  <pre>", "a <b> c", "===", "---", "# h", "### Reply", "[a]: /u", "`", "text",
        "   text", "</details>", "\t```", "``` `", "*", "|a|b|", "<?php", "&lt;", "\\",
    ]),
    st.text(max_size=8),
)  # fmt: skip
TEXTS = st.lists(LINES, max_size=8).map("\n".join)
KINDS = st.sampled_from([Kind.CONTEXT, Kind.QUESTION, Kind.ASSISTANT])
LAST = Entry(Kind.QUESTION, "the last one", (), 0)


def _told(number: int, entry: Entry) -> Told:
    return Told(number, number, 0, False, None, 0.0, entry)


@given(st.lists(st.tuples(KINDS, TEXTS), max_size=4), st.sampled_from([Finish.COMPLETE, Finish.CANCELLED]))
def test_nothing_that_is_said_changes_how_the_rest_is_read(said: list[tuple[Kind, str]], finish: Finish) -> None:
    entries = [Entry(kind, text, (), 0, finish if kind is Kind.ASSISTANT else None) for kind, text in said]
    told = [_told(number, entry) for number, entry in enumerate([*entries, LAST], 1)]
    tokens = MarkdownIt("commonmark").parse("\n".join(markdown("/root", [Epoch(0, 0.0, "", 0)], told)))
    outside = [token for token in tokens if token.level == 0]
    # The page's own headings are found at the top, in their order; a reply may have headings of its own.
    headings = [
        tokens[at + 1].content for at, token in enumerate(tokens) if token.type == "heading_open" and token.level == 0
    ]
    questions = sum(entry.kind is Kind.QUESTION for entry in [*entries, LAST])
    wanted = [f"Question {number}" for number in range(1, questions + 1)]
    assert [heading for heading in headings if heading.startswith("Question ")] == wanted
    assert headings.count("Reply") >= sum(entry.kind is Kind.ASSISTANT for entry in entries)
    assert outside[-1].type == "blockquote_close"
    assert tokens[-3].level > 0
    assert tokens[-3].content == "the last one"
    # Every context block is one fence at the top, with exactly its text.
    fences = [token.content for token in outside if token.type == "fence" and token.info == "text"]
    blocks = [visible(entry.text).strip("\n") + "\n" for entry in entries if entry.kind is Kind.CONTEXT]
    left = iter(fences)
    assert all(block in left for block in blocks), "in their order"
