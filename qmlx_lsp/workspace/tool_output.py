"""What a tool has printed, as a text for a model: cleaned, bounded, and put into a block that says whose it is.

A terminal's output is what is left on the screen: bars that overwrite their line count by their last state, colours
count for nothing. Cursors that move upwards are not followed; what they would overwrite stays.

Invariant: whatever is printed, memory and the block's size are bounded; head and tail stay, the middle goes, and how
much went is said in its place. A cut is never inside a character, and at a line's end where there is one near.
Invariant: a cleaned text holds no control characters but tabs and line breaks, and no lone surrogates; cleaning it
again changes nothing.
Invariant: a block begins with no whitespace, ends with exactly one line break, and two equal results give equal
blocks: no durations, no times, which say nothing about the project.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

from qmlx_lsp.workspace.fence import fenced

# Of the output's room, what its beginning may take: compilers' first errors stand there, summaries at the end.
HEAD_SHARE = 1 / 3
# Bytes that the line about what was left out may take.
MARK_BYTES_MAX = 64
# Raw bytes kept at either end, for each byte that may be told: cleaning can shrink them.
RAW_PER_TOLD = 4
# Characters that are cleaned, or taken in, at a time.
PIECE_CHARS = 32 << 10
LINE_CHARS_MAX = 80
# Of a text that is to be one line, the characters looked at for each one that may be shown.
SEEN_PER_SHOWN = 16
NAME_CHARS_MAX = 64
COMMAND_CHARS_MAX = 200
# Of one run, what is shown while it runs, and of that, what is shown at once.
SHOWN_BYTES_MAX = 1 << 20
SHOWN_AT_ONCE_BYTES_MAX = 64 << 10
# A line that has not ended after so many bytes is shown in pieces.
SHOWN_LINE_BYTES_MAX = 4 << 10
# Bytes at the end of the output in which its last line is looked for.
LAST_LINE_BYTES = 1 << 10

_UNUSUAL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# CSI sequences (colours, cursor), OSC (titles, links) and other strings, and the short ones. Each is read up to where
# it ends or the line does, so that one without an end takes no more than that.
_ESCAPES = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]?"
    "|\x1b\\][^\x07\x1b\n]*(?:\x07|\x1b\\\\)?"
    "|\x1b[PX^_][^\x1b\n]*(?:\x1b\\\\)?"
    "|\x1b[ -/]*[0-~]?"
)
_LINE_ENDS = re.compile("\r+\n|[\x0b\x0c\x85]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SURROGATES = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """``text`` as it would stand on a screen. Characters that print nothing go, for each would cost tokens."""
    if _UNUSUAL.search(text) is None:
        return text
    return "".join(map(_cleaned, _pieces(text)))


def _pieces(text: str) -> Iterator[str]:
    """``text`` in whole lines, so that cleaning it never holds up other threads for long. No escape spans lines."""
    begin = 0
    while begin < len(text):
        end = text.find("\n", begin + PIECE_CHARS) + 1 or len(text)
        yield text[begin:end]
        begin = end


def _cleaned(text: str) -> str:
    text = _LINE_ENDS.sub("\n", _ESCAPES.sub("", text))
    if "\r" in text or "\b" in text:
        text = "\n".join(map(_last_state, text.split("\n")))
    return _SURROGATES.sub("\ufffd", _CONTROL.sub("", text))


def _last_state(line: str) -> str:
    """What a line shows that was begun anew at every ``\\r``, less what backspaces took back."""
    states = [state for state in line.split("\r") if state]
    line = states[-1] if states else ""
    if "\b" not in line:
        return line
    shown: list[str] = []
    for character in line:
        if character != "\b":
            shown.append(character)
        elif shown:
            shown.pop()
    return "".join(shown)


def one_line(text: str, most: int) -> str:
    """``text`` cleaned, on one line, of at most ``most`` characters."""
    line = " ".join(clean(text[: most * SEEN_PER_SHOWN]).split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def bounded(text: str, limit: int) -> str:
    """A cleaned ``text`` in at most ``limit`` bytes of UTF-8; ``limit`` is larger than ``MARK_BYTES_MAX``."""
    if len(text) <= limit and len(text.encode()) <= limit:
        return text
    head_room = int((limit - MARK_BYTES_MAX) * HEAD_SHARE)
    head = _first(text, head_room)
    tail = _last(text, limit - MARK_BYTES_MAX - head_room)
    middle = text[len(head) : len(text) - len(tail)]
    return _joined(head, middle.count("\n"), len(middle), tail)


def _joined(head: str, lines: int, characters: int, tail: str) -> str:
    amount = f"{lines:,} {'line' if lines == 1 else 'lines'}" if lines else f"{characters:,} characters"
    end = "" if not head or head.endswith("\n") else "\n"
    return f"{head}{end}… {amount} left out …\n{tail}"


def _first(text: str, room: int) -> str:
    """As many characters from the beginning as ``room`` bytes hold, whole lines if that leaves half of them."""
    kept = text[:room].encode()[:room].decode(errors="ignore")
    if len(kept) == len(text):
        return text
    end = kept.rfind("\n") + 1
    return kept[:end] if end * 2 >= len(kept) else kept


def _last(text: str, room: int) -> str:
    kept = text[-room:].encode()[-room:].decode(errors="ignore")
    if len(kept) == len(text) or text[-len(kept) - 1] == "\n":
        return kept
    begin = kept.find("\n") + 1
    return kept[begin:] if begin * 2 <= len(kept) else kept


class Capture:
    """The bytes that a tool prints, of which ``limit`` bytes may be told: a head and a tail of them are kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._keep = limit * RAW_PER_TOLD
        self._head = bytearray()
        self._tail = bytearray()
        self._lost_bytes = 0
        self._lost_lines = 0

    def __len__(self) -> int:
        """Bytes that are kept."""
        return len(self._head) + len(self._tail)

    def feed(self, data: bytes) -> None:
        room = self._keep - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 2 * self._keep:  # seldom, so that a long tail is not moved at every read
            self._lose(len(self._tail) - self._keep)

    def feed_text(self, text: str) -> None:
        """A text instead of bytes. A half of a surrogate pair is a question mark."""
        for begin in range(0, len(text), PIECE_CHARS):
            self.feed(text[begin : begin + PIECE_CHARS].encode(errors="replace"))

    def _lose(self, count: int) -> None:
        self._lost_lines += self._tail.count(b"\n", 0, count)
        self._lost_bytes += count
        del self._tail[:count]

    def text(self) -> str:
        """What is to be told of it, in at most ``limit`` bytes. Takes milliseconds: call it on a thread."""
        if not self._lost_bytes:
            return bounded(clean((self._head + self._tail).decode(errors="replace")), self._limit)
        head, tail = bytes(self._head), bytes(self._tail)
        end, begin = head.rfind(b"\n") + 1 or len(head), tail.find(b"\n") + 1
        while begin == 0 and tail and tail[0] & 0xC0 == 0x80:  # the rest of a character
            tail = tail[1:]
        lines = self._lost_lines + head.count(b"\n", end) + tail.count(b"\n", 0, begin)
        lost = self._lost_bytes + len(head) - end + begin
        before, after = (clean(part.decode(errors="replace")) for part in (head[:end], tail[begin:]))
        room = self._limit - MARK_BYTES_MAX
        first = _first(before, int(room * HEAD_SHARE))
        last = _last(after, room - int(room * HEAD_SHARE))
        left = before[len(first) :] + after[: len(after) - len(last)]
        return _joined(first, lines + left.count("\n"), lost + len(left), last)

    def last_line(self) -> str:
        """The last line that shows something, shortened; "" when there is none."""
        end = bytes((self._tail or self._head)[-LAST_LINE_BYTES:])
        lines = [line for line in clean(end.decode(errors="ignore")).split("\n") if line.strip()]
        return one_line(lines[-1], LINE_CHARS_MAX) if lines else ""


