"""Edits in an editor's documents: sent, and then seen to be done.

What an editor answers is a hint: Neovim says that it has applied an edit that was too late and that it has thrown
away. What it did is in the change that follows.

Invariant: between reading the text that edits are made for and sending them nothing else is handled.
Invariant: edits of one connection go out one after another, each as one edit per document, with the version of the
text that they were made for where the editor takes one.
Invariant: nothing is called applied before the editor's own text shows it, and nothing is applied twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.lsp.stream import TITLE
from qmlx_lsp.session.event import Job
from qmlx_lsp.workspace.document import Document
from qmlx_lsp.workspace.edits import Replace
from qmlx_lsp.workspace.positions import Encoding, LineIndex, to_lf
from qmlx_lsp.workspace.proposals import Plan
from qmlx_lsp.workspace.tool_output import LINE_CHARS_MAX, one_line

APPLY_S = 10.0
"""Seconds that an editor may take to answer an edit; its user may be asked."""
FOLLOW_S = 2.0
"""Seconds that the change may take to follow the answer; editors send changes up to 0.2 seconds late."""
ATTEMPTS_MAX = 3
"""How often an editor is asked at most, when its user types faster than edits come."""
ANNOTATION = "qmlx"

GONE = "the document is not open any more"
UNSEEN = "the editor said that it was applied, but its text does not show it"
UNANSWERED = "the editor has not answered"
UNCLEAR = "the editor's text is not what the edit was to make of it: look at it, and undo if need be"
CANCELLED = "cancelled, nothing was changed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether the editor's text shows the edit; if not, ``reason`` says why in one line."""

    applied: bool
    reason: str = ""


class Watch:
    """What becomes of a document behind an edit. ``text`` is the latest that is not what was wanted."""

    def __init__(self, connection: Connection, uri: str, done: Callable[[str], bool]) -> None:
        self.done = False
        self.text: str | None = None
        self.gone = False
        self.news = asyncio.Event()
        self._connection, self._uri, self._is_done = connection, uri, done
        self.stop = connection.watch(uri, self._seen)

    def _seen(self) -> None:
        document = self._connection.registry.mirror.copy(self._connection, self._uri)
        if document is None:
            self.gone = True
        elif document.synced and self._is_done(document.text):
            self.done = True
        else:
            self.text = document.text
        self.news.set()

    async def until_done(self, seconds: float, answer: asyncio.Future[types.ApplyWorkspaceEditResult] | None) -> bool:
        """Whether it is done within ``seconds``, or before there is an ``answer``."""
        try:
            async with asyncio.timeout(seconds):
                while not (self.done or self.gone):
                    self.news.clear()
                    news = asyncio.ensure_future(self.news.wait())
                    try:
                        waits: set[asyncio.Future[Any]] = {news} if answer is None else {news, answer}
                        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        news.cancel()
                    if answer is not None and answer.done() and not self.done:
                        return False
        except TimeoutError:
            return False
        return self.done


async def edit(connection: Connection, uri: str, job: Job, label: str, make: Callable[[str], Plan]) -> Outcome:
    """Have the editor do what ``make`` plans for its text as it is now; made anew for a newer text, if one comes in
    between. Cancelling ``job`` has no effect once an edit has been sent."""
    if not await job.unless_cancelled(connection.editing.acquire()):
        return Outcome(applied=False, reason=CANCELLED)
    try:
        if job.cancelled:
            return Outcome(applied=False, reason=CANCELLED)
        connection.disown(job)
        reason, counts = "", False
        for _ in range(ATTEMPTS_MAX):
            document = connection.registry.mirror.copy(connection, uri)
            if document is None or not document.synced:
                return Outcome(applied=False, reason=GONE)
            planned = make(document.text)
            if not planned.edits:
                return Outcome(applied=False, reason=planned.reason)
            if document.version == 0 and connection.client.unchecked_zero and not counts:
                counts = True
                await _count(connection, document)
                continue
            outcome, newer = await _attempt(connection, document, planned, label)
            if outcome.applied or newer is None:
                return outcome
            if planned.may_be_in(newer):
                return Outcome(applied=False, reason=UNCLEAR)
            reason = outcome.reason
        return Outcome(applied=False, reason=reason)
    finally:
        connection.editing.release()


