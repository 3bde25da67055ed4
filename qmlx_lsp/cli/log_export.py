"""``log --export``: a conversation as Markdown that can be read, printed and kept.

It must never overwrite what it was not told to, nor leave half a file.

Invariant: nothing that was told, asked or answered changes how the rest of the page is read. Context stands in fences
longer than any fence inside; a reply is verbatim Markdown, and where that would swallow what follows (an open fence,
HTML at the beginning of a line) it is closed, or stands in a fence as well.
"""

from __future__ import annotations

import html
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from qmlx_lsp.cli.log_show import local_time, visible, why
from qmlx_lsp.errors import QuestionError
from qmlx_lsp.storage.files import OsFiles, publish
from qmlx_lsp.storage.history import Epoch, Told
from qmlx_lsp.transcript.entry import Entry, Finish, Kind

SUMMARY_MAX = 60  # characters of a block without a path that stand in its summary
_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})(.*)")
_HTML = re.compile(r" {0,3}<[A-Za-z/!?]")
_ENDS = {
    Finish.CANCELLED: "The reply was cancelled here.",
    Finish.LENGTH: "The reply ends here at its limit of tokens.",
    Finish.ERROR: "The reply was cut off here by an error.",
    Finish.OPEN: "The reply was still being written.",
}


def export(target: str, root: str, epochs: Sequence[Epoch], entries: Sequence[Told], *, force: bool) -> None:
    """Write the page to ``target``, ``-`` for standard output.

    Raises:
        QuestionError: there is a file already and no ``force``, or it cannot be written.
    """
    text = "".join(f"{line}\n" for line in markdown(root, epochs, entries))
    data = text.encode("utf-8", "backslashreplace")
    if target == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    file = Path(os.path.realpath(target))
    if file.exists() and not (force and file.is_file()):
        what = "--force overwrites it" if file.is_file() else "give the name of a file"
        raise QuestionError(f"{file} exists already: {what}.")
    try:
        publish(OsFiles(), file.parent, file.name, [data])
    except OSError as error:
        raise QuestionError(f"{file} cannot be written ({error.strerror}): give another file.") from error
    print(f"qmlx-lsp: wrote {len(entries):,} entries to {file}.", file=sys.stderr)


def markdown(root: str, epochs: Sequence[Epoch], entries: Sequence[Told]) -> Iterator[str]:
    """The page, line by line."""
    yield f"# Conversation about {_code(root)}"
    yield ""
    if entries:
        yield f"From {local_time(entries[0].created)} to {local_time(entries[-1].created)}, {_counted(entries)}."
    else:
        yield "Nothing was said."
    questions = 0
    shown = {told.epoch for told in entries}
    for epoch in (epoch for epoch in epochs if epoch.number in shown):
        if len(epochs) > 1:
            reason = f", {why(epoch)}" if why(epoch) else ""
            yield from ("", f"## Epoch {epoch.number}: {local_time(epoch.created)}{html.escape(reason)}")
            if epoch.opening:
                yield from ("", "*It begins with what was carried over from before.*")
        for told in (told for told in entries if told.epoch == epoch.number):
            questions += told.entry.kind is Kind.QUESTION and not told.carried
            yield from ("", *_entry(told, questions))


def _counted(entries: Sequence[Told]) -> str:
    questions = sum(told.entry.kind is Kind.QUESTION and not told.carried for told in entries)
    return f"{questions:,} question{'s' if questions != 1 else ''}, {len(entries):,} entries"


def _entry(told: Told, question: int) -> Iterator[str]:
    entry = told.entry
    carried = " (said before)" if told.carried else ""
    if entry.kind is Kind.QUESTION:
        yield from (f"### Question{carried or f' {question}'}", "")
        quoted = _fenced(entry.text) if "<" in entry.text else visible(entry.text).split("\n")
        yield from (f"> {line}".rstrip() for line in quoted)
    elif entry.kind is Kind.ASSISTANT:
        yield from (f"### Reply{carried}", "")
        yield from _reply(entry)
    else:
        about = f"<code>{_line(entry.path)}</code>" if entry.path is not None else _first_words(entry)
        what = "Context" if entry.kind is Kind.CONTEXT else "System"
        tool = f" of the tool {_line(entry.tool)}" if entry.tool is not None else ""
        yield from ("<details>", f"<summary>{what}{tool}: {about}{carried}</summary>", "")
        yield from _fenced(entry.text)
        yield from ("", "</details>")


def _reply(entry: Entry) -> Iterator[str]:
    if entry.text.strip():
        yield from _verbatim(entry.text)
    if entry.finish in _ENDS:
        yield from (("", f"*{_ENDS[entry.finish]}*") if entry.text.strip() else (f"*{_ENDS[entry.finish]}*",))
    elif not entry.text.strip():
        yield "*(no text)*"


def _verbatim(text: str) -> Iterator[str]:
    """Markdown as it is, without consequences for what follows; in a fence where that is not certain."""
    lines = visible(text).strip("\n").split("\n")
    fence, indent = "", 0
    for line in lines:
        match = _FENCE.match(line)
        if fence:
            if line.strip() and len(line) - len(line.lstrip(" ")) < indent:
                break  # within an item of a list the fence has ended here, elsewhere it has not
            if match and match[2].startswith(fence) and not match[3].strip():
                fence = ""
        elif match and not (match[2][0] == "`" and "`" in match[3]):
            fence, indent = match[2], len(match[1])
        elif _HTML.match(line):
            break
    else:
        if not (fence and indent):
            yield from lines
            if fence:
                yield fence
            return
    yield from _fenced(text)


def _fenced(text: str) -> Iterator[str]:
    body = visible(text).strip("\n")
    fence = "`" * max(3, _ticks(body) + 1)
    yield from (f"{fence}text", *body.split("\n"), fence)


def _first_words(entry: Entry) -> str:
    line = entry.text.strip().partition("\n")[0]
    return _line(line if len(line) <= SUMMARY_MAX else line[: SUMMARY_MAX - 1] + "…")


def _line(text: str) -> str:
    """As text within one line of HTML."""
    return html.escape(visible(text).replace("\n", "␊"))


def _code(text: str) -> str:
    """As a code span."""
    body = visible(text).replace("\n", "␊")
    fence = "`" * (_ticks(body) + 1)
    return f"{fence} {body} {fence}" if body.startswith("`") or body.endswith("`") else f"{fence}{body}{fence}"


def _ticks(text: str) -> int:
    """The longest run of backticks."""
    return max((len(run) for run in re.findall(r"`+", text)), default=0)
