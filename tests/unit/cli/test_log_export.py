"""``log --export``: a page that reads as it was said, whatever was said; and a file that is whole or not there."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from qmlx_lsp.cli.log_export import export, markdown
from qmlx_lsp.cli.log_show import local_time
from qmlx_lsp.errors import QuestionError
from qmlx_lsp.storage.history import Epoch, Told
from qmlx_lsp.transcript.entry import Finish, Kind
from tests.support.log_writer import BEGAN, SYSTEM, Writer, read

AT = local_time(BEGAN)


def page(writer: Writer, root: str = "/project") -> list[str]:
    return list(markdown(root, *read(writer)))


def body(writer: Writer) -> list[str]:
    """The page behind its title and its dates."""
    return page(writer)[4:]


def test_a_page_that_can_be_read(writer: Writer) -> None:
    writer.say(Kind.SYSTEM, "You help.")
    writer.say(Kind.CONTEXT, "The file a.py:\n```python\nx = 1\n```\n", "a.py")
    writer.say(Kind.QUESTION, "Why?\n\nAnd *how*?")
    writer.reply("Because:\n\n```python\nx = 2\n```\n")
    writer.say(Kind.CONTEXT, "42", tool="count")
    writer.say(Kind.QUESTION, "More?")
    writer.reply("Yes, m", Finish.CANCELLED)
    assert page(writer) == [
        "# Conversation about `/project`", "", f"From {AT} to {AT}, 2 questions, 7 entries.", "",
        "<details>", "<summary>System: You help.</summary>", "", "```text", "You help.", "```", "", "</details>", "",
        "<details>", "<summary>Context: <code>a.py</code></summary>", "",
        "````text", "The file a.py:", "```python", "x = 1", "```", "````", "", "</details>", "",
        "### Question 1", "", "> Why?", ">", "> And *how*?", "",
        "### Reply", "", "Because:", "", "```python", "x = 2", "```", "",
        "<details>", "<summary>Context of the tool count: 42</summary>", "", "```text", "42", "```", "",
        "</details>", "",
        "### Question 2", "", "> More?", "",
        "### Reply", "", "Yes, m", "", "*The reply was cancelled here.*",
    ]  # fmt: skip


def test_epochs_have_headings_and_say_why(writer: Writer) -> None:
    writer.say(Kind.QUESTION, "Old?")
    writer.new_epoch("full", SYSTEM)
    writer.say(Kind.QUESTION, "New?")
    lines = body(writer)
    assert [line for line in lines if line.startswith("#")] == [
        f"## Epoch 0: {AT}", "### Question 1", f"## Epoch 1: {AT}, the one before was full", "### Question 2",
    ]  # fmt: skip
    assert "*It begins with what was carried over from before.*" in lines
    assert "<summary>System: You help. (said before)</summary>" in lines


@pytest.mark.parametrize(
    ("finish", "said"),
    [
        (Finish.CANCELLED, ["*The reply was cancelled here.*"]),
        (Finish.LENGTH, ["*The reply ends here at its limit of tokens.*"]),
        (Finish.ERROR, ["*The reply was cut off here by an error.*"]),
        (Finish.COMPLETE, ["*(no text)*"]),
    ],
)
def test_a_reply_without_text(writer: Writer, finish: Finish, said: list[str]) -> None:
    writer.reply("", finish)
    assert body(writer) == ["### Reply", "", *said]


def test_a_reply_that_is_being_written(writer: Writer) -> None:
    writer.journal(writer.begin(), "So f")
    assert body(writer) == ["### Reply", "", "So f", "", "*The reply was still being written.*"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\n```py\nx", ["a", "```py", "x", "```"]),
        ("````\n```\n", ["````", "```", "````"]),
        ("~~~\n```\n~~~", ["~~~", "```", "~~~"]),
        ("```\n<b>\n```", ["```", "<b>", "```"]),
        ("```not `a` fence", ["```not `a` fence"]),
        ("1. a\n   ```\n   x\n   ```\n2. b", ["1. a", "   ```", "   x", "   ```", "2. b"]),
        ("1. a\n   ```\n   x", ["````text", "1. a", "   ```", "   x", "````"]),
        ("- a\n  ```\nb\n```", ["````text", "- a", "  ```", "b", "```", "````"]),
        ("<!-- a comment", ["```text", "<!-- a comment", "```"]),
        ("a\n  <details>\n```", ["````text", "a", "  <details>", "```", "````"]),
        ("a < b and List<str>", ["a < b and List<str>"]),
        ("a\r\nb\x1b[2J\0\ud800", ["a", "b␛[2J␀\\ud800"]),
    ],
)
def test_a_reply_has_no_consequences_for_what_follows(writer: Writer, text: str, lines: list[str]) -> None:
    writer.reply(text)
    writer.say(Kind.QUESTION, "Next?")
    assert body(writer) == ["### Reply", "", *lines, "", "### Question 1", "", "> Next?"]


@pytest.mark.parametrize("ticks", [1, 2, 3, 4, 17])
def test_context_stands_in_a_longer_fence_than_any_inside(writer: Writer, ticks: int) -> None:
    text = f"{'`' * ticks}\n</details>\n# no heading\n{'`' * ticks} x"
    writer.say(Kind.CONTEXT, text, "a`<b>&\n.py")
    opened, summary, _, first, *inside, last, _, closed = body(writer)
    assert (opened, closed) == ("<details>", "</details>")
    assert summary == "<summary>Context: <code>a`&lt;b&gt;&amp;␊.py</code></summary>"
    assert inside == text.split("\n")
    assert first == f"{last}text"
    assert re.fullmatch("`{3,}", last)
    assert len(last) > ticks


def test_a_question_with_html_is_shown_as_it_was_typed(writer: Writer) -> None:
    writer.say(Kind.QUESTION, "What does <script> do?\n```")
    assert body(writer)[2:] == ["> ````text", "> What does <script> do?", "> ```", "> ````"]


@pytest.mark.parametrize(
    ("root", "title"),
    [("/a`b", "``/a`b``"), ("/a`", "`` /a` ``"), ("/a\nb\x1b", "`/a␊b␛`"), ("/\udce9", "`/\\udce9`")],
)
def test_any_root_can_be_a_title(writer: Writer, root: str, title: str) -> None:
    assert page(writer, root)[0] == f"# Conversation about {title}"


def test_nothing_said(writer: Writer) -> None:
    assert page(writer) == ["# Conversation about `/project`", "", "Nothing was said."]


# --- the file -------------------------------------------------------------------------------------------------------


def _export(writer: Writer, target: Path | str, *, force: bool = False) -> tuple[list[Epoch], list[Told]]:
    epochs, entries = read(writer)
    export(str(target), "/project", epochs, entries, force=force)
    return epochs, entries


def test_the_file_is_private_and_whole(writer: Writer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer.say(Kind.QUESTION, "Why 你好?")
    folder = tmp_path / "out"
    folder.mkdir()
    _export(writer, folder / "log.md")
    assert (folder / "log.md").read_text(encoding="utf-8").splitlines() == page(writer)
    assert stat.S_IMODE((folder / "log.md").stat().st_mode) == 0o600
    assert os.listdir(folder) == ["log.md"]
    assert capsys.readouterr() == ("", f"qmlx-lsp: wrote 1 entries to {folder / 'log.md'}.\n")
    _export(writer, "-")
    assert capsys.readouterr().out.splitlines() == page(writer)


def test_nothing_is_overwritten_without_force(writer: Writer, tmp_path: Path) -> None:
    file = tmp_path / "log.md"
    file.write_text("mine")
    with pytest.raises(QuestionError, match="exists already: --force overwrites it"):
        _export(writer, file)
    assert file.read_text() == "mine"
    _export(writer, file, force=True)
    assert file.read_text().startswith("# Conversation")
    link = tmp_path / "link.md"
    link.symlink_to(file)
    with pytest.raises(QuestionError, match="exists already"):
        _export(writer, link)
    _export(writer, link, force=True)
    assert link.is_symlink()


@pytest.mark.parametrize(
    ("name", "said"), [("", "exists already: give the name"), ("no/log.md", "cannot be written")]
)
def test_where_nothing_can_be_written(writer: Writer, tmp_path: Path, name: str, said: str) -> None:
    for force in (False, True):
        with pytest.raises(QuestionError, match=said) as error:
            _export(writer, tmp_path / name, force=force)
        assert "\n" not in str(error.value)
