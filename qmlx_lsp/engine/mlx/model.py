"""From a model's name to a loaded model: the folder, its checks, an adapter, its plain-data description.

A source is ``embedded``, a folder in mlx-lm's layout, or a Hugging Face id. All three end as a folder and go the
same way from there. Nothing in a folder is ever changed here.

Invariant: what cannot work is refused when the model is loaded, in one line, and not in the middle of a turn.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import QuantizedKVCache
from mlx_lm.utils import load_adapters, load_model, load_tokenizer

from qmlx_lsp.engine.backend import ModelInfo, Report
from qmlx_lsp.engine.mlx.caches import adapter, make_caches, parts, unknown_classes
from qmlx_lsp.engine.mlx.fingerprint import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    fingerprint,
    safetensors_header,
    weight_files,
)
from qmlx_lsp.engine.mlx.source import first_line, resolve
from qmlx_lsp.errors import ModelError, TemplateError

# What mlx and mlx-lm raise for a model, an adapter or a pass that cannot work. They promise nothing narrower.
REFUSALS = (ValueError, KeyError, TypeError, OSError, RuntimeError, AttributeError, IndexError)
DEFAULT_CONTEXT_TOKENS = 4096


class CodedTemplate:
    """The chat template of a model whose tokenizer has it as Python code instead of Jinja. May be used on any
    thread. Such code writes no date."""

    def __init__(self, name: str, tokenizer: Any) -> None:
        self._name = name
        self._tokenizer = tokenizer

    def render(
        self, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any], *, generate: bool, day: date
    ) -> str:
        thinking = bool(variables.get("enable_thinking"))
        try:
            # enable_thinking is always passed: left out, mlx-lm turns it on.
            text = self._tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=generate, enable_thinking=thinking
            )
        except (*REFUSALS, AssertionError) as error:  # by which such code refuses
            said = first_line(error)
            raise TemplateError(
                f"The chat template of {self._name} does not render a conversation: {said}"
            ) from error
        return str(text)


def chat_template(name: str, tokenizer: Any) -> str | CodedTemplate | None:
    """The source of a tokenizer's template, or what renders it; None when it has none."""
    if tokenizer._chat_template is not None:
        return CodedTemplate(name, tokenizer)
    found = tokenizer._tokenizer.chat_template
    if isinstance(found, dict):  # several by name
        found = found.get("default") or next(iter(found.values()), None)
    if isinstance(found, str):
        return found
    return CodedTemplate(name, tokenizer) if tokenizer.has_chat_template else None


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
        header, start = safetensors_header(file)
        ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
    except (OSError, ValueError, struct.error, KeyError, TypeError) as error:
        raise ModelError(f"The weights {file} are damaged (no readable header); fetch the model again.") from error
    want, have = start + max(ends, default=0), file.stat().st_size
    if have < want:
        raise ModelError(f"The weights {file} are cut short ({have:,} of {want:,} bytes); fetch the model again.")


def load(
    source: str,
    models: Path,
    report: Report,
    cancelled: Callable[[], bool],
    *,
    kv_bits: int = 0,
    adapter_folder: Path | None = None,
) -> tuple[Any, ModelInfo]:
    """The model, with the adapter in ``adapter_folder`` if there is one, and its description.

    Raises:
        ModelError: one line that names the model, what is wrong and the remedy.
        Cancelled: ``cancelled()`` became true.
    """
    folder = resolve(source, models, report, cancelled)
    config = check_folder(folder, source)
    report(0, 0, f"loading {source}")
    try:
        model, _ = load_model(folder)
    except REFUSALS as error:
        raise ModelError(f"The model {source} ({folder}) cannot be loaded: {first_line(error)}") from error
    if adapter_folder is not None:
        add_adapter(source, model, adapter_folder)
    if kv_bits:
        check_kv_bits(source, model, kv_bits)
    try:
        tokenizer = load_tokenizer(folder, eos_token_ids=config.get("eos_token_id"))
    except Exception as error:  # the tokenizers library raises nothing narrower
        raise ModelError(f"The tokenizer of {source} ({folder}) cannot be loaded: {first_line(error)}") from error
    digest = fingerprint(folder, config, kv_bits=kv_bits, adapter_folder=adapter_folder)
    return model, describe(source, folder, config, make_caches(model, kv_bits), model, tokenizer, digest)


def add_adapter(name: str, model: Any, folder: Path) -> None:
    """Put the trained layers in ``folder`` (as mlx-lm writes them) on top of ``model``.

    Raises:
        ModelError: the folder is none of an adapter, or of another model's.
    """
    for file in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        if not (folder / file).is_file():
            raise ModelError(f"The adapter {folder} ([model] adapter) has no {file}, which mlx-lm writes.")
    _check_whole(folder / ADAPTER_WEIGHTS)
    try:
        load_adapters(model, str(folder))
        model.eval()
        mx.eval(model.parameters())
    except REFUSALS as error:
        said = " ".join(str(error).split())[:200]
        raise ModelError(f"The adapter {folder} ([model] adapter) does not fit the model {name}: {said}") from error


def check_kv_bits(name: str, model: Any, kv_bits: int) -> None:
    """Build the graph of a pass of several tokens and one of a single token; nothing is computed.

    Raises:
        ModelError: the model cannot hold its keys and values in so many bits.
    """
    caches = make_caches(model, kv_bits)
    said = None
    if not any(type(cache) is QuantizedKVCache for cache in parts(caches).values()):
        said = "it has no cache of a class that can be quantised."
    try:
        for count in (2, 1):
            model(mx.array([[0] * count]), cache=caches)
    except REFUSALS as error:
        said = first_line(error)
    if said:
        raise ModelError(
            f"The model {name} cannot hold its keys and values in {kv_bits} bits: {said.rstrip('.')}. "
            "Set [model] kv_bits = 0."
        )


def describe(
    name: str,
    folder: Path,
    config: Mapping[str, Any],
    caches: Sequence[Any],
    model: Any,
    tokenizer: Any,
    digest: bytes,
) -> ModelInfo:
    """What is to be known of a loaded model above the engine."""
    backend_tokenizer = getattr(tokenizer._tokenizer, "backend_tokenizer", None)
    if backend_tokenizer is None:
        raise ModelError(f"The model {name} has no fast tokenizer (tokenizer.json), which qmlx-lsp needs.")
    unknown = unknown_classes(caches)
    return ModelInfo(
        name=name,
        path=str(folder),
        fingerprint=digest,
        context_tokens=_context_tokens(config),
        weight_bytes=_parameter_bytes(model),
        eos_ids=frozenset(int(i) for i in tokenizer.eos_token_ids),
        needs_snapshot=not unknown and any(adapter(cache).snapshot for cache in parts(caches).values()),
        tokenizer_json=backend_tokenizer.to_str(),
        template=chat_template(name, tokenizer),
        tokens={key: text for key, text in tokenizer._tokenizer.special_tokens_map.items() if isinstance(text, str)},
        think=(tokenizer.think_start, tokenizer.think_end) if tokenizer.has_thinking else None,
        call=(tokenizer.tool_call_start, tokenizer.tool_call_end) if tokenizer.has_tool_calling else None,
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
