"""Answers as documents, for editors that have no panel: Markdown files in the cache, the newest of each project.

They hold what a conversation says, so they are their owner's alone and go when it is forgotten.

Invariant: a file is written whole under a name of its own; nothing that is there is written over, but for the one
that shows the conversation.
Invariant: of each project ``ANSWERS_MAX`` files are kept, the newest ones.
Invariant: what a conversation has said is not written once that has been forgotten (``age``), however late it comes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from qmlx_lsp.errors import StoreError

ANSWERS_MAX = 50
"""Answers of a project that are kept."""
FORGOTTEN = "the conversation has been forgotten meanwhile"

_NAME = re.compile(r"(\d{4,})-[a-zA-Z]+\.md")
_CONVERSATION = "conversation.md"


class Answers:
    """The files below ``folder``. Blocking: for threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._ages: Counter[Path] = Counter()

    def age(self, root: Path) -> int:
        """How often the conversation of ``root`` has been forgotten. Does not block."""
        return self._ages[root]

    def write(self, root: Path, kind: str, text: str, age: int) -> Path:
        """A new file with ``text``, said at that ``age``; ``kind`` is a word for its name. Raises StoreError."""
        with self._lock, self._trouble():
            self._check(root, age)
            folder = self._ready(root)
            numbers = sorted(int(match[1]) for name in os.listdir(folder) if (match := _NAME.fullmatch(name)))
            file = folder / f"{(numbers[-1] if numbers else 0) + 1:04}-{kind}.md"
            _create(file, text)
            self._prune(folder)
            return file

    def write_conversation(self, root: Path, text: str, age: int) -> Path:
        """The file that shows the conversation, anew. Raises StoreError."""
        with self._lock, self._trouble():
            self._check(root, age)
            file = self._ready(root) / _CONVERSATION
            fresh = file.with_suffix(".new")
            fresh.unlink(missing_ok=True)
            _create(fresh, text)
            fresh.replace(file)
            return file

    def holds(self, root: Path, file: Path) -> bool:
        """Whether ``file`` is an answer about ``root``. Does not block."""
        return file.parent == self._of(root)

    def forget(self, root: Path) -> None:
        """Delete all of a project's. Raises StoreError."""
        with self._lock, self._trouble(), contextlib.suppress(FileNotFoundError):
            self._ages[root] += 1
            shutil.rmtree(self._of(root))

    def _check(self, root: Path, age: int) -> None:
        if age != self._ages[root]:
            raise StoreError(FORGOTTEN)

    def _of(self, root: Path) -> Path:
        return self._folder / hashlib.blake2b(os.fsencode(root), digest_size=8).hexdigest()

    def _ready(self, root: Path) -> Path:
        folder = self._of(root)
        for one in (self._folder, folder):
            one.mkdir(parents=True, exist_ok=True, mode=0o700)
            one.chmod(0o700)
        return folder

    def _prune(self, folder: Path) -> None:
        named = [(int(match[1]), name) for name in os.listdir(folder) if (match := _NAME.fullmatch(name))]
        for _, name in sorted(named)[:-ANSWERS_MAX]:
            (folder / name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _trouble(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f"The answer cannot be written to {self._folder}: {error.strerror or error}.") from error


def _create(file: Path, text: str) -> None:
    opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with open(opened, "w", encoding="utf-8", errors="replace", newline="") as stream:
        stream.write(text)
