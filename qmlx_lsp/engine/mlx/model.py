"""From a model's name to a loaded model: the folder, its checks, its fingerprint, its plain-data description.

A source is ``embedded``, a folder in mlx-lm's layout, or a Hugging Face id. All three end as a folder and go the
same way from there.

Invariant: the fingerprint changes whenever a state computed before could differ from one computed now: weights
(sizes, headers and samples of every tensor's bytes), config, mlx and mlx-lm version. It does not change when the
folder is moved or touched.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import load_model, load_tokenizer

from qmlx_lsp.engine.backend import ModelInfo, Report
from qmlx_lsp.engine.mlx.caches import adapter, parts, unknown_classes
from qmlx_lsp.engine.mlx.source import first_line, resolve
from qmlx_lsp.errors import ModelError, TemplateError

STATE_FORMAT = 1  # raise it when what a checkpoint holds changes its meaning
SAMPLE_BYTES = 1024
DEFAULT_CONTEXT_TOKENS = 4096


class HubTemplate:
    """The chat template of a loaded tokenizer. Only Python and Jinja; may be used on any thread."""

    def __init__(self, name: str, tokenizer: Any) -> None:
        self._name = name
        self._tokenizer = tokenizer

    def render(self, messages: Sequence[Mapping[str, Any]], *, generate: bool, thinking: bool) -> str:
        from jinja2 import TemplateError as JinjaError

        try:
            # enable_thinking is always passed: left out, mlx-lm turns it on behind the template's back.
            text = self._tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=generate, enable_thinking=thinking
            )
        except (JinjaError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise TemplateError(
                f"The chat template of {self._name} does not render a conversation: {error}."
            ) from error
        return str(text)


def check_folder(folder: Path, name: str) -> dict[str, Any]:
    """The model's config, after checking that the folder can hold a model and that no weight file is cut short.

    Raises:
        ModelError: names the file and the remedy.
    """
    config_path = folder / "config.json"
    try:
        config = json.loads(config_path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"The folder {folder} is no MLX model: it has no config.json.") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"The model {name} has an unreadable config.json ({config_path}): {error}.") from error
    if not isinstance(config, dict) or "model_type" not in config:
        raise ModelError(f"The model {name} has a config.json without model_type ({config_path}).")
    files = weight_files(folder)
    if not files:
        raise ModelError(f"The folder {folder} has a config.json but no weights (model*.safetensors).")
    for file in files:
        _check_whole(file)
    _check_complete(folder, files)
    return config


def weight_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("model*.safetensors"))


def _check_complete(folder: Path, files: Sequence[Path]) -> None:
    """Every file that the index names, if there is an index, must be there."""
    index = folder / "model.safetensors.index.json"
    try:
        named = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"The index {index} is damaged; fetch the model again.") from error
    missing = sorted(named - {file.name for file in files})
    if missing:
        raise ModelError(f"The model in {folder} lacks {', '.join(missing[:3])}; fetch the model again.")


def _check_whole(file: Path) -> None:
    try:
        header, start = _safetensors_header(file)
        ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
    except (OSError, ValueError, struct.error, KeyError, TypeError) as error:
        raise ModelError(f"The weights {file} are damaged (no readable header); fetch the model again.") from error
    want, have = start + max(ends, default=0), file.stat().st_size
    if have < want:
        raise ModelError(f"The weights {file} are cut short ({have:,} of {want:,} bytes); fetch the model again.")


def _safetensors_header(file: Path) -> tuple[dict[str, Any], int]:
    """The JSON header and the position of the data behind it."""
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > file.stat().st_size:
            raise ValueError("header longer than the file")
        header = json.loads(stream.read(length))
    if not isinstance(header, dict):
        raise TypeError("header is not an object")
    return header, 8 + length


def fingerprint(folder: Path, config: Mapping[str, Any]) -> bytes:
    """Digest (16 bytes) of everything that makes a state reusable; see the module's invariant.

    Reading whole weights (70 GB and more) would cost a minute at every start. Two sets of weights that differ,
    differ nearly everywhere, so the first and last kilobyte of every tensor tell them apart.
    """
    digest = hashlib.blake2b(digest_size=16)
    for version in ("mlx", "mlx-lm"):
        digest.update(f"{version} {metadata.version(version)}\n".encode())
    digest.update(f"format {STATE_FORMAT}\n".encode())
    digest.update(json.dumps(config, sort_keys=True).encode())
    for file in weight_files(folder):
        header, start = _safetensors_header(file)
        digest.update(json.dumps(header, sort_keys=True).encode())
        with file.open("rb") as stream:
            for name in sorted(key for key in header if key != "__metadata__"):
                first, last = header[name]["data_offsets"]
                for at in (first, max(first, last - SAMPLE_BYTES)):
                    stream.seek(start + at)
                    digest.update(stream.read(min(SAMPLE_BYTES, last - first)))
    return digest.digest()


def load(source: str, models: Path, report: Report, cancelled: Callable[[], bool]) -> tuple[Any, ModelInfo]:
    """The model and its description.

    Raises:
        ModelError: one line that names the model, what is wrong and the remedy.
        Cancelled: ``cancelled()`` became true.
    """
    folder = resolve(source, models, report, cancelled)
    config = check_folder(folder, source)
    report(0, 0, f"loading {source}")
    try:
        model, config = load_model(folder)
    except (ValueError, KeyError, TypeError, OSError, RuntimeError, AttributeError) as error:
        raise ModelError(f"The model {source} ({folder}) cannot be loaded: {first_line(error)}") from error
    try:
        tokenizer = load_tokenizer(folder, eos_token_ids=config.get("eos_token_id"))
    except Exception as error:  # the tokenizers library raises nothing narrower
        raise ModelError(f"The tokenizer of {source} ({folder}) cannot be loaded: {first_line(error)}") from error
    return model, describe(source, folder, config, model, tokenizer)


def describe(name: str, folder: Path, config: Mapping[str, Any], model: Any, tokenizer: Any) -> ModelInfo:
    """What is to be known of a loaded model above the engine."""
    backend_tokenizer = getattr(tokenizer._tokenizer, "backend_tokenizer", None)
    if backend_tokenizer is None:
        raise ModelError(f"The model {name} has no fast tokenizer (tokenizer.json), which qmlx-lsp needs.")
    caches = make_prompt_cache(model)
    unknown = unknown_classes(caches)
    return ModelInfo(
        name=name,
        path=str(folder),
        fingerprint=fingerprint(folder, config),
        context_tokens=_context_tokens(config),
        weight_bytes=_parameter_bytes(model),
        eos_ids=frozenset(int(i) for i in tokenizer.eos_token_ids),
        needs_snapshot=not unknown and any(adapter(cache).snapshot for cache in parts(caches).values()),
        tokenizer_json=backend_tokenizer.to_str(),
        template=HubTemplate(name, tokenizer),
        think=(tokenizer.think_start, tokenizer.think_end) if tokenizer.has_thinking else None,
        not_persisted=f"its cache class {', '.join(unknown)} is not supported" if unknown else None,
    )


def _context_tokens(config: Mapping[str, Any]) -> int:
    for part in (config, config.get("text_config") or {}):
        found = part.get("max_position_embeddings")
        if isinstance(found, int) and found > 0:
            return found
    return DEFAULT_CONTEXT_TOKENS


def _parameter_bytes(model: Any) -> int:
    from mlx.utils import tree_flatten

    return sum(array.nbytes for _, array in tree_flatten(model.parameters()) if isinstance(array, mx.array))
