"""The configured model's tokenizer and chat template, read from its folder.

It must never load the model, fetch it or change its folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qmlx_lsp import paths
from qmlx_lsp.errors import ModelError, QmlxError
from qmlx_lsp.settings import Settings
from qmlx_lsp.transcript.encoder import Codec
from qmlx_lsp.transcript.families import template_for

if TYPE_CHECKING:
    from qmlx_lsp.transcript.template import JinjaTemplate


@dataclass(frozen=True, slots=True)
class ModelText:
    """How a model's text becomes ids, and a conversation its text. ``template`` is None where there is none that
    could be rendered here; ``missing`` then says why."""

    name: str
    codec: Codec
    template: JinjaTemplate | None
    missing: str = ""


def folder(name: str, where: paths.Paths) -> Path | None:
    """The folder of the model ``name``, if it has one on this disk."""
    from qmlx_lsp.engine.mlx import embedded, source

    if name == embedded.NAME:
        found = where.models / embedded.FOLDER
        return found if found.is_dir() else None
    try:
        return source.local_folder(name)
    except QmlxError:
        return None  # such as "scripted"


def codec(name: str, found: Path) -> Codec:
    """The tokenizer in the folder ``found``. Raises OSError, ValueError, KeyError, TypeError or TemplateError."""
    return Codec(name, (found / "tokenizer.json").read_text(encoding="utf-8"))


def read(settings: Settings, where: paths.Paths) -> ModelText:
    """Tokenizer and template of the configured model.

    Raises:
        ModelError: it has no folder on this disk, or none that can be read; says what is needed.
        TemplateError: its template is not valid.
    """
    from qmlx_lsp.transcript.template import JinjaTemplate  # which loads Jinja

    name = settings.model.name
    found = folder(name, where)
    if found is None:
        raise ModelError(
            f"This needs the tokenizer and the chat template of the model {name}, which has no folder on this disk: "
            "fetch it with `qmlx-lsp model pull`, or name the conversation's model ([model] name or QMLX_MODEL)."
        )
    try:
        made = codec(name, found)
        config = _json(found / "tokenizer_config.json")
        source, missing = _template(name, found, config, made)
        tokens = {**_tokens(_json(found / "special_tokens_map.json")), **_tokens(config)}
    except QmlxError:
        raise
    except Exception as error:  # the tokenizers library raises nothing narrower
        said = next(iter(str(error).splitlines()), type(error).__name__)
        raise ModelError(f"The tokenizer of {name} ({found}) cannot be read: {said}") from error
    return ModelText(name, made, JinjaTemplate(name, source, tokens) if source is not None else None, missing)


def _json(file: Path) -> Mapping[str, Any]:
    if not file.exists():
        return {}
    found = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise ModelError(f"{file} is no JSON object; fetch the model again.")
    return found


def _template(name: str, found: Path, config: Mapping[str, Any], made: Codec) -> tuple[str | None, str]:
    """The source of the model's own template, else that of its family; else why there is none."""
    if config.get("chat_template_type"):
        return None, f"The chat template of {name} is program code, which is not run here: give the rendered text."
    file = found / "chat_template.jinja"
    given = file.read_text(encoding="utf-8") if file.exists() else config.get("chat_template")
    if isinstance(given, list):  # several by name
        given = {str(one["name"]): one["template"] for one in given}
    if isinstance(given, dict):
        given = given.get("default") or next(iter(given.values()), None)
    if isinstance(given, str):
        return given, ""
    family = template_for(made.controls)
    if family is not None:
        return family[1], ""
    return None, f"The model {name} has no chat template and is of no known family: give the rendered text."


def _tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """The texts that templates know by name, such as ``bos_token``."""
    found: dict[str, str] = {}
    for key, given in config.items():
        text = given.get("content") if isinstance(given, dict) else given
        if key.endswith("_token") and isinstance(text, str):
            found[key] = text
    return found
