"""``qmlx-lsp doctor``: what may keep it from working here, each with what to do about it.

It looks and changes nothing: no daemon is started, nothing is fetched, no folder is made. (``--bench`` makes what it
measures with, and removes it: ``doctor_bench.py``.)

Invariant: a check never keeps the next one from being made; what one cannot find out is its finding.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from qmlx_lsp import __version__, paths
from qmlx_lsp.cli import doctor_bench
from qmlx_lsp.cli.model import describe
from qmlx_lsp.cli.output import json_lines, size
from qmlx_lsp.daemon.socket import ask_daemon, running
from qmlx_lsp.errors import QmlxError
from qmlx_lsp.paths import Paths
from qmlx_lsp.settings import GIB, Settings, env_name, load

OK, NOTE, WRONG = "ok", "note", "wrong"
_SIGNS = {OK: "✓", NOTE: "·", WRONG: "✗"}
_PACKAGES = ("mlx", "mlx-lm", "pygls", "lsprotocol", "tokenizers")
_PROGRAM = "qmlx-lsp"
_INSTALL = f"Install {_PROGRAM} again, with pip in an environment of its own."


@dataclass(frozen=True, slots=True)
class Finding:
    """``what`` was found by a check, and a ``remedy`` where there is something to do."""

    check: str
    state: str
    what: str
    remedy: str = ""


def add(verbs: Any) -> None:
    parser = verbs.add_parser("doctor", help="say what may keep it from working here")
    parser.add_argument("--json", action="store_true", help="one JSON object per check")
    doctor_bench.add(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """0, or 1 when something is wrong."""
    if given.bench:
        return doctor_bench.run(as_json=given.json)
    found = list(examine())
    if given.json:
        json_lines(asdict(one) for one in found)
    else:
        for one in found:
            print(f"{_SIGNS[one.state]} {one.check:9} {one.what}")
            if one.remedy:
                print(f"  {'':9} {one.remedy}")
    return int(any(one.state == WRONG for one in found))


def examine() -> Iterator[Finding]:
    """Every check, in the order in which one would look."""
    yield _machine()
    yield _program()
    try:
        where = paths.find()
        settings = load(where.config_file)
    except QmlxError as error:
        yield Finding("settings", WRONG, str(error))
        return
    yield _settings(where)
    checks: tuple[tuple[str, Callable[[Paths, Settings], Finding]], ...] = (
        ("folders", _folders), ("disk", _disk), ("model", _model), ("daemon", _daemon),
    )  # fmt: skip
    for name, check in checks:
        try:
            yield check(where, settings)
        except (QmlxError, OSError) as error:
            yield Finding(name, WRONG, str(error))
        except ImportError as error:
            yield Finding(name, WRONG, f"a package cannot be loaded: {error}", _INSTALL)


def _machine() -> Finding:
    try:
        versions = ", ".join(f"{name} {metadata.version(name)}" for name in _PACKAGES)
    except metadata.PackageNotFoundError as error:
        return Finding("machine", WRONG, f"{error.name} is not installed", _INSTALL)
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}; {versions}"
    if platform.system() == "Darwin" and platform.machine() != "arm64":
        return Finding("machine", WRONG, system, "MLX needs Apple Silicon, and a Python that is not run by Rosetta.")
    if platform.system() != "Darwin":
        return Finding("machine", NOTE, system, "Models run on the CPU here: fit for small ones, and for trying out.")
    return Finding("machine", OK, system)


def _program() -> Finding:
    found = shutil.which(_PROGRAM)
    own = (
        Path(sys.argv[0]).resolve() if Path(sys.argv[0]).name == _PROGRAM else Path(sys.executable).parent / _PROGRAM
    )
    if found is None:
        remedy = f"Give editors the whole path, or: ln -s {own} ~/.local/bin/"
        return Finding("program", NOTE, f"{_PROGRAM} {__version__} is not on the PATH", remedy)
    if Path(found).resolve() != own.resolve():
        return Finding(
            "program", NOTE, f"editors find {found}, but this is {own}", "Remove one, or mind which is meant."
        )
    return Finding("program", OK, f"{found}, version {__version__}")


def _settings(where: Paths) -> Finding:
    names = sorted(name for name in os.environ if name.startswith("QMLX_"))
    file = str(where.config_file) if where.config_file.exists() else f"{where.config_file} (none: the defaults)"
    if names:
        remedy = "They hold for daemons that are started from this shell; editors may not have them."
        return Finding("settings", NOTE, f"{file}; set here: {', '.join(names)}", remedy)
    return Finding("settings", OK, file)


def _folders(where: Paths, _settings: Settings) -> Finding:
    paths.check_socket_path(where.socket)
    folders = dict.fromkeys((where.config, where.data, where.cache, where.runtime, where.log))
    for folder in folders:
        there = next(one for one in (folder, *folder.parents) if one.exists())
        if not os.access(there, os.W_OK | os.X_OK):
            return Finding("folders", WRONG, f"{there} cannot be written", "Give it back to your user: chown, chmod.")
    return Finding("folders", OK, f"conversations in {where.data}, checkpoints in {where.cache}, log in {where.log}")


def _disk(where: Paths, settings: Settings) -> Finding:
    there = next(one for one in (where.cache, *where.cache.parents) if one.exists())
    free, floor = shutil.disk_usage(there).free, int(settings.store.free_floor_gib * GIB)
    quota = size(int(settings.store.quota_gib * GIB))
    what = f"{size(free)} free; checkpoints take {quota} at most and leave {size(floor)}"
    if free <= floor:
        remedy = f"No checkpoint is written, and restarts are cold: free some space, or lower {_floor()}."
        return Finding("disk", WRONG, what, remedy)
    return Finding("disk", OK, what)


def _floor() -> str:
    return f"store.free_floor_gib ({env_name('store', 'free_floor_gib')})"


def _model(where: Paths, settings: Settings) -> Finding:
    name = settings.model.name
    if name == "scripted":
        return Finding("model", NOTE, "scripted: a stand-in for tests", "qmlx-lsp model use NAME chooses a real one.")
    found = describe(name, where)
    if not found["installed"]:
        return Finding("model", NOTE, f"{name} is not on this disk yet", f"Fetch it now: {found['remedy']}")
    what = f"{name}: {found['type']}, {size(found['bytes'])}"
    memory = memory_bytes()
    if memory is not None and found["bytes"] > memory * 0.75:
        remedy = "Choose a smaller one: qmlx-lsp model use NAME"
        return Finding("model", WRONG, f"{what}, more than this machine can hold ({size(memory)})", remedy)
    if name == "embedded":
        return Finding("model", NOTE, what, "It is for trying out. qmlx-lsp model use NAME chooses a larger one.")
    return Finding("model", OK, what)


def memory_bytes() -> int | None:
    """Bytes of memory, where the system says so."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _daemon(where: Paths, settings: Settings) -> Finding:
    found = ask_daemon(where, "status")
    if found is None:
        if where.lock.exists() and running(where):
            remedy = "qmlx-lsp daemon stop --force ends it; the conversations are safe."
            return Finding("daemon", WRONG, "it runs, but does not answer", remedy)
        return Finding("daemon", OK, "none runs; the next editor or question starts one")
    stop = "qmlx-lsp daemon stop; the next editor starts it anew."
    if found.get("version") != __version__:  # nothing else of it need be as here
        return Finding("daemon", WRONG, f"it is version {found.get('version')}, this is {__version__}", stop)
    model = found["model"]
    what = f"pid {found['pid']}, {found['clients']} editors, {model['name']}: {model['state']}"
    if model["state"] == "failed":
        return Finding("daemon", WRONG, f"{what} ({model['message']})", f"See {where.log_file}.")
    if model["name"] != settings.model.name:
        return Finding("daemon", NOTE, f"{what}, but {settings.model.name} is chosen", stop)
    return Finding("daemon", OK, what)
