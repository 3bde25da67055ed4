"""Whoever reads nothing but the conversation knows every file that it was told of, as it is.

Any programme of saves, unsaved edits, renames, deletions and questions, with reading ahead and failing writes in
between: the blocks that were told, taken literally, give the files' texts.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import given, settings

from qmlx_lsp.errors import StoreError
from qmlx_lsp.transcript.entry import Kind
from qmlx_lsp.transcript.suffix import Place
from qmlx_lsp.workspace.document import Change
from qmlx_lsp.workspace.positions import Encoding
from tests.support.bench import Bench, bench, long, quick

NAMES = ["a.py", "b.py", "sub/a.py", "sub/c.md", "new/a.py"]
LINES = [f"line {n} of a file of some length\n" for n in range(12)]
names = st.sampled_from(NAMES)
lines = st.lists(st.sampled_from([*LINES, "```\n", "twelve\r\n", "\n", "no end"]), max_size=14)
texts = lines.map("".join) | st.just("".join(LINES)) | st.just("\ufeff" + "".join(LINES))

STEPS = st.one_of(
    st.tuples(st.just("write"), names, texts),
    st.tuples(st.just("line"), names, st.integers(0, 11), st.sampled_from(["changed\n", "", "two\nlines\n"])),
    st.tuples(st.just("line"), names, st.integers(0, 11), st.sampled_from(["changed\n", "", "two\nlines\n"])),
    st.tuples(st.just("rename"), names, names),
    st.tuples(st.just("swap"), names, names),
    st.tuples(st.just("delete"), names),
    st.tuples(st.just("binary"), names),
    st.tuples(st.just("folder"), names),
    st.tuples(st.just("open"), names, texts),
    st.tuples(st.just("type"), names, st.integers(0, 11), st.text("xy\n", max_size=5)),
    st.tuples(st.just("close"), names),
    st.tuples(st.just("ask"), names),
    st.tuples(st.just("ask"), names),
    st.tuples(st.just("mention"), names),
    st.tuples(st.just("lines"), names, st.integers(1, 12), st.integers(0, 5)),
    st.tuples(st.just("pause")),
    st.tuples(st.just("fail")),
    st.tuples(st.just("cancel")),
    st.tuples(st.just("restart")),
)

_BLOCK = re.compile(
    r"(?P<head>[^\n]*):\n(?P<fence>`{3,})[^\n`]*\n(?P<body>.*?)^(?P=fence)\n", re.DOTALL | re.MULTILINE
)
_MOVED = re.compile(r"Files were moved from (\S+) to (\S+): ([^\n]*)\.\n")
_RENAMED = re.compile(r"File (\S+) was renamed to (\S+)\.\n")
_FOLDER = re.compile(r"Folder (\S+) was renamed to (\S+) \(\d+ files\)\.\n")


class Reader:
    """What a careful reader of the conversation takes the files to be; None where their text was not shown whole."""

    def __init__(self) -> None:
        self.files: dict[str, str | None] = {}

    def read(self, text: str) -> None:
        while text:
            if match := _RENAMED.match(text):
                self.files[match[2]] = self.files.pop(match[1], None)
            elif match := _FOLDER.match(text):
                moved = {name: body for name, body in self.files.items() if name.startswith(match[1] + "/")}
                for name, body in moved.items():
                    del self.files[name]
                    self.files[match[2] + name.removeprefix(match[1])] = body
            elif match := _MOVED.match(text):
                for name in match[3].split(", "):
                    self.files[f"{match[2]}/{name}"] = self.files.pop(f"{match[1]}/{name}", None)
            elif match := re.match(r"The question is about \S+\.\n", text):
                pass
            elif match := re.match(r"File (\S+) was deleted\.\n", text):
                self.files.pop(match[1], None)
            elif match := re.match(r"File (\S+) is not shown: [^\n]*\n", text):
                self.files[match[1]] = None
            elif match := _BLOCK.match(text):
                self.block(match["head"], match["body"])
            else:
                assert match is not None, text
            text = text[match.end() :]

    def block(self, head: str, body: str) -> None:
        if match := re.fullmatch(r"File (\S+?)(?: \(new text\))?", head):
            self.files[match[1]] = body
        elif match := re.fullmatch(r"Change in (\S+)", head):
            known = self.files.get(match[1])
            self.files[match[1]] = None if known is None else patched(known, body)
        elif match := re.fullmatch(r"Lines [\d, -]+ of (\S+), which has [\d,]+(?: \(new text\))?", head):
            self.files[match[1]] = self.files.get(match[1])
        else:
            assert re.fullmatch(r"Lines \d+-\d+ of \S+", head), head


def patched(text: str, diff: str) -> str:
    """By the system's own ``patch``, so that nothing of ours is believed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "f")
        file.write_text(text, newline="")
        done = subprocess.run(
            ["patch", "-s", "--binary", "-F0", str(file)], input=f"--- f\n+++ f\n{diff}".encode(), check=False,
            capture_output=True,
        )  # fmt: skip
        assert done.returncode == 0, (text, diff, done.stdout)
        return file.read_bytes().decode() if file.exists() else ""


