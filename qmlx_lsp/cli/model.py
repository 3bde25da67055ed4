"""``qmlx-lsp model list|pull|show|use``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from qmlx_lsp import paths
from qmlx_lsp.cli.output import bar, json_lines, size
from qmlx_lsp.errors import ModelError
from qmlx_lsp.settings import env_name, load


def add(verbs: Any) -> None:
    parser = verbs.add_parser("model", help="fetch, show and choose models")
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    pulling = actions.add_parser("pull", help="fetch a model now, instead of at the first question")
    pulling.add_argument("name", nargs="?", help="embedded, or a Hugging Face id (default: the configured model)")
    pulling.set_defaults(run=_pull)
    showing = actions.add_parser("show", help="what is known of a model")
    showing.add_argument(
        "name", nargs="?", help="embedded, a folder or a Hugging Face id (default: the configured one)"
    )
    showing.add_argument("--json", action="store_true", help="as one JSON object")
    showing.set_defaults(run=_show)
    listing = actions.add_parser("list", help="the models that are on this disk")
    listing.add_argument("--json", action="store_true", help="one JSON object per model")
    listing.set_defaults(run=_list)
    using = actions.add_parser("use", help="choose the model: writes model.name into config.toml")
    using.add_argument("name", help="embedded, the folder of a model, or a Hugging Face id")
    using.add_argument("--json", action="store_true", help="as one JSON object")
    using.set_defaults(run=_use)


def _name(given: argparse.Namespace, where: paths.Paths) -> str:
    return str(given.name or load(where.config_file).model.name)


def _pull(given: argparse.Namespace) -> int:
    from qmlx_lsp.engine.mlx import model, source

    where = paths.find()
    where.prepare()
    name = _name(given, where)
    with bar() as shown:
        folder = source.resolve(name, where.models, shown.update, lambda: False)
        model.check_folder(folder, name)
    print(f"{name} is in {folder}.")
    return 0


def _show(given: argparse.Namespace) -> int:
    where = paths.find()
    described = describe(_name(given, where), where)
    if given.json:
        json_lines([described])
    else:
        for key, value in described.items():
            shown = size(value) if key == "bytes" and isinstance(value, int) else value
            print(f"{key:15} {shown}")
    return 0


def describe(name: str, where: paths.Paths) -> dict[str, Any]:
    """What is known of the model without loading or fetching it.

    Raises:
        ModelError: there is no such model, or its folder is damaged.
    """
    from qmlx_lsp.engine.mlx import embedded, fingerprint, model, source

    if name == embedded.NAME:
        folder: Path | None = where.models / embedded.FOLDER
        if folder is not None and not (folder / "config.json").exists():
            folder = None
    else:
        folder = source.local_folder(name)
    if folder is None:
        return {"name": name, "installed": False, "remedy": f"qmlx-lsp model pull {name}"}
    config = model.check_folder(folder, name)
    text = config.get("text_config") or config
    return {
        "name": name,
        "installed": True,
        "folder": str(folder),
        "type": config["model_type"],
        "bytes": sum(file.stat().st_size for file in fingerprint.weight_files(folder)),
        "layers": text.get("num_hidden_layers"),
        "context_tokens": text.get("max_position_embeddings"),
        "quantization": config.get("quantization"),
        "fingerprint": fingerprint.fingerprint(folder, config).hex(),
    }


def _use(given: argparse.Namespace) -> int:
    from qmlx_lsp.cli.configure import write_key
    from qmlx_lsp.engine.mlx import embedded, model, source

    where = paths.find()
    name = given.name
    if name != embedded.NAME:
        folder = source.local_folder(name)
        if folder is not None:
            model.check_folder(folder, name)
        if Path(name).expanduser().is_dir():
            name = str(Path(name).expanduser().resolve())
    installed = bool(describe(name, where)["installed"])
    where.prepare()
    write_key(where.config_file, "model", "name", name)
    overridden = load(where.config_file).model.name != name
    if given.json:
        json_lines([{"name": name, "installed": installed, "file": str(where.config_file), "overridden": overridden}])
        return 0
    print(f"{name} is the model now ({where.config_file}).")
    if not installed:
        print(f"It is fetched at the first question; now: qmlx-lsp model pull {name}")
    if overridden:
        print(f"But {env_name('model', 'name')} is set in this shell, and wins.")
    print("A daemon that runs keeps its model until it is started anew: qmlx-lsp daemon stop")
    return 0


def _list(given: argparse.Namespace) -> int:
    from qmlx_lsp.engine.mlx import embedded, source

    where = paths.find()
    configured = load(where.config_file).model.name
    rows = []
    for name in dict.fromkeys([embedded.NAME, configured, *source.hub_models()]):
        try:
            described = describe(name, where)
        except ModelError as error:
            described = {"name": name, "installed": False, "remedy": str(error)}
        rows.append({**described, "configured": name == configured})
    if given.json:
        json_lines(rows)
        return 0
    for row in rows:
        mark = "*" if row["configured"] else " "
        print(f"{mark} {row['name']:50} {size(row['bytes']) if row['installed'] else 'not fetched'}")
    return 0
