"""The token log: digests against a second implementation, packing against the struct module."""

import struct
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qmlx_lsp.transcript.tokens import CELL_TOKENS, PackedIds, TokenLog, ids_from_bytes, ids_to_bytes

IDS = st.lists(st.integers(min_value=0, max_value=2**31 - 1), max_size=20)


def digest_by_hand(ids: list[int]) -> bytes:
    """Chained over cells of 256 ids; the rest, if there is any, is one shorter cell."""
    parent = bytes(16)
    for at in range(0, len(ids), 256):
        cell = ids[at : at + 256]
        parent = blake2b(parent + struct.pack(f"<{len(cell)}i", *cell), digest_size=16).digest()
    return parent


@pytest.mark.parametrize("length", [0, 1, 255, 256, 257, 511, 512, 513, 1000])
def test_digest(length):
    ids = [(n * 7919) % 151_936 for n in range(1000)]
    log = TokenLog(ids)
    assert log.digest(length) == digest_by_hand(ids[:length]) == TokenLog(ids[:length]).digest(length)


@given(st.lists(st.lists(st.integers(0, 300), max_size=400), max_size=6))
def test_digests_do_not_depend_on_how_the_ids_came(parts):
    log, ids = TokenLog(), []
    for part in parts:
        before = [log.digest(n) for n in range(0, len(log) + 1, 97)]
        log.extend(iter(part))
        ids += part
        assert [log.digest(n) for n in range(0, len(ids) - len(part) + 1, 97)] == before
    assert log.ids() == ids
    assert len(log) == len(ids)
    for n in {0, len(ids) // 2, len(ids)}:
        assert log.digest(n) == digest_by_hand(ids[:n])


def test_one_changed_id_changes_every_digest_behind_it():
    ids = list(range(600))
    other = [*ids[:300], 9999, *ids[301:]]
    one, two = TokenLog(ids), TokenLog(other)
    assert [n for n in range(601) if one.digest(n) == two.digest(n)] == list(range(301))


@pytest.mark.parametrize("position", [-1, 4])
def test_digest_outside_the_log(position):
    with pytest.raises(IndexError, match="outside a log of 3 tokens"):
        TokenLog([1, 2, 3]).digest(position)


def test_ids_are_a_copy():
    log = TokenLog([1, 2, 3])
    log.ids().append(4)
    assert (log.ids(), log.ids(1), log.ids(1, 2)) == ([1, 2, 3], [2, 3], [2])


@given(IDS)
def test_packed_ids(ids):
    assert ids_to_bytes(ids) == struct.pack(f"<{len(ids)}i", *ids)
    assert ids_from_bytes(ids_to_bytes(ids)) == tuple(ids)


def test_packed_ids_of_a_wrong_length():
    with pytest.raises(ValueError, match="multiple"):
        ids_from_bytes(b"\0" * 5)


def test_cells_are_256_tokens():
    assert CELL_TOKENS == 256  # part of the store's format


@given(IDS, IDS)
def test_packed_ids_are_read_like_a_tuple(one, other):
    packed, plain = PackedIds(struct.pack(f"<{len(one)}i", *one)), tuple(one)
    assert packed == plain
    assert plain == packed
    assert packed == PackedIds(ids_to_bytes(one))
    assert (packed == tuple(other), packed != PackedIds(ids_to_bytes(other))) == (one == other, one != other)
    assert hash(packed) == hash(plain)
    assert packed != list(one)  # nor is a tuple
    assert (len(packed), bool(packed), list(packed), repr(packed)) == (len(one), bool(one), one, repr(plain))
    for part in (slice(1, None), slice(-1), slice(None, None, 2), slice(None, None, -1), slice(5, 2), slice(-3, 99)):
        assert packed[part] == plain[part]
    assert [packed[at] for at in range(-len(one), len(one))] == one + one
    assert ids_to_bytes(packed) == ids_to_bytes(one)
    assert TokenLog(packed).ids() == one


def test_packed_ids_lead_to_the_same_log():
    ids = [(n * 7919) % 151_936 for n in range(1000)]
    log = TokenLog(ids[:3])
    for start, end in ((3, 200), (200, 700), (700, 1000)):
        log.extend(PackedIds(ids_to_bytes(ids[start:end])))
    assert log.ids() == ids
    assert log.digest(1000) == digest_by_hand(ids)


def test_bytes_that_are_no_ids_are_refused():
    with pytest.raises(ValueError, match="7 bytes are not a whole number of ids"):
        PackedIds(bytes(7))
    for outside in (2, -3):
        with pytest.raises(IndexError):
            PackedIds(bytes(8))[outside]
