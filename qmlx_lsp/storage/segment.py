"""The file format: one valid safetensors file per token range or snapshot, for all layers.

``8 bytes header length, JSON, spaces`` up to a multiple of 16,384 bytes, then the tensors in the model's fixed
order without gaps, then (segments only) the token ids as ``I32 [b - a]``. ``ids`` stands last so that the rows,
whose sizes are multiples of 64 bytes in all known models, stay aligned. The header carries the xxh3_128 of every
tensor; the header's own xxh3_128 is part of the file's name, because safetensors allows nothing behind the data.

It must never guess: whatever does not fit is a ``FileRejected``.

Invariant: a header that ``read_header`` returns is the one that was written, describes the file's whole size, and
belongs to the identity in the file's name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
import xxhash

from qmlx_lsp.errors import CheckpointRejected
from qmlx_lsp.state import DTYPE_BYTES, Tensor, TensorSpec
from qmlx_lsp.storage.files import FileSystem, Piece, as_bytes_view, read_into
from qmlx_lsp.storage.row import SUM_BYTES, Kind, Row, parse_name
from qmlx_lsp.transcript.tokens import ids_to_bytes

FORMAT = "qmlx-state-1"
ALIGN_BYTES = 16_384  # page size of Apple silicon
MAX_HEADER_BYTES = 16 << 20  # more is damage: real headers have some 30 KiB
IDS = "ids"
_LENGTH_BYTES = 8
_METADATA = "__metadata__"


class FileRejected(CheckpointRejected):
    """One file of a checkpoint cannot be trusted; ``name`` says which.

    Reasons: ``corrupt``, ``truncated``, ``foreign`` (another format or layout), ``missing``, ``unreadable`` (the
    disk refuses), ``ids`` (it holds other tokens than were asked for).
    """

    def __init__(self, reason: str, name: str, detail: str) -> None:
        super().__init__(reason, f"checkpoint file {name}: {detail}")
        self.name = name


@dataclass(frozen=True, slots=True)
class Header:
    """A verified header. ``offsets[i]`` is where tensor ``i`` begins in the file, ``sums[i]`` its xxh3_128."""

    row: Row
    tensors: tuple[TensorSpec, ...]
    offsets: tuple[int, ...]
    sums: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A file ready to be written: its index row and its bytes in order."""

    row: Row
    parts: tuple[Piece, ...]


def encode_segment(
    fingerprint: bytes,
    span: tuple[int, int],
    digests: tuple[bytes, bytes],
    rows: Sequence[Tensor],
    ids: Sequence[int],
    *,
    needs_snapshot: bool,
    now: float,
) -> Encoded:
    """Rows of ids ``[a, b)`` = ``span``; ``digests`` are the token log's at both ends."""
    assert len(ids) == span[1] - span[0] > 0, "a segment holds one id per row, and at least one"
    for tensor in rows:
        assert tensor.spec.shape[2:3] == (len(ids),), "rows are [1, heads, tokens, width]"
    last = Tensor(TensorSpec(IDS, "I32", (len(ids),)), memoryview(ids_to_bytes(ids)))
    return _encode(Kind.SEGMENT, fingerprint, span, digests, (*rows, last), needs_snapshot=needs_snapshot, now=now)


def encode_snapshot(
    fingerprint: bytes, position: int, digest: bytes, tensors: Sequence[Tensor], now: float
) -> Encoded:
    """What belongs to exactly ``position``, whole."""
    span, digests = (position, position), (digest, digest)
    return _encode(Kind.SNAPSHOT, fingerprint, span, digests, tuple(tensors), needs_snapshot=True, now=now)


