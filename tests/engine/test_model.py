"""From a model's name to a loaded model: what is refused and how, and what the fingerprint tells apart."""

import json
import os
import shutil
import struct

import huggingface_hub
import mlx.core as mx
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from qmlx_lsp.engine.backend import Sampling
from qmlx_lsp.engine.mlx import model as models
from qmlx_lsp.engine.mlx.backend import MlxBackend
from qmlx_lsp.errors import Cancelled, DownloadError, ModelError, TemplateError
from tests.support import model_folder


def load(source, tmp_path, cancelled=lambda: False):
    reports = []
    backend = MlxBackend(tmp_path / "models")
    info = backend.load(str(source), lambda *report: reports.append(report), cancelled)
    return backend, info, reports


def refused(source, tmp_path) -> str:
    with pytest.raises(ModelError) as caught:
        load(source, tmp_path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_whole_folder_is_loaded_and_described(tmp_path):
    folder = model_folder.write(tmp_path / "tiny")
    backend, info, reports = load(folder, tmp_path)
    assert (info.name, info.path) == (str(folder), str(folder))
    assert (info.eos_ids, info.context_tokens) == ({256, 258}, 512)
    assert (info.needs_snapshot, info.not_persisted) == (False, None)
    assert (info.think, len(info.fingerprint)) == (("<think>", "</think>"), 16)
    assert reports == [(0, 0, f"loading {folder}")]
    weights = folder / "model.safetensors"
    (header,) = struct.unpack("<Q", weights.read_bytes()[:8])
    assert info.weight_bytes == weights.stat().st_size - 8 - header
    state, ids = backend.new_state(), [1, 2, 3, 4]
    want = model_folder.tiny_llama()(mx.array([ids]))[0, -1].tolist()
    assert backend.logits(state, ids).cast("f").tolist() == want
    assert len(list(backend.decode(state, [5], Sampling(), 4))) == 4


def test_chat_template_of_the_folder(tmp_path):
    _, info, _ = load(model_folder.write(tmp_path / "tiny"), tmp_path)
    messages = [{"role": "user", "content": " <é> & 'x' "}]
    text = info.template.render(messages, generate=True, thinking=False)
    assert text == "<|im_start|>user\n <é> & 'x' <|im_end|>\n<|im_start|>assistant\n"


def test_thinking_is_always_passed_to_the_template(tmp_path):
    template = "{{ enable_thinking is defined }} {{ enable_thinking }}"
    _, info, _ = load(model_folder.write(tmp_path / "tiny", template=template), tmp_path)
    messages = [{"role": "user", "content": "x"}]
    shown = [info.template.render(messages, generate=True, thinking=thinking) for thinking in (False, True)]
    assert shown == ["True False", "True True"]


@pytest.mark.parametrize(
    "template", ["{{ raise_exception('no such role') }}", "{{ messages[7].role }}", "{{ 1 + '' }}"]
)
def test_template_that_does_not_render_is_named(tmp_path, template):
    folder = model_folder.write(tmp_path / "tiny", template=template)
    _, info, _ = load(folder, tmp_path)
    with pytest.raises(TemplateError, match=f"The chat template of {folder} does not render a conversation: "):
        info.template.render([{"role": "user", "content": "x"}], generate=True, thinking=False)


@pytest.mark.parametrize("name", ["nonsense", "/no/such/folder", "./relative", "a/b/c", ""])
def test_unknown_name(tmp_path, name):
    assert refused(name, tmp_path).startswith(f"There is no model {name!r}: give the folder")


def test_folder_without_config(tmp_path):
    (tmp_path / "empty").mkdir()
    assert refused(tmp_path / "empty", tmp_path).endswith("it has no config.json.")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "unreadable config.json"),
        ("[]", "without model_type"),
        ("{}", "without model_type"),
        ("\xff", "unreadable"),
    ],
)
def test_damaged_config(tmp_path, content, reason):
    folder = model_folder.write(tmp_path / "tiny")
    (folder / "config.json").write_bytes(content.encode("latin-1"))
    assert reason in refused(folder, tmp_path)


def test_unknown_architecture(tmp_path):
    folder = model_folder.write(tmp_path / "tiny", model_type="perpetuum_mobile")
    assert "perpetuum_mobile not supported" in refused(folder, tmp_path)


def test_folder_without_weights(tmp_path):
    folder = model_folder.write(tmp_path / "tiny")
    (folder / "model.safetensors").unlink()
    assert "no weights (model*.safetensors)" in refused(folder, tmp_path)


def test_weights_that_do_not_fit_the_config(tmp_path):
    folder = model_folder.write(tmp_path / "tiny", num_hidden_layers=3)
    assert "cannot be loaded" in refused(folder, tmp_path)


def test_weights_cut_short(tmp_path):
    folder = model_folder.write(tmp_path / "tiny")
    weights = folder / "model.safetensors"
    size = weights.stat().st_size
    os.truncate(weights, size - 1)
    assert f"are cut short ({size - 1:,} of {size:,} bytes); fetch the model again." in refused(folder, tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(lambda data: data[:5], id="cut in the length"),
        pytest.param(lambda data: struct.pack("<Q", 1 << 60) + data[8:], id="huge length"),
        pytest.param(lambda data: data[:9] + b"\xff\xff" + data[11:], id="no JSON"),
        pytest.param(lambda data: struct.pack("<Q", 2) + b"[]" + data[10:], id="no object"),
        pytest.param(lambda data: struct.pack("<Q", 9) + b'{"a": {}}', id="no offsets"),
    ],
)
def test_damaged_header(tmp_path, damage):
    folder = model_folder.write(tmp_path / "tiny")
    weights = folder / "model.safetensors"
    weights.write_bytes(damage(weights.read_bytes()))
    assert "are damaged (no readable header)" in refused(folder, tmp_path)


