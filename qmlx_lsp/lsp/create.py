"""New files, made by the editor as documents of its own.

Invariant: nothing that is there is written over, neither a file nor what somebody has open; the editor is told so.
Invariant: a file is called made only when it has been seen, in the editor or on the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container
from pathlib import Path

from lsprotocol import types

from qmlx_lsp.lsp import answers, apply
from qmlx_lsp.lsp.apply import CANCELLED, Outcome
from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.session.event import Job
from qmlx_lsp.workspace.mirror import canonical_uri, path_to_uri
from qmlx_lsp.workspace.positions import to_lf

UNABLE = "this editor makes no files for others"
UNSEEN = "the editor said that it made one, but what is in it has not been seen"
NO_NAME = "every name for it is taken"


Name = Callable[[Callable[[str], bool]], str | None]


async def create(
    connection: Connection, root: Path, job: Job, label: str, text: str, name: Name
) -> tuple[Outcome, Path | None]:
    """Have the editor make a file with ``text`` below ``root``; ``name(taken)`` gives a relative name that is not
    taken. Cancelling ``job`` has no effect once that has been sent."""
    if not connection.client.creates:
        return Outcome(applied=False, reason=UNABLE), None
    if not await job.unless_cancelled(connection.editing.acquire()):
        return Outcome(applied=False, reason=CANCELLED), None
    try:
        held = {canonical_uri(uri) for uri in connection.registry.mirror.open_uris()}
        chosen = await asyncio.to_thread(name, lambda path: _taken(root / path, held))
        if job.cancelled:
            return Outcome(applied=False, reason=CANCELLED), None
        if chosen is None:
            return Outcome(applied=False, reason=NO_NAME), None
        connection.disown(job)
        return await _create(connection, root / chosen, label, text), root / chosen
    finally:
        connection.editing.release()


def _taken(file: Path, held: Container[str]) -> bool:
    """Whether there is anything of that name on the disk, a link that leads nowhere included, or in an editor."""
    return canonical_uri(path_to_uri(str(file))) in held or file.is_symlink() or file.exists()


async def _create(connection: Connection, file: Path, label: str, text: str) -> Outcome:
    uri = path_to_uri(str(file))
    watch = apply.Watch(connection, uri, lambda seen: _same(seen, text))
    try:
        said = await apply.send(connection, _new_file(connection, uri, label, text), label, watch)
        if said is not None:
            return Outcome(applied=False, reason=said)
        if not watch.done:
            await watch.until_done(apply.FOLLOW_S, None)
        if not watch.done and await answers.show_file(connection, file):
            # An editor may say nothing of documents that nobody looks at.
            await watch.until_done(apply.FOLLOW_S, None)
    finally:
        watch.stop()
    if watch.done or await asyncio.to_thread(_holds, file, text):
        return Outcome(applied=True)
    return Outcome(applied=False, reason=UNSEEN)


def _same(seen: str, text: str) -> bool:
    return to_lf(seen).rstrip("\n") == to_lf(text).rstrip("\n")


def _holds(file: Path, text: str) -> bool:
    try:
        return _same(file.read_text(encoding="utf-8"), text)
    except (OSError, ValueError):
        return False


def _new_file(connection: Connection, uri: str, label: str, text: str) -> types.WorkspaceEdit:
    annotates = connection.client.annotates
    mine = apply.ANNOTATION if annotates else None
    options = types.CreateFileOptions(overwrite=False, ignore_if_exists=False)
    start = types.Position(line=0, character=0)
    span = types.Range(start=start, end=start)
    whole: types.TextEdit | types.AnnotatedTextEdit = types.TextEdit(range=span, new_text=text)
    if annotates:
        whole = types.AnnotatedTextEdit(annotation_id=apply.ANNOTATION, range=span, new_text=text)
    which = types.OptionalVersionedTextDocumentIdentifier(uri=uri, version=None)
    return types.WorkspaceEdit(
        document_changes=[
            types.CreateFile(uri=uri, kind="create", options=options, annotation_id=mine),
            types.TextDocumentEdit(text_document=which, edits=[whole]),
        ],
        change_annotations={apply.ANNOTATION: types.ChangeAnnotation(label=label)} if annotates else None,
    )
