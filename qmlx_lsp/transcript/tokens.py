"""The token log: ids the model was really fed or really produced, with digests that find stored prefixes.

The digest of a position is chained over cells of ``CELL_TOKENS`` ids, so that the digest of *any* position costs
one hash of at most one cell. It depends on the ids before that position alone: not on the model, and not on how
the ids came to be appended. A digest finds; the ids decide (they are compared on every hit).

Invariant: the log only grows. ``digest(n)`` of a position never changes.
Invariant: packed ids and a tuple of the same ids are equal, hash alike and lead to the same log.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from struct import Struct
from typing import overload

CELL_TOKENS = 256
DIGEST_BYTES = 16
_BIG_ENDIAN = sys.byteorder == "big"
_ONE = Struct("<i")


class PackedIds(Sequence[int]):
    """Ids in the form of ``ids_to_bytes``, read like a tuple and equal to one of the same ids. They take 4 bytes each
    instead of 36, and are unpacked only when somebody looks: of a long conversation hardly any ever are.

    Raises:
        ValueError: ``data`` is not a whole number of ids.
    """

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        if len(data) % 4:
            raise ValueError(f"{len(data)} bytes are not a whole number of ids")
        self.data = data

    def __len__(self) -> int:
        return len(self.data) // 4

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[int, ...]: ...
    def __getitem__(self, at: int | slice) -> int | tuple[int, ...]:
        # Whoever looks for something looks at many small parts: each costs what it holds.
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            return ids_from_bytes(self.data[4 * start : 4 * stop])[::step] if step > 0 else tuple(self)[at]
        if not -len(self) <= at < len(self):
            raise IndexError(f"there is no id {at} of {len(self)}")
        found: int = _ONE.unpack_from(self.data, 4 * (at % len(self)))[0]
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(ids_from_bytes(self.data))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedIds):
            return self.data == other.data
        return ids_from_bytes(self.data) == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(ids_from_bytes(self.data))  # as the tuple to which it is equal

    def __repr__(self) -> str:
        return repr(ids_from_bytes(self.data))


def ids_to_bytes(ids: Iterable[int]) -> bytes:
    """Ids as little-endian int32, the form in which they are hashed and stored."""
    if isinstance(ids, PackedIds):
        return ids.data
    return _little_endian(_packed(ids)).tobytes()


def ids_from_bytes(data: bytes | memoryview) -> tuple[int, ...]:
    """The inverse of ``ids_to_bytes``. Raises ValueError when ``data`` is not a whole number of ids."""
    unpacked = array("i")
    unpacked.frombytes(data)
    return tuple(_little_endian(unpacked))


def _packed(ids: Iterable[int]) -> array[int]:
    packed = array("i", ids)
    if packed.itemsize != 4:  # pragma: no cover - no supported platform has another int
        raise AssertionError("array('i') is not 32 bits wide here")
    return packed


def _little_endian(values: array[int]) -> array[int]:
    if _BIG_ENDIAN:  # pragma: no cover - no supported platform is
        values = array("i", values)
        values.byteswap()
    return values


class TokenLog:
    """Append-only list of token ids with chained digests."""

    def __init__(self, ids: Iterable[int] = ()) -> None:
        self._ids = _packed(())  # 4 bytes an id, and a slice of it is hashed without a look at each id
        self._cells: list[bytes] = [b"\0" * DIGEST_BYTES]  # _cells[k]: digest of the first k whole cells
        self.extend(ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __repr__(self) -> str:
        return f"<TokenLog {len(self)} tokens>"

    def ids(self, start: int = 0, end: int | None = None) -> list[int]:
        """A copy of ``[start, end)``; ``end`` defaults to the log's length."""
        return self._ids[start:end].tolist()

    def extend(self, ids: Iterable[int]) -> None:
        if isinstance(ids, PackedIds) and not _BIG_ENDIAN:
            self._ids.frombytes(ids.data)
        else:
            self._ids.extend(ids)
        while (done := len(self._cells) - 1) < len(self._ids) // CELL_TOKENS:
            cell = self._ids[done * CELL_TOKENS : (done + 1) * CELL_TOKENS]
            self._cells.append(_chain(self._cells[done], cell))

    def digest(self, position: int) -> bytes:
        """Digest (16 bytes) of the first ``position`` ids.

        Raises:
            IndexError: ``position`` is outside ``0 <= position <= len(log)``.
        """
        if not 0 <= position <= len(self._ids):
            raise IndexError(f"position {position} is outside a log of {len(self._ids)} tokens")
        whole, rest = divmod(position, CELL_TOKENS)
        if not rest:
            return self._cells[whole]
        return _chain(self._cells[whole], self._ids[whole * CELL_TOKENS : position])


def _chain(parent: bytes, ids: array[int]) -> bytes:
    if _BIG_ENDIAN:  # pragma: no cover - no supported platform is
        ids = _little_endian(ids)
    return blake2b(parent + ids.tobytes(), digest_size=DIGEST_BYTES).digest()
