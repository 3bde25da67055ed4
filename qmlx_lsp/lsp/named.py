"""The document that a plain text names, in a command that its user has typed or bound to a key.

An absolute path, a URI, a path below ``~``, or one below the folder in which the editor works (`%{buffer_name}` of
Helix): then it is the document of that name that this editor shows, or else the file of that name in one of its
folders. Of several it is the one below the folder in which the editor was started, where its user has most likely
stayed.

Invariant: no name is guessed: where two documents bear it and neither is that one, it is refused.
"""

from __future__ import annotations

import os
import reprlib
from pathlib import Path

from qmlx_lsp.errors import QuestionError
from qmlx_lsp.lsp.connection import Connection
from qmlx_lsp.workspace.uris import is_path, path_to_uri, uri_to_path


def named(connection: Connection, place: str) -> str:
    """The URI. Raises QuestionError."""
    if place.startswith("~/"):
        place = str(Path(place).expanduser())
    if place.startswith("/") and is_path(place):
        return path_to_uri(place)
    if ":" in place and not place.startswith("/"):
        return place
    found = _shown(connection, place) or _in_folders(connection, place)
    if len(found) > 1 and connection.folder is not None:
        below = os.path.normpath(os.path.join(connection.folder, place))  # noqa: PTH118 - `..` stays text
        found = [below] if below in found else found
    if len(found) == 1:
        return path_to_uri(found[0])
    shown = reprlib.repr(place)
    if found:
        raise QuestionError(f"{shown} may be {' or '.join(found)}: give an absolute path.")
    raise QuestionError(f"There is no {shown} here: give an absolute path, or one below a folder that is open.")


def _shown(connection: Connection, place: str) -> list[str]:
    uris = connection.registry.mirror.uris(connection)
    paths = {path for uri in uris if (path := uri_to_path(uri)) is not None}
    return sorted(path for path in paths if path.endswith(f"/{place}"))


def _in_folders(connection: Connection, place: str) -> list[str]:
    """Blocking, for one look at each folder."""
    if not is_path(f"/{place}"):
        return []
    files = {os.path.normpath(root / place) for root in connection.roots}
    return sorted(file for file in files if Path(file).is_file())