def as_read(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def same(read: str, text: str) -> bool:
    """Equal but for a line end that a fence needs behind the last line."""
    return read in (text, f"{text}\n") if not text.endswith("\n") else read == text


class World:
    """The project, one editor's documents, and who reads along."""

    def __init__(self, b: Bench) -> None:
        self.b = b
        self.version = 1
        self.reader = Reader()
        self.entries = 0

    def file(self, name: str) -> Path:
        file = self.b.project / name
        if file.is_dir():
            shutil.rmtree(file)
        file.parent.mkdir(exist_ok=True)
        return file

    def now(self, name: str) -> str | None:
        """The text that counts; None for none, or none that may be shown."""
        document = self.b.app.registry.mirror.document((self.b.project / name).as_uri())
        if document is not None:
            return document.text
        file = self.b.project / name
        data = file.read_bytes() if file.is_file() else b"\0"
        return None if b"\0" in data else data.decode()

    def read_along(self) -> None:
        new = list(self.b.entries())[self.entries :]
        self.entries += len(new)
        for entry in new:
            if entry.kind is Kind.CONTEXT:
                self.reader.read(entry.text)

    async def check(self) -> None:
        """Right behind a question, or reading ahead: the reader knows all that was told, as it is."""
        self.read_along()
        told = (await self.b.session()).told
        assert set(told) == set(self.reader.files)
        for name, text in self.reader.files.items():
            now = self.now(name)
            assert text is None or (now is not None and same(text, as_read(now))), name
            whole = told[name] is not None and not told[name].startswith("\0")
            assert not whole or text is not None


def disk(w: World, kind: str, rest: tuple[Any, ...]) -> None:
    """Something happens on the disk."""
    name, project = rest[0], w.b.project
    if kind == "write":
        w.file(name).write_bytes(rest[1].encode())
    elif kind == "line" and (file := w.file(name)).is_file():
        found = file.read_bytes().split(b"\n")
        found[rest[1] % len(found)] = rest[2].encode()
        file.write_bytes(b"\n".join(found))
    elif kind == "rename" and (project / name).is_file():
        (project / name).rename(w.file(rest[1]))
    elif kind == "swap" and all((project / one).is_file() for one in rest):
        one, other = (project / path for path in rest)
        data = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(data)
    elif kind == "delete":
        w.file(name).unlink(missing_ok=True)
    elif kind == "binary":
        w.file(name).write_bytes(b"a\0b")
    elif kind == "folder":
        w.file(name).unlink(missing_ok=True)
        (project / name).mkdir()


def editor(w: World, kind: str, rest: tuple[Any, ...]) -> None:
    """Something happens in the editor."""
    mirror, uri = w.b.app.registry.mirror, (w.b.project / rest[0]).as_uri()
    if kind == "open":
        mirror.open("editor", uri, "python", w.version, rest[1])
    elif kind == "type" and mirror.document(uri) is not None:
        place = (rest[1], 0)
        mirror.change("editor", uri, w.version, [Change(rest[2], (place, place))], Encoding.UTF16)
    elif kind == "close":
        mirror.close("editor", uri)


async def step(w: World, what: tuple[Any, ...]) -> None:
    b, kind, rest = w.b, what[0], what[1:]
    w.version += 1
    if kind in ("open", "type", "close"):
        editor(w, kind, rest)
    elif kind in ("ask", "mention", "lines"):
        await asked(w, kind, rest)
    elif kind == "pause":
        b.app.registry.idle.stirred(b.project)
        await b.pause()
        if (await b.session()).transcript.tail.place is not Place.ASKED:  # behind which nothing is said
            await w.check()
    elif kind == "cancel":
        await b.cancelled(long(f"withdrawn {w.version}"), "prefill")
        await w.check()
    elif kind == "restart":
        await b.restart()
    elif kind == "fail":
        await failed(w)
    else:
        disk(w, kind, rest)


async def asked(w: World, kind: str, rest: tuple[Any, ...]) -> None:
    now = w.now(rest[0])
    about: dict[str, Any] = {}
    text = f"Question {w.version}"
    if now is not None and "\0" not in now:
        if kind == "ask":
            about["path"] = str(w.b.project / rest[0])
        else:
            text += f" @{rest[0]}" + (f":{rest[1]}-{rest[1] + rest[2]}" if kind == "lines" else "")
    await w.b.ask(text, **about)
    await w.check()


async def failed(w: World) -> None:
    """A question whose writing fails: nothing was told."""
    log = w.b.app.registry.services.log
    real = log.append

    def broken(*_arguments: Any) -> None:
        raise StoreError("the disk is full")

    log.append = broken  # type: ignore[method-assign]
    try:
        await w.b.ask(f"Lost {w.version}")
    except StoreError:
        pass
    finally:
        log.append = real  # type: ignore[method-assign]
    w.read_along()


async def programme(steps: list[tuple[Any, ...]]) -> None:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as base:
        async with bench(Path(base), quick(context={"max_tokens": 100_000})) as b:
            w = World(b)
            for what in [("write", "a.py", "".join(LINES)), ("ask", "a.py"), *steps, ("ask", "none")]:
                await step(w, what)


@settings(max_examples=40, deadline=None)
@given(st.lists(STEPS, min_size=4, max_size=14))
def test_the_conversation_says_what_the_files_are(steps: list[tuple[Any, ...]]) -> None:
    asyncio.run(programme(steps))