class Shown:
    """Output while it comes, for whoever watches: whole lines, cleaned, up to ``SHOWN_BYTES_MAX`` of them."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._waiting = bytearray()
        self._room = SHOWN_BYTES_MAX
        self._more = False

    def feed(self, data: bytes) -> None:
        self._more = self._more or len(data) > self._room
        self._waiting += data[: self._room]
        self._room -= min(len(data), self._room)

    def take(self, *, last: bool = False) -> str:
        """What can be shown now, a bounded part of it; with ``last`` all that is left."""
        end = len(self._waiting) if last else self._waiting.rfind(b"\n", 0, SHOWN_AT_ONCE_BYTES_MAX) + 1
        if not end and len(self._waiting) > SHOWN_LINE_BYTES_MAX:
            end = min(len(self._waiting), SHOWN_AT_ONCE_BYTES_MAX)
        text = clean(self._decoder.decode(bytes(self._waiting[:end]), final=last))
        del self._waiting[:end]
        return f"{text}\n… what comes now is not shown …\n" if last and self._more else text


def block(name: str, command: str, ending: str, output: str) -> str:
    """The context block about a result. ``output`` is cleaned and bounded; "" where a part is not known."""
    name, command = one_line(name, NAME_CHARS_MAX), one_line(command, COMMAND_CHARS_MAX)
    what = f"Result of {command} (tool {name})" if command else f"Result of tool {name}"
    head = f"{what}: {ending}" if ending else what
    if not output.strip():
        return f"{head}, no output.\n"
    return f"{head}{'' if ending else ':'}\n{fenced(output.strip(chr(10)))}"
