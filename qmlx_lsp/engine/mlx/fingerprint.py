"""The fingerprint: a digest of everything that makes a stored state reusable.

It must never read whole weights: 70 GB and more would cost a minute at every start.

Invariant: it changes whenever a state computed before could differ from one computed now: weights and adapter
(headers and samples of every tensor's bytes), their configs (which say how weights are quantised), the bits of keys
and values, mlx and mlx-lm version, the format. It does not change when a folder is moved or touched, nor with
tokenizer or chat template: what ids mean belongs to the log's identity.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

STATE_FORMAT = 1  # raise it when what a checkpoint holds changes its meaning
SAMPLE_BYTES = 1024
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapters.safetensors"


def fingerprint(
    folder: Path, config: Mapping[str, Any], *, kv_bits: int = 0, adapter_folder: Path | None = None
) -> bytes:
    """Digest (16 bytes) of the model in ``folder``; see the module's invariant.

    Raises OSError, ValueError and the like when a file that was there before is gone or damaged.
    """
    digest = hashlib.blake2b(digest_size=16)
    for version in ("mlx", "mlx-lm"):
        digest.update(f"{version} {metadata.version(version)}\n".encode())
    digest.update(f"format {STATE_FORMAT}\nkv_bits {kv_bits}\n".encode())
    digest.update(json.dumps(config, sort_keys=True).encode())
    for file in weight_files(folder):
        _add_samples(digest, file)
    if adapter_folder is not None:
        digest.update(b"\nadapter\n")
        digest.update((adapter_folder / ADAPTER_CONFIG).read_bytes())
        _add_samples(digest, adapter_folder / ADAPTER_WEIGHTS)
    return digest.digest()


def weight_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("model*.safetensors"))


def safetensors_header(file: Path) -> tuple[dict[str, Any], int]:
    """The JSON header and the position of the data behind it. Raises OSError, ValueError, TypeError, struct.error."""
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > file.stat().st_size:
            raise ValueError("header longer than the file")
        header = json.loads(stream.read(length))
    if not isinstance(header, dict):
        raise TypeError("header is not an object")
    return header, 8 + length


def _add_samples(digest: hashlib.blake2b, file: Path) -> None:
    """Two sets of weights that differ, differ nearly everywhere: each tensor's first and last kilobyte tell them
    apart."""
    header, start = safetensors_header(file)
    digest.update(json.dumps(header, sort_keys=True).encode())
    with file.open("rb") as stream:
        for name in sorted(key for key in header if key != "__metadata__"):
            first, last = header[name]["data_offsets"]
            for at in (first, max(first, last - SAMPLE_BYTES)):
                stream.seek(start + at)
                digest.update(stream.read(min(SAMPLE_BYTES, last - first)))
