"""One key per document, however a client spells its URI, and the way between URIs and paths.

It must never decode twice (a file may be named ``a%20b``), never take two files for one, and never turn a document
of another scheme or another host into a local path.

Invariant: ``canonical_uri(canonical_uri(u)) == canonical_uri(u)``, so a key may be used wherever a URI may.
Invariant: ``uri_to_path(path_to_uri(p)) == p`` for every tidy absolute path, undecodable bytes included.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_to_bytes

from qmlx_lsp.workspace.document import without_lone_surrogates

PATH_BYTES_MAX = 4096
"""Bytes of a path at most: what Linux allows; macOS allows 1,024."""
NAME_BYTES_MAX = 1024
"""Bytes of a name in a path at most. Linux and macOS allow 255, network file systems more."""
FOLDERS_MAX = 256
"""Folders on the way to a file at most. Nobody nests them so deep, and what is private is asked for each."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_AUTHORITY = re.compile(r"//([^/]*)")
_DRIVE = re.compile(r"/[A-Za-z]:(?=/|$)")
_NEEDLESS = re.compile(r"/(?:\.?/)+")
_LOCAL = frozenset({"", "localhost"})
_SAFE_IN_PATH = "/:@!$&'()*+,;=~"
_SAFE_ELSEWHERE = _SAFE_IN_PATH + "?#[]"


def canonical_uri(uri: str) -> str:
    """The key of a document: percent-decoded exactly once and spelled again by one rule.

    ``file`` URIs lose a ``localhost``, doubled and trailing slashes, and the case of a drive letter. Names that
    differ in Unicode normalisation are different files and stay so. Other schemes are respelled only.
    """
    scheme, rest = _split(uri)
    if not scheme:
        # A decoded colon would make a scheme of what is none.
        return quote(unquote_to_bytes(rest), safe=_SAFE_ELSEWHERE.replace(":", ""))
    if scheme != "file":
        return f"{scheme}:{quote(unquote_to_bytes(rest), safe=_SAFE_ELSEWHERE)}"
    host, path = _file_parts(rest)
    if not host and not path.startswith("/"):
        return f"file:{_quoted(path)}"
    if _DRIVE.match(path):
        path = path[:1] + path[1].lower() + path[2:]
    return f"file://{host}{_quoted(path)}"


def uri_to_path(uri: str) -> str | None:
    """The local absolute path of a ``file`` URI; ``None`` for any other scheme, another host, no absolute path, and
    for what can be the name of no file.

    Bytes that are not UTF-8 come as the lone surrogates that ``os`` functions understand.
    """
    scheme, rest = _split(uri)
    if scheme != "file":
        return None
    host, path = _file_parts(rest)
    return path if not host and path.startswith("/") and is_path(path) else None


def is_path(path: str) -> bool:
    """Whether a file system may hold something of that name. To ask it about others is an error, or takes long."""
    try:
        raw = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate that stands for no byte
        return False
    names = raw.split(b"/")
    fits = len(raw) < PATH_BYTES_MAX and len(names) <= FOLDERS_MAX + 1 and max(map(len, names)) <= NAME_BYTES_MAX
    return fits and b"\0" not in raw


def path_to_uri(path: str) -> str:
    """The ``file`` URI of an absolute path.

    Raises ``ValueError`` for a path that is not absolute or could not be one of this file system.
    """
    if not path.startswith("/"):
        raise ValueError(f"not an absolute path: {path!r}")
    return f"file://{_quoted(path)}"


def _split(uri: str) -> tuple[str, str]:
    """Scheme in lower case (``""`` if there is none) and what follows the colon."""
    uri = without_lone_surrogates(uri)
    match = _SCHEME.match(uri)
    return (match[1].lower(), uri[match.end() :]) if match else ("", uri)


def _file_parts(rest: str) -> tuple[str, str]:
    """Host (``""`` for this machine) and decoded path. What looks like a query is part of the file's name."""
    match = _AUTHORITY.match(rest)
    host = match[1].lower() if match else ""
    path = unquote_to_bytes(rest[match.end() :] if match else rest).decode("utf-8", "surrogateescape")
    path = _NEEDLESS.sub("/", path)
    if len(path) > 1:
        path = path.rstrip("/")
    return "" if host in _LOCAL else host, path


def _quoted(path: str) -> str:
    return quote(path.encode("utf-8", "surrogateescape"), safe=_SAFE_IN_PATH)