def test_missing_part(tmp_path):
    folder = model_folder.write(tmp_path / "tiny")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "model.safetensors", "b": "model-00002-of-00002.safetensors"}}))
    assert "lacks model-00002-of-00002.safetensors; fetch" in refused(folder, tmp_path)
    index.write_text("{}")
    assert "index.json is damaged" in refused(folder, tmp_path)
    index.write_text(json.dumps({"weight_map": {"a": "model.safetensors"}}))
    load(folder, tmp_path)


@pytest.mark.parametrize("damage", ["", "{", '{"version": "1.0"}'])
def test_damaged_tokenizer(tmp_path, damage):
    folder = model_folder.write(tmp_path / "tiny")
    (folder / "tokenizer.json").write_text(damage)
    assert refused(folder, tmp_path).startswith(f"The tokenizer of {folder} ({folder}) cannot be loaded: ")


# --- the fingerprint ----------------------------------------------------------------------------------------------


def fingerprint(folder) -> bytes:
    return models.fingerprint(folder, models.check_folder(folder, "m"))


def test_fingerprint_stays_when_a_folder_is_touched_moved_or_copied(tmp_path):
    folder = model_folder.write(tmp_path / "a")
    first = fingerprint(folder)
    os.utime(folder / "model.safetensors", (1, 1))
    assert fingerprint(folder) == first
    shutil.copytree(folder, tmp_path / "copy")
    folder.rename(tmp_path / "moved")
    assert fingerprint(tmp_path / "moved") == fingerprint(tmp_path / "copy") == first


def test_fingerprint_of_a_loaded_model_is_the_same_every_time(tmp_path):
    folder = model_folder.write(tmp_path / "a")
    assert load(folder, tmp_path)[1].fingerprint == load(folder, tmp_path)[1].fingerprint


def test_fingerprint_tells_apart(tmp_path, monkeypatch):
    prints = {
        "first": fingerprint(model_folder.write(tmp_path / "a")),
        "other weights of equal shape": fingerprint(model_folder.write(tmp_path / "b", seed=4)),
        "rope_theta": fingerprint(model_folder.write(tmp_path / "c", rope_theta=20000.0)),
        "quantisation": fingerprint(model_folder.write(tmp_path / "d", quantization={"bits": 4, "group_size": 64})),
    }
    weights = tmp_path / "a" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    prints["one bit of the last weight"] = fingerprint(tmp_path / "a")
    weights.write_bytes(whole)
    for package in ("mlx", "mlx-lm"):
        real = models.metadata.version
        monkeypatch.setattr(
            models.metadata, "version", lambda name, p=package, r=real: "9.9" if name == p else r(name)
        )
        prints[f"version of {package}"] = fingerprint(tmp_path / "a")
        monkeypatch.undo()
    monkeypatch.setattr(models, "STATE_FORMAT", 99)
    prints["format"] = fingerprint(tmp_path / "a")
    assert len(set(prints.values())) == len(prints)


# --- the hub ------------------------------------------------------------------------------------------------------


class Hub:
    """Stands in for the hub's client: nothing is here yet, then ``download`` is what happens."""

    def __init__(self, download) -> None:
        self._download = download

    def __call__(self, source, *, local_files_only=False, tqdm_class=None, allow_patterns):
        if local_files_only:
            raise LocalEntryNotFoundError("not on this disk")
        return str(self._download(tqdm_class))


def test_hub_model_is_fetched_with_progress_in_bytes(tmp_path, monkeypatch):
    folder = model_folder.write(tmp_path / "tiny")

    def download(bar_class):
        with bar_class(total=2, desc="Fetching 2 files") as files:
            received = bar_class(total=100, unit="B", desc="Downloading bytes")
            written = bar_class(total=0, unit="B", desc="Reconstructing (incomplete total...)", unit_scale=True)
            written.update(5)  # the total is not known yet
            written.total += 100
            written.refresh()
            received.update(60)
            written.update(60)
            files.update(1)
            written.set_description("Reconstruction complete")
            written.update(60)  # a file that was fetched again
        return folder

    monkeypatch.setattr(huggingface_hub, "snapshot_download", Hub(download))
    _, info, reports = load("maker/model", tmp_path)
    assert info.name == "maker/model"
    what = "downloading maker/model"
    assert [report for report in reports if report[2] == what] == [(0, 0, what), (65, 100, what), (100, 100, what)]


def test_hub_download_can_be_cancelled(tmp_path, monkeypatch):
    def download(bar_class):
        bar_class(total=100, unit="B").update(1)
        pytest.fail("not cancelled")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", Hub(download))
    with pytest.raises(Cancelled):
        load("maker/model", tmp_path, cancelled=lambda: True)


def test_hub_that_cannot_be_reached(tmp_path, monkeypatch):
    def download(_bar_class):
        raise LocalEntryNotFoundError("no connection\nmore of it")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", Hub(download))
    with pytest.raises(DownloadError, match="could not be fetched from Hugging Face: no connection Check the name"):
        load("maker/model", tmp_path)


def test_name_the_hub_does_not_allow(tmp_path):
    assert "is not a model's name" in refused("maker/..", tmp_path)
