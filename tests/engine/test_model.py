"""From a model's name to a loaded model: what is refused, and how it is said."""

import json
import os
import struct
from datetime import date

import huggingface_hub
import mlx.core as mx
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from qmlx_lsp.engine.backend import Sampling
from qmlx_lsp.errors import Cancelled, DownloadError, TemplateError
from qmlx_lsp.session.model import prepare
from tests.support import model_folder, tiny_models
from tests.support.loaded import load, refused


def test_whole_folder_is_loaded_and_described(tmp_path):
    folder = model_folder.write(tmp_path / "tiny")
    backend, info, reports = load(folder, tmp_path)
    assert (info.name, info.path) == (str(folder), str(folder))
    assert (info.eos_ids, info.context_tokens) == ({256, 258}, 512)
    assert (info.needs_snapshot, info.not_persisted) == (False, None)
    assert (info.think, len(info.fingerprint)) == (("<think>", "</think>"), 16)
    assert info.row_bytes == 2 * 2 * 2 * 8 * 4  # layers, keys and values, heads, width, bytes of a float32
    assert reports == [(0, 0, f"loading {folder}")]
    weights = folder / "model.safetensors"
    (header,) = struct.unpack("<Q", weights.read_bytes()[:8])
    assert info.weight_bytes == weights.stat().st_size - 8 - header
    state, ids = backend.new_state(), [1, 2, 3, 4]
    want = model_folder.tiny_llama()(mx.array([ids]))[0, -1].tolist()
    assert backend.logits(state, ids).cast("f").tolist() == want
    assert len(list(backend.decode(state, [5], Sampling(), 4))) == 4


@tiny_models.EACH
def test_bytes_of_a_tokens_rows(name):
    """As many as a copy of so many tokens has."""
    backend = tiny_models.backend(name)
    state = backend.new_state()
    backend.prefill(state, tiny_models.ids(5))
    copied = backend.copy_state(state, 0)
    assert backend._known_layout().row_bytes * 5 == sum(len(tensor.data) for tensor in copied.rows)


def test_chat_template_of_the_folder(tmp_path):
    template = "{{ bos_token }}{{ messages[0].content }}"
    _, info, _ = load(model_folder.write(tmp_path / "tiny", template=template), tmp_path)
    assert info.template == template
    assert info.tokens["eos_token"] == "<|im_end|>"


def test_chat_template_in_python(tmp_path):
    """Some models' templates are code of mlx-lm; thinking is always passed on to them."""
    folder = model_folder.write(tmp_path / "tiny")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template_type": "deepseek_v32"}))
    _, info, _ = load(folder, tmp_path)
    messages = [{"role": "user", "content": "x"}]
    shown = [
        info.template.render(messages, {"enable_thinking": thinking}, generate=True, day=date(2026, 1, 2))
        for thinking in (False, True)
    ]
    assert [text.endswith(end) for text, end in zip(shown, ("</think>", "<think>"), strict=True)] == [True, True]
    assert all("<｜User｜>x<｜Assistant｜>" in text for text in shown)
    with pytest.raises(TemplateError, match=f"The chat template of {folder} does not render a conversation: "):
        info.template.render([{"role": "nobody", "content": 1}], {}, generate=True, day=date(2026, 1, 2))
    for thinking in (False, True):  # such code refuses by assert, in probes that a template may refuse
        made = prepare(info, thinking=thinking, today=date.today).renderer
        assert made.codec.decode(made.fragments.after_reply) == "<｜end▁of▁sentence｜><｜User｜>"


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
