"""One key of ``config.toml`` is written; everything else stays as its user wrote it, comments too.

Invariant: the file is replaced as a whole or not at all, and only by one that can be read with that value in it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from qmlx_lsp.errors import SettingsError
from qmlx_lsp.settings import load

OWNER_ONLY = 0o600


def write_key(config_file: Path, section: str, key: str, value: str) -> None:
    """Set ``section.key``, in a file that is made if there is none.

    Raises:
        SettingsError: the file is not as it should be, or cannot be written; it is as it was.
    """
    load(config_file, {})
    try:
        before = config_file.read_bytes().decode() if config_file.exists() else ""
        document = tomlkit.parse(before)
        if section not in document:
            document[section] = tomlkit.table()
        document[section][key] = value
        _replace(config_file.resolve(), tomlkit.dumps(document))
    except (OSError, TOMLKitError, UnicodeError) as error:
        raise SettingsError(f"{config_file} cannot be written: {error}.") from error


def _replace(file: Path, text: str) -> None:
    """As a whole, with the rights it had, where a link to it leads. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, made = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(text.encode())
            os.fsync(out.fileno())
        Path(made).chmod(file.stat().st_mode & 0o777 if file.exists() else OWNER_ONLY)
        _check(Path(made), file)
        Path(made).replace(file)
    finally:
        Path(made).unlink(missing_ok=True)


def _check(made: Path, file: Path) -> None:
    try:
        load(made, {})
    except SettingsError as error:
        raise SettingsError(str(error).replace(str(made), str(file))) from error
