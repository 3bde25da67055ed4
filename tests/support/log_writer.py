"""A conversation log that is written while a command reads it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from qmlx_lsp.storage.conversations import Conversation, ConversationLog
from qmlx_lsp.storage.history import Epoch, History, Told
from qmlx_lsp.transcript.entry import Entry, Finish, Kind

BEGAN = 1_700_000_000.0
SYSTEM = Entry(Kind.SYSTEM, "You help.", (1, 2, 3), 0)
HEADER = (7, 8)


class Writer:
    """Says things in the conversation of ``/project``, as a daemon would."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = ConversationLog(path, clock=lambda: BEGAN)
        self.conversation: Conversation = self.log.open("/project", "identity")

    @property
    def end(self) -> int:
        entries = self.log.entries(self.conversation)
        return entries[-1].end if entries else 0

    def say(self, kind: Kind, text: str, path: str | None = None, tool: str | None = None) -> None:
        entry = Entry(kind, text, (10, 11), self.end, path=path, tool=tool)
        self.log.append(self.conversation, [entry], {})

    def begin(self) -> int:
        return self.log.begin_reply(self.conversation, Entry(Kind.ASSISTANT, "", HEADER, self.end, Finish.OPEN))

    def journal(self, turn: int, text: str) -> None:
        self.log.journal_reply(turn, [*HEADER, *range(100, 100 + len(text))], text)

    def finish(self, turn: int, text: str, finish: Finish = Finish.COMPLETE) -> None:
        entry = self.log.entries(self.conversation)[-1]
        ids = (*HEADER, *range(100, 100 + len(text)))
        self.log.finish_reply(turn, replace(entry, ids=ids, text=text, finish=finish), {})

    def reply(self, text: str, finish: Finish = Finish.COMPLETE) -> int:
        turn = self.begin()
        self.finish(turn, text, finish)
        return turn

    def new_epoch(self, why: str, *opening: Entry) -> None:
        self.conversation = self.log.new_epoch(self.conversation, "identity", why=why, opening=opening)


def read(writer: Writer) -> tuple[list[Epoch], list[Told]]:
    """What ``log`` reads of it."""
    with closing(History(writer.path)) as history:
        conversation = history.find("/project")
        assert conversation is not None
        return history.epochs(conversation), history.entries(conversation)
