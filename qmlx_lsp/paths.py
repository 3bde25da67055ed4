"""Where things live. ``QMLX_HOME`` moves everything into one folder; otherwise the platform's own folders.

Standard library only on the way that the connector takes (platformdirs is imported when ``QMLX_HOME`` is not set).

Invariant: asking for a path creates nothing; ``prepare`` does, with folders that only their owner can read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from qmlx_lsp.errors import PathError

# sockaddr_un on macOS holds 104 bytes with the closing NUL; Linux has 108. The smaller one is the limit everywhere.
SOCKET_PATH_BYTES_MAX = 103


@dataclass(frozen=True, slots=True)
class Paths:
    """The five folders and what lies in them."""

    config: Path
    data: Path
    cache: Path
    runtime: Path
    log: Path

    @property
    def config_file(self) -> Path:
        return self.config / "config.toml"

    @property
    def conversations(self) -> Path:
        return self.data / "conversations.sqlite3"

    @property
    def checkpoints(self) -> Path:
        return self.cache / "checkpoints"

    @property
    def answers(self) -> Path:
        return self.cache / "answers"

    @property
    def models(self) -> Path:
        return self.cache / "models"

    @property
    def blas(self) -> Path:
        return self.cache / "blas"

    @property
    def socket(self) -> Path:
        return self.runtime / "daemon.sock"

    @property
    def lock(self) -> Path:
        return self.runtime / "daemon.lock"

    @property
    def log_file(self) -> Path:
        return self.log / "daemon.log"

    def prepare(self) -> None:
        """Make the folders, 0700, and check that they can be used.

        Raises:
            PathError: one cannot be made or written to, or the socket's path is too long.
        """
        check_socket_path(self.socket)
        for folder in (self.config, self.data, self.cache, self.runtime, self.log):
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as error:
                raise PathError(_unusable(folder, error.strerror or str(error))) from error
            if folder == self.runtime and folder.stat().st_mode & 0o077:
                _make_private(folder)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PathError(_unusable(folder, "it is not writable"))


def _make_private(folder: Path) -> None:
    """The socket's folder is ours alone, also where it was there before."""
    try:
        folder.chmod(0o700)
    except OSError as error:
        raise PathError(_unusable(folder, "others can write to it")) from error


def check_socket_path(path: Path) -> None:
    """Raises PathError when a Unix socket cannot have this path."""
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_BYTES_MAX:
        raise PathError(
            f"The socket path {path} has {length} bytes, more than the {SOCKET_PATH_BYTES_MAX} that the system "
            "allows: set QMLX_HOME to a folder with a shorter path."
        )


def find() -> Paths:
    """The paths of this user, from ``QMLX_HOME`` or the platform."""
    home = os.environ.get("QMLX_HOME")
    if home:
        base = Path(home).expanduser().absolute()
        return Paths(base / "config", base / "data", base / "cache", base / "run", base / "log")
    import platformdirs

    here = platformdirs.PlatformDirs("qmlx-lsp", appauthor=False)
    return Paths(
        config=here.user_config_path,
        data=here.user_data_path,
        cache=here.user_cache_path,
        runtime=_runtime(os.environ.get("XDG_RUNTIME_DIR"), here.user_cache_path),
        log=here.user_log_path,
    )


def project(given: str) -> Path:
    """A project's folder by its one name: absolute, without ``..`` and symbolic links, as editors' roots are."""
    return Path(os.path.realpath(given))


def _runtime(system: str | None, cache: Path) -> Path:
    """The system's runtime folder for us, or one below the cache where there is none (no login session, macOS)."""
    return Path(system) / "qmlx-lsp" if system and Path(system).is_dir() else cache / "run"


def _unusable(folder: Path, reason: str) -> str:
    return f"The folder {folder} cannot be used ({reason}): make it writable or set QMLX_HOME to another folder."