def _encode(
    kind: Kind,
    fingerprint: bytes,
    span: tuple[int, int],
    digests: tuple[bytes, bytes],
    tensors: tuple[Tensor, ...],
    *,
    needs_snapshot: bool,
    now: float,
) -> Encoded:
    data = [as_bytes_view(tensor.data) for tensor in tensors]
    table: dict[str, object] = {
        _METADATA: {
            "format": FORMAT,
            "kind": kind.value,
            "fingerprint": fingerprint.hex(),
            "a": str(span[0]),
            "b": str(span[1]),
            "parent": digests[0].hex(),
            "end": digests[1].hex(),
            "needs_snapshot": "1" if needs_snapshot else "0",
            "xxh3_128": "".join(xxhash.xxh3_128_hexdigest(view) for view in data),
        }
    }
    at = 0
    for tensor, view in zip(tensors, data, strict=True):
        spec = tensor.spec
        assert len(view) == spec.nbytes, f"tensor {spec.name} holds {len(view)} bytes instead of {spec.nbytes}"
        assert spec.name not in table, f"tensor name {spec.name} is taken"
        table[spec.name] = {"dtype": spec.dtype, "shape": list(spec.shape), "data_offsets": [at, at + spec.nbytes]}
        at += spec.nbytes
    json = orjson.dumps(table)
    padded = -(-(_LENGTH_BYTES + len(json)) // ALIGN_BYTES) * ALIGN_BYTES
    block = (padded - _LENGTH_BYTES).to_bytes(_LENGTH_BYTES, "little") + json.ljust(padded - _LENGTH_BYTES)
    header_sum = xxhash.xxh3_128_digest(block)
    row = Row(kind, fingerprint, *span, *digests, padded + at, padded, header_sum, needs_snapshot, now, now)
    return Encoded(row, (block, *data))


def read_header(fs: FileSystem, fd: int, name: str) -> Header:
    """Read and verify the header of the open file ``fd``; ``name`` is the file's own name.

    The row's times are zero: a file does not know when it was used.

    Raises:
        FileRejected: see its reasons.
    """
    try:
        size = fs.size(fd)
        block = _read_block(fs, fd, name, size)
    except OSError as error:
        raise FileRejected("unreadable", name, error.strerror or "cannot be read") from None
    except EOFError as error:
        raise FileRejected("truncated", name, str(error)) from None
    header = parse_header(block, name)
    if size != header.row.size:
        reason = "truncated" if size < header.row.size else "corrupt"
        raise FileRejected(reason, name, f"{size} bytes long instead of {header.row.size}")
    return header


def _read_block(fs: FileSystem, fd: int, name: str, size: int) -> bytes:
    if size < ALIGN_BYTES:
        raise FileRejected("truncated", name, f"only {size} bytes long")
    first = bytearray(ALIGN_BYTES)
    read_into(fs, fd, [memoryview(first)], 0)
    length = _LENGTH_BYTES + int.from_bytes(first[:_LENGTH_BYTES], "little")
    if length > MAX_HEADER_BYTES or length % ALIGN_BYTES:
        raise FileRejected("corrupt", name, "its header length is impossible")
    if length > size:
        raise FileRejected("truncated", name, "it ends inside its header")
    rest = bytearray(length - ALIGN_BYTES)
    read_into(fs, fd, [memoryview(rest)], ALIGN_BYTES)
    return bytes(first + rest)


def parse_header(block: bytes, name: str) -> Header:
    """Decode a header block (length, JSON and padding) after checking it against ``name``. Raises FileRejected."""
    named = parse_name(name)
    if named is None:
        raise FileRejected("foreign", name, "not a name of this store")
    kind, id_, header_sum = named
    if xxhash.xxh3_128_digest(block) != header_sum:
        raise FileRejected("corrupt", name, "its header does not have the checksum in its name")
    try:
        table = orjson.loads(block[_LENGTH_BYTES:])
        meta = table.pop(_METADATA)
        if meta["format"] != FORMAT:
            raise FileRejected("foreign", name, f"its format is {meta['format']}, this is {FORMAT}")
        header = _decode(table, meta, len(block), header_sum)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise FileRejected("corrupt", name, "its header makes no sense") from None
    if (header.row.kind, header.row.id) != (kind, id_):
        raise FileRejected("corrupt", name, "it holds something else than its name says")
    return header


def _decode(table: dict[str, dict[str, object]], meta: dict[str, str], data: int, header_sum: bytes) -> Header:
    """Build a Header; ValueError, KeyError or TypeError when the parts contradict each other."""
    kind, a, b = Kind(meta["kind"]), int(meta["a"]), int(meta["b"])
    tensors: list[TensorSpec] = []
    offsets: list[int] = []
    at = 0
    for name, entry in table.items():
        shape = entry["shape"]
        if not isinstance(shape, list) or entry["dtype"] not in DTYPE_BYTES:
            raise ValueError(name)
        spec = TensorSpec(name, str(entry["dtype"]), tuple(map(int, shape)))
        end = at + spec.nbytes
        if entry["data_offsets"] != [at, end] or min(spec.shape, default=0) < 0:
            raise ValueError(name)
        tensors.append(spec)
        offsets.append(data + at)
        at = end
    joined = bytes.fromhex(meta["xxh3_128"])
    if len(joined) != SUM_BYTES * len(tensors) or a < 0:
        raise ValueError("checksums")
    if kind is Kind.SEGMENT and (a >= b or not tensors or tensors[-1] != TensorSpec(IDS, "I32", (b - a,))):
        raise ValueError("ids")
    if kind is Kind.SNAPSHOT and a != b:
        raise ValueError("position")
    sums = tuple(joined[i : i + SUM_BYTES] for i in range(0, len(joined), SUM_BYTES))
    digests = (bytes.fromhex(meta["parent"]), bytes.fromhex(meta["end"]))
    fingerprint = bytes.fromhex(meta["fingerprint"])
    row = Row(kind, fingerprint, a, b, *digests, data + at, data, header_sum, meta["needs_snapshot"] == "1", 0.0, 0.0)
    return Header(row, tuple(tensors), tuple(offsets), sums)


def open_file(fs: FileSystem, path: Path) -> int:
    """Open a file of the store for reading. Raises FileRejected."""
    try:
        return fs.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise FileRejected("missing", path.name, "it is gone") from None
    except OSError as error:
        raise FileRejected("unreadable", path.name, error.strerror or "cannot be opened") from None
