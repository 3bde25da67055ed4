"""Every error that a user can meet, as one small tree.

Each error is one line: what is wrong, named, and what to do about it. The command line prints that line
and exits with 2; the language server sends it as the message of the one answer to the request.

Invariant: nothing here is raised for a fault of our own. A broken assumption is an ``AssertionError`` and
shows as an internal error.
"""

from __future__ import annotations


class QmlxError(Exception):
    """Something the user can understand and mend. ``str(error)`` is one line without a line break."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class SettingsError(QmlxError):
    """A setting is unknown, of the wrong type or out of range; names the key, the file and what is allowed."""


class PathError(QmlxError):
    """A folder cannot be used (not writable, too long for a socket); names the folder and the remedy."""


class ModelError(QmlxError):
    """The model cannot be found, loaded or used; names the model."""


class DownloadError(ModelError):
    """Fetching a model failed; nothing was installed."""


class TemplateError(ModelError):
    """The model's chat template or tokenizer cannot be used for append-only rendering; says which part."""


class QuestionError(QmlxError):
    """The question itself cannot be asked: empty, outside every root, about an oversized file, too long."""


class ToolError(QmlxError):
    """A tool cannot be run: unknown, badly described in ``.qmlx.toml``, not trusted, not found, running already."""


class DaemonError(QmlxError):
    """The daemon cannot be reached, started or stopped."""


class StoreError(QmlxError):
    """The conversation log or the checkpoint store cannot be opened or written."""


class CheckpointRejected(QmlxError):
    """A checkpoint that was found cannot be trusted. ``reason`` is one word for ``usage.reason``.

    Invariant: whoever catches this treats it as a miss; it never reaches the user as a failed turn.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Cancelled(Exception):
    """Work stopped because it was asked to. Not a fault, so not a ``QmlxError``."""
