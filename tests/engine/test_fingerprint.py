"""What the fingerprint tells apart: all that makes a stored state of one model wrong for another, and no more."""

import json
import os
import shutil
from importlib import metadata

import mlx.core as mx

from qmlx_lsp.engine.mlx import fingerprint as module
from qmlx_lsp.engine.mlx.backend import MlxBackend
from qmlx_lsp.engine.mlx.model import check_folder
from tests.support import model_folder


def fingerprint(folder, **given) -> bytes:
    return module.fingerprint(folder, check_folder(folder, "m"), **given)


def flip_last_bit(file) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))


def loaded(folder, tmp_path, **given) -> bytes:
    return MlxBackend(tmp_path, **given).load(str(folder), lambda *_: None, lambda: False).fingerprint


def test_stays_when_a_folder_is_touched_moved_or_copied(tmp_path):
    folder, adapter = model_folder.write(tmp_path / "a"), model_folder.write_adapter(tmp_path / "lora")
    first = fingerprint(folder, adapter_folder=adapter)
    os.utime(folder / "model.safetensors", (1, 1))
    os.utime(adapter / "adapters.safetensors", (1, 1))
    assert fingerprint(folder, adapter_folder=adapter) == first
    shutil.copytree(folder, tmp_path / "copy")
    folder.rename(tmp_path / "moved")
    adapter = adapter.rename(tmp_path / "elsewhere")
    assert fingerprint(tmp_path / "moved", adapter_folder=adapter) == first
    assert fingerprint(tmp_path / "copy", adapter_folder=adapter) == first


def test_stays_when_only_the_meaning_of_ids_changes(tmp_path):
    """Tokenizer and chat template belong to the identity of the log, which says what ids mean."""
    folder = model_folder.write(tmp_path / "a")
    first = fingerprint(folder)
    described = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(
        json.dumps(described | {"chat_template": "{{ messages[0].content }}"})
    )
    (folder / "chat_template.jinja").write_text("{{ messages[0].content }}")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["added_tokens"] = tokenizer["added_tokens"][:-1]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert fingerprint(folder) == first


def test_of_a_loaded_model_is_the_same_every_time(tmp_path):
    folder = model_folder.write(tmp_path / "a")
    assert loaded(folder, tmp_path) == loaded(folder, tmp_path) == fingerprint(folder)


def test_of_a_loaded_model_covers_adapter_and_bits(tmp_path):
    folder = model_folder.write(tmp_path / "a", made_with={"head_dim": 64})
    adapter = model_folder.write_adapter(tmp_path / "lora", head_dim=64)
    want = fingerprint(folder, adapter_folder=adapter, kv_bits=8)
    assert loaded(folder, tmp_path, adapter=adapter, kv_bits=8) == want


def test_tells_models_apart(tmp_path, monkeypatch):
    folder = tmp_path / "a"
    prints = {
        "first": fingerprint(model_folder.write(folder)),
        "rope_theta": fingerprint(model_folder.write(tmp_path / "c", rope_theta=20000.0)),
        "quantisation": fingerprint(model_folder.write(tmp_path / "d", quantization={"bits": 4, "group_size": 64})),
        "keys of 4 bits": fingerprint(folder, kv_bits=4),
        "keys of 8 bits": fingerprint(folder, kv_bits=8),
    }
    for package in ("mlx", "mlx-lm"):
        real = metadata.version
        with monkeypatch.context() as patch:
            patch.setattr(module.metadata, "version", lambda name, p=package, r=real: "9.9" if name == p else r(name))
            prints[f"version of {package}"] = fingerprint(folder)
    with monkeypatch.context() as patch:
        patch.setattr(module, "STATE_FORMAT", 99)
        prints["format"] = fingerprint(folder)
    assert fingerprint(folder) == prints["first"]
    flip_last_bit(folder / "model.safetensors")
    prints["one bit of the last weight"] = fingerprint(folder)
    shutil.rmtree(folder)
    prints["other weights of equal shape at the same path"] = fingerprint(model_folder.write(folder, seed=4))
    assert len(set(prints.values())) == len(prints)


def test_tells_adapters_apart(tmp_path):
    folder, lora = model_folder.write(tmp_path / "a"), tmp_path / "lora"

    def one(**changes) -> bytes:
        shutil.rmtree(lora, ignore_errors=True)
        return fingerprint(folder, adapter_folder=model_folder.write_adapter(lora, **changes))

    prints = {"none": fingerprint(folder), "first": one(), "weights": one(seed=6), "strength": one(scale=10.0)}
    assert one() == prints["first"]
    flip_last_bit(lora / "adapters.safetensors")
    prints["one bit"] = fingerprint(folder, adapter_folder=lora)
    assert len(set(prints.values())) == len(prints)


def test_adapter_changes_what_the_model_computes(tmp_path):
    """So states with and without it must not be mixed up."""
    folder, adapter = model_folder.write(tmp_path / "a"), model_folder.write_adapter(tmp_path / "lora")

    def logits(**given) -> bytes:
        backend = MlxBackend(tmp_path, **given)
        backend.load(str(folder), lambda *_: None, lambda: False)
        return bytes(backend.logits(backend.new_state(), [1, 2, 3]))

    plain, adapted = logits(), logits(adapter=adapter)
    assert plain == logits() != adapted
    assert mx.isfinite(mx.array(memoryview(adapted).cast("f"))).all().item()
