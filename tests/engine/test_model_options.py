"""An adapter on a model, and keys and values of few bits."""

import os

import pytest
from mlx_lm.models import llama
from mlx_lm.models.cache import CacheList, KVCache, QuantizedKVCache, RotatingKVCache

from qmlx_lsp import paths
from qmlx_lsp.app import backend_factory
from qmlx_lsp.engine.backend import Sampling
from qmlx_lsp.engine.mlx import blas
from qmlx_lsp.engine.mlx.backend import MlxBackend
from qmlx_lsp.engine.mlx.caches import make_caches, parts
from qmlx_lsp.engine.mlx.model import check_kv_bits
from qmlx_lsp.errors import ModelError
from qmlx_lsp.settings import Model, Settings
from tests.support import model_folder, tiny_models


def refused_with(folder, tmp_path, **given) -> str:
    with pytest.raises(ModelError) as caught:
        MlxBackend(tmp_path / "models", **given).load(str(folder), lambda *_: None, lambda: False)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("file", ["adapter_config.json", "adapters.safetensors"])
def test_folder_that_holds_no_adapter(tmp_path, file):
    folder, adapter = model_folder.write(tmp_path / "tiny"), model_folder.write_adapter(tmp_path / "lora")
    (adapter / file).unlink()
    said = refused_with(folder, tmp_path, adapter=adapter)
    assert said == f"The adapter {adapter} ([model] adapter) has no {file}, which mlx-lm writes."
    assert "has no adapter_config.json" in refused_with(folder, tmp_path, adapter=tmp_path / "nowhere")


def test_adapter_of_another_model(tmp_path):
    folder = model_folder.write(tmp_path / "tiny")
    adapter = model_folder.write_adapter(tmp_path / "lora", hidden_size=64)
    said = refused_with(folder, tmp_path, adapter=adapter)
    assert said.startswith(f"The adapter {adapter} ([model] adapter) does not fit the model {folder}: ")
    assert "does not match" in said


@pytest.mark.parametrize(
    "config", ["{", "[]", '{"num_layers": 2}', '{"num_layers": 2, "lora_parameters": {"rank": 2}}']
)
def test_damaged_config_of_an_adapter(tmp_path, config):
    folder, adapter = model_folder.write(tmp_path / "tiny"), model_folder.write_adapter(tmp_path / "lora")
    (adapter / "adapter_config.json").write_text(config)
    assert "does not fit the model" in refused_with(folder, tmp_path, adapter=adapter)


def test_adapter_cut_short(tmp_path):
    folder, adapter = model_folder.write(tmp_path / "tiny"), model_folder.write_adapter(tmp_path / "lora")
    weights = adapter / "adapters.safetensors"
    os.truncate(weights, weights.stat().st_size - 1)
    assert "adapters.safetensors are cut short" in refused_with(folder, tmp_path, adapter=adapter)


@pytest.mark.parametrize("bits", [4, 8])
def test_keys_and_values_of_few_bits(tmp_path, bits):
    folder = model_folder.write(tmp_path / "tiny", made_with={"head_dim": 64})
    backend = MlxBackend(tmp_path / "models", kv_bits=bits)
    info = backend.load(str(folder), lambda *_: None, lambda: False)
    assert (info.needs_snapshot, info.not_persisted) == (False, None)
    state = backend.new_state()
    assert len(list(backend.decode(state, [1, 2, 3], Sampling(), 4))) == 4
    # Of 256 rows, for keys and values, in two layers of two heads: 64 values each, and a scale and a bias in float32.
    assert backend.nbytes(state) == 256 * 2 * 2 * 2 * (64 * bits // 8 + 8)


def test_settings_reach_the_backend(tmp_path, monkeypatch):
    monkeypatch.setattr(blas, "preload", lambda _folder: None)
    folder, adapter = model_folder.write(tmp_path / "tiny"), model_folder.write_adapter(tmp_path / "lora")
    monkeypatch.setenv("QMLX_HOME", str(tmp_path / "home"))
    where = paths.find()

    def said(**model) -> str:
        made = backend_factory(where, Settings(model=Model(name=str(folder), **model)))()
        with pytest.raises(ModelError) as caught:
            made.load(str(folder), lambda *_: None, lambda: False)
        return str(caught.value)

    assert "in 8 bits" in said(kv_bits=8)
    (adapter / "adapter_config.json").unlink()
    assert str(adapter) in said(adapter=str(adapter))


def test_heads_too_narrow_for_few_bits(tmp_path):
    folder = model_folder.write(tmp_path / "tiny")
    said = refused_with(folder, tmp_path, kv_bits=8)
    assert said.startswith(f"The model {folder} cannot hold its keys and values in 8 bits: ")
    assert said.endswith(" Set [model] kv_bits = 0.")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(lambda: tiny_models.gpt_oss_like(head_dim=64), "sinks", id="attention sinks"),
        pytest.param(lambda: tiny_models.deepseek_like(width=64), "", id="caches used in another way"),
    ],
)
def test_models_that_cannot_hold_few_bits(make, reason):
    with pytest.raises(ModelError, match=f"The model m cannot hold its keys and values in 4 bits: .*{reason}"):
        check_kv_bits("m", make(), 4)


def test_model_without_keys_and_values_to_quantise(monkeypatch):
    model = tiny_models.make("int4")
    monkeypatch.setattr(
        llama.Model, "make_cache", lambda self: [RotatingKVCache(8), RotatingKVCache(8)], raising=False
    )
    with pytest.raises(ModelError, match="no cache of a class that can be quantised"):
        check_kv_bits("m", model, 4)


def test_few_bits_in_a_list_of_caches(monkeypatch):
    monkeypatch.setattr(llama.Model, "make_cache", lambda self: [CacheList(KVCache())] * 2, raising=False)
    caches = parts(make_caches(tiny_models.make("int4"), 8))
    assert {name: type(cache) for name, cache in caches.items()} == dict.fromkeys(["0.0", "1.0"], QuantizedKVCache)
    assert {cache.bits for cache in caches.values()} == {8}
