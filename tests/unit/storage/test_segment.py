"""The file format: a valid safetensors file, aligned, ordered, self-describing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import safetensors

from qmlx_lsp.storage.files import OsFiles, publish
from qmlx_lsp.storage.row import Kind, parse_name
from qmlx_lsp.storage.segment import (
    ALIGN_BYTES,
    Encoded,
    FileRejected,
    encode_segment,
    encode_snapshot,
    parse_header,
    read_header,
)
from qmlx_lsp.transcript.tokens import ids_from_bytes
from tests.support.toy_state import Toy, log_of

TOY = Toy(hybrid=True)
LOG = log_of(40)


def _segment(a: int = 10, b: int = 40) -> Encoded:
    rows = TOY.copy(LOG, a, b).rows
    digests = (LOG.digest(a), LOG.digest(b))
    return encode_segment(TOY.fingerprint, (a, b), digests, rows, LOG.ids(a, b), needs_snapshot=True, now=5.0)


def test_a_segment_is_a_safetensors_file() -> None:
    data = b"".join(_segment().parts)
    tensors = safetensors.deserialize(data)
    assert {name: (t["dtype"], list(t["shape"])) for name, t in tensors} == {
        "0.k": ("BF16", [1, 2, 30, 8]), "0.v": ("F32", [1, 2, 30, 8]), "ids": ("I32", [30]),
    }  # fmt: skip
    by_name = {name: bytes(t["data"]) for name, t in tensors}
    assert list(ids_from_bytes(by_name["ids"])) == LOG.ids(10, 40)
    assert by_name["0.k"] == TOY.copy(LOG, 10, 40).rows[0].data


def test_data_begins_on_a_page_in_the_models_order() -> None:
    encoded = _segment()
    assert encoded.row.data_offset % ALIGN_BYTES == 0
    assert len(encoded.parts[0]) == encoded.row.data_offset
    assert sum(map(len, encoded.parts)) == encoded.row.size


def test_a_header_reads_back_as_it_was_written(tmp_path: Path) -> None:
    encoded = _segment()
    publish(OsFiles(), tmp_path, encoded.row.name, encoded.parts)
    fd = os.open(tmp_path / encoded.row.name, os.O_RDONLY)
    header = read_header(OsFiles(), fd, encoded.row.name)
    os.close(fd)
    assert header.row.id == encoded.row.id
    assert (header.row.a, header.row.b, header.row.size) == (10, 40, encoded.row.size)
    assert (header.row.parent, header.row.digest) == (LOG.digest(10), LOG.digest(40))
    assert [spec.name for spec in header.tensors] == ["0.k", "0.v", "ids"]
    assert header.offsets[0] == encoded.row.data_offset


def test_identity_is_model_and_tokens() -> None:
    rows = (_segment().row, _segment(0, 40).row, _segment(10, 39).row)
    snapshot = encode_snapshot(TOY.fingerprint, 40, LOG.digest(40), TOY.snapshot(LOG, 40), 5.0).row
    other = encode_snapshot(b"x" * 32, 40, LOG.digest(40), TOY.snapshot(LOG, 40), 5.0).row
    assert len({row.id for row in (*rows, snapshot, other)}) == 5
    assert _segment().row.name == _segment().row.name
    assert parse_name(snapshot.name) == (Kind.SNAPSHOT, snapshot.id, snapshot.header_sum)


@pytest.mark.parametrize("name", ["", "x.seg", "0" * 32 + "-" + "0" * 32, "0" * 32 + "-" + "0" * 32 + ".seg.tmp"])
def test_other_names_are_not_ours(name: str) -> None:
    assert parse_name(name) is None


def test_a_header_of_another_format_is_foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qmlx_lsp.storage.segment.FORMAT", "qmlx-state-0")
    encoded = _segment()
    monkeypatch.undo()
    publish(OsFiles(), tmp_path, encoded.row.name, encoded.parts)
    fd = os.open(tmp_path / encoded.row.name, os.O_RDONLY)
    with pytest.raises(FileRejected) as error:
        read_header(OsFiles(), fd, encoded.row.name)
    os.close(fd)
    assert error.value.reason == "foreign"


def test_no_byte_of_a_header_can_change(tmp_path: Path) -> None:
    encoded = _segment()
    block = bytearray(encoded.parts[0])
    assert parse_header(bytes(block), encoded.row.name).row.id == encoded.row.id
    for at in (*range(1_000), *range(1_000, len(block), 4_001)):
        for bit in (1, 64):
            block[at] ^= bit
            with pytest.raises(FileRejected):
                parse_header(bytes(block), encoded.row.name)
            block[at] ^= bit
