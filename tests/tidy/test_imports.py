"""The import table of ARCHITECTURE.md, held by reading every import in the package, late ones included."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "qmlx_lsp"
OURS = "qmlx_lsp"

# room -> (rooms of ours it may import, packages of others it may import). A room is the longest matching prefix.
TABLE: dict[str, tuple[set[str], set[str]]] = {
    "": (set(), set()),
    "errors": (set(), set()),
    "state": (set(), set()),
    "settings": ({"errors"}, set()),
    "paths": ({"errors"}, {"platformdirs"}),
    "workspace": ({"errors", "workspace"}, set()),
    "transcript": ({"errors", "transcript"}, {"tokenizers", "jinja2"}),
    "storage": ({"errors", "state", "transcript", "storage"}, {"orjson", "xxhash", "safetensors"}),
    "engine": ({"errors", "state", "transcript", "engine"}, set()),
    "engine.mlx": (
        {"errors", "state", "engine", "engine.mlx"},
        {"mlx", "mlx_lm", "numpy", "huggingface_hub", "tqdm", "safetensors"},
    ),
    "measure": ({"errors", "transcript", "storage", "engine", "engine.mlx", "measure"}, set()),
    "session": (
        {"", "errors", "state", "settings", "workspace", "transcript", "storage", "engine", "session"},
        {"watchfiles", "psutil"},
    ),
    "lsp": ({"", "errors", "settings", "workspace", "session", "lsp"}, {"pygls", "lsprotocol"}),
    "daemon": ({"", "errors", "paths", "settings", "daemon"}, set()),
    "cli": (
        {"", "errors", "paths", "settings", "daemon", "cli", "app", "engine.mlx", "storage", "transcript", "measure"},
        {"orjson", "rich", "tomlkit"},
    ),
    "app": (
        {"errors", "paths", "settings", "daemon", "engine", "engine.mlx", "lsp", "session", "storage"},
        set(),
    ),
    "__main__": ({"cli"}, set()),
}  # fmt: skip
# Rooms that must stay pure: no event loop, no clock, no threads.
PURE = ("workspace", "transcript", "state")
IMPURE = {"asyncio", "time", "threading", "subprocess", "socket"}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(file: Path) -> str:
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(module: str) -> str:
    return max((room for room in TABLE if module == room or module.startswith(f"{room}.") or not room), key=len)


def imports(file: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative import"
            module = node.module or ""
            for alias in node.names:
                joined = PACKAGE.joinpath(*f"{module}.{alias.name}".split(".")[1:])
                inside = module.split(".")[0] == OURS and (joined.is_dir() or joined.with_suffix(".py").exists())
                yield node.lineno, f"{module}.{alias.name}" if inside else module


@pytest.mark.parametrize("file", modules(), ids=lambda f: str(f.relative_to(PACKAGE)))
def test_imports_stay_inside_the_table(file: Path) -> None:
    room = room_of(name_of(file))
    ours, theirs = TABLE[room]
    for line, module in imports(file):
        root = module.split(".")[0]
        place = f"{file.relative_to(ROOT)}:{line}"
        if root == OURS:
            target = room_of(module.removeprefix(OURS).removeprefix("."))
            assert target in ours, f"{place}: {room or 'the package'} may not import {target or 'the package'}"
        elif root not in sys.stdlib_module_names:
            assert root in theirs, f"{place}: {room} may not import {root}"
        elif room in PURE:
            assert root not in IMPURE, f"{place}: {room} is pure and may not import {root}"


def test_only_one_session_module_watches_files() -> None:
    users = [f for f in modules() if any(m.split(".")[0] == "watchfiles" for _, m in imports(f))]
    assert [name_of(f) for f in users] in ([], ["session.watch"])


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_language_server_loads_without_mlx() -> None:
    loaded = loaded_by("import qmlx_lsp.app, qmlx_lsp.lsp.server")
    assert not {m for m in loaded if m.split(".")[0] in {"mlx", "mlx_lm", "transformers", "numpy"}}


def test_the_connector_loads_the_standard_library_only() -> None:
    third_party = {
        m.split(".")[0] for m in loaded_by("import qmlx_lsp.cli.main, qmlx_lsp.daemon.connector")
    } - set(sys.stdlib_module_names) - {OURS}  # fmt: skip
    before = {m.split(".")[0] for m in loaded_by("pass")}
    assert third_party - before == set()