async def _count(connection: Connection, document: Document) -> None:
    """Have an editor that does not check version 0 count on: an edit of nothing comes back as a change with a version
    that it does check, behind all that its user has typed and it has not sent yet."""
    watch = Watch(connection, document.uri, lambda _text: True)
    try:
        nothing = workspace_edit(connection, document, (Replace(0, 0, ""),), TITLE)
        if await send(connection, nothing, None, watch) is None and not watch.done:
            await watch.until_done(FOLLOW_S, None)
    finally:
        watch.stop()


async def _attempt(
    connection: Connection, document: Document, planned: Plan, label: str
) -> tuple[Outcome, str | None]:
    """Send the edit once; what became of it, and the newer text that it was too late for."""
    watch = Watch(connection, document.uri, planned.done)
    try:
        said = await send(connection, workspace_edit(connection, document, planned.edits, label), label, watch)
        if not watch.done and said is None:
            await watch.until_done(FOLLOW_S, None)
        elif not (watch.done or watch.gone or said == UNANSWERED) and watch.text is None:
            # Refused, most likely because a newer text is on its way here.
            await _until_newer(watch)
    finally:
        watch.stop()
    if watch.done:
        return Outcome(applied=True), None
    if watch.gone:
        return Outcome(applied=False, reason=GONE), None
    newer = watch.text if watch.text is not None and to_lf(watch.text) != to_lf(document.text) else None
    if said == UNANSWERED:  # it may still do it
        return Outcome(applied=False, reason=UNANSWERED), None
    return Outcome(applied=False, reason=said or (UNCLEAR if newer is not None else UNSEEN)), newer


async def _until_newer(watch: Watch) -> None:
    try:
        await asyncio.wait_for(watch.news.wait(), FOLLOW_S)
    except TimeoutError:
        return


async def send(connection: Connection, what: types.WorkspaceEdit, label: str | None, watch: Watch) -> str | None:
    """Send an edit, and wait for the answer or until it is seen to be done; why the editor says that it has not
    applied it, None if it does not say so."""
    metadata = types.WorkspaceEditMetadata(is_refactoring=False) if connection.client.refactors else None
    params = types.ApplyWorkspaceEditParams(edit=what, label=label, metadata=metadata)
    answer = asyncio.ensure_future(connection.protocol.send_request_async(types.WORKSPACE_APPLY_EDIT, params))
    try:
        await watch.until_done(APPLY_S, answer)
        if watch.done or watch.gone:
            return None
        if not answer.done():
            return UNANSWERED
        result = answer.result()
    except JsonRpcException as error:
        return f"the editor did not apply it ({one_line(str(error), LINE_CHARS_MAX)})"
    finally:
        answer.cancel()
    if getattr(result, "applied", None) is True:
        return None
    why = getattr(result, "failure_reason", None)
    return f"the editor did not apply it{f' ({one_line(str(why), LINE_CHARS_MAX)})' if why else ''}"


# --- what is sent --------------------------------------------------------------------------------------------------


def workspace_edit(
    connection: Connection, document: Document, edits: tuple[Replace, ...], label: str
) -> types.WorkspaceEdit:
    """``edits`` of ``document`` as this editor takes them."""
    found = text_edits(document.text, edits, connection.encoding)
    if not connection.client.versions:
        return types.WorkspaceEdit(changes={document.uri: found})
    which = types.OptionalVersionedTextDocumentIdentifier(uri=document.uri, version=document.version)
    if not connection.client.annotates:
        return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(text_document=which, edits=list(found))])
    annotated = [
        types.AnnotatedTextEdit(annotation_id=ANNOTATION, range=one.range, new_text=one.new_text) for one in found
    ]
    return types.WorkspaceEdit(
        document_changes=[types.TextDocumentEdit(text_document=which, edits=list(annotated))],
        change_annotations={ANNOTATION: types.ChangeAnnotation(label=label, needs_confirmation=False)},
    )


def text_edits(text: str, edits: tuple[Replace, ...], encoding: Encoding) -> list[types.TextEdit]:
    index = LineIndex(text)

    def place(offset: int) -> types.Position:
        line, character = index.position(offset, encoding)
        return types.Position(line=line, character=character)

    return [
        types.TextEdit(range=types.Range(start=place(one.start), end=place(one.end)), new_text=one.text)
        for one in edits
    ]
