"""Where a model comes from: ``embedded``, a folder, or a Hugging Face id. All three end as a local folder.

Invariant: what is on this disk is used without asking the network.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from qmlx_lsp.engine.backend import Report
from qmlx_lsp.engine.mlx import embedded
from qmlx_lsp.errors import Cancelled, DownloadError, ModelError

HUB_PATTERNS = ["*.json", "*.jinja", "model*.safetensors", "tokenizer.model", "*.tiktoken", "*.txt"]


def resolve(source: str, models: Path, report: Report, cancelled: Callable[[], bool]) -> Path:
    """The local folder of ``source``, fetching it if needed.

    Raises:
        ModelError: there is no such model, or it could not be fetched.
        Cancelled: ``cancelled()`` became true.
    """
    if source == embedded.NAME:
        return embedded.ensure(models, report, cancelled)
    return local_folder(source) or _from_hub(source, report, cancelled)


def local_folder(source: str) -> Path | None:
    """The folder of a folder's path or of a Hugging Face id that has been fetched; None when it has not.

    Raises:
        ModelError: ``source`` can be neither.
    """
    folder = Path(source).expanduser()
    if source and folder.is_dir():
        return folder
    return _fetched(checked_name(source))


def checked_name(source: str) -> str:
    """``source`` if it can be a Hugging Face id. Raises ModelError otherwise."""
    if source.startswith(("/", ".", "~")) or source.count("/") != 1:
        raise ModelError(
            f"There is no model {source!r}: give the folder of an MLX model, a Hugging Face id such as "
            "mlx-community/Qwen2.5-Coder-7B-Instruct-4bit, or 'embedded' ([model] name or QMLX_MODEL)."
        )
    return source


def _fetched(source: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(source, local_files_only=True, allow_patterns=HUB_PATTERNS))
    except LocalEntryNotFoundError:
        return None
    except HFValidationError as error:
        raise ModelError(f"{source!r} is not a model's name: {error}.") from error


def hub_models() -> list[str]:
    """Ids of the models in the Hugging Face cache that look like MLX models."""
    from huggingface_hub import CacheNotFound, scan_cache_dir

    try:
        found = scan_cache_dir()
    except CacheNotFound:
        return []
    return sorted(repo.repo_id for repo in found.repos if repo.repo_type == "model" and "/" in repo.repo_id)


def _from_hub(source: str, report: Report, cancelled: Callable[[], bool]) -> Path:
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read at import: nothing is told but what is fetched
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    what = f"downloading {source}"
    report(0, 0, what)
    try:
        bar = _progress_bar(what, report, cancelled)
        return Path(snapshot_download(source, allow_patterns=HUB_PATTERNS, tqdm_class=bar))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise DownloadError(
            f"The model {source} could not be fetched from Hugging Face: {first_line(error)} Check the name and the "
            "connection, or set [model] name to a folder or to 'embedded'."
        ) from error


def first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _progress_bar(what: str, report: Report, cancelled: Callable[[], bool]) -> Any:
    """A class of tqdm bars that turns the hub client's own progress into ours, and stops it when asked to.

    The client makes three bars: files, bytes received, bytes written. The last one has a total and is reported.
    Made at run time because tqdm has no types.
    """
    base: Any = import_module("tqdm.auto").tqdm

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        self.qmlx_counts_bytes = kwargs.get("unit") == "B" and kwargs.get("desc") != "Downloading bytes"
        self.qmlx_done = int(kwargs.get("initial") or 0)
        base.__init__(self, *args, **{**kwargs, "disable": True})
        # A disabled bar has neither; the client raises the total as it learns of files.
        self.total = kwargs.get("total")
        self.desc = kwargs.get("desc") or ""

    def update(self: Any, n: float | None = 1) -> None:
        if cancelled():
            raise Cancelled
        self.qmlx_done += int(n or 0)
        if self.qmlx_counts_bytes and self.total:
            report(min(self.qmlx_done, int(self.total)), int(self.total), what)

    return type("ProgressBar", (base,), {"__init__": init, "update": update})
