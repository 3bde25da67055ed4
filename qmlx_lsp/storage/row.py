"""What the store knows of one file without opening it, and how files are named. Pure.

Invariant: a name is made of the file's identity and of its header's checksum, so a file that was swapped, renamed
or whose header was damaged contradicts its own name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

ID_BYTES = 16
SUM_BYTES = 16  # xxh3_128

_NAME = re.compile(rf"([0-9a-f]{{{2 * ID_BYTES}}})-([0-9a-f]{{{2 * SUM_BYTES}}})\.(seg|snap)")


class Kind(StrEnum):
    """What a file holds: the rows of a token range, or what belongs to exactly one position."""

    SEGMENT = "segment"
    SNAPSHOT = "snapshot"

    @property
    def suffix(self) -> str:
        return "seg" if self is Kind.SEGMENT else "snap"


@dataclass(frozen=True)  # no slots, for an identity is computed once: opening a store compares thousands
class Row:
    """One file of the store.

    A segment holds ids ``[a, b)``; ``parent`` and ``digest`` are the token log's digests at ``a`` and ``b``. A
    snapshot has ``a == b`` and ``parent == digest``. ``size`` is the whole file's, in bytes, ``data_offset``
    where its tensors begin. ``needs_snapshot``: the model cannot be restored from rows alone. Times are seconds.
    """

    kind: Kind
    fingerprint: bytes
    a: int
    b: int
    parent: bytes
    digest: bytes
    size: int
    data_offset: int
    header_sum: bytes
    needs_snapshot: bool
    last_used: float
    created: float

    @cached_property
    def id(self) -> bytes:
        return file_id(self.kind, self.fingerprint, self.a, self.b, self.parent, self.digest)

    @cached_property
    def name(self) -> str:
        return file_name(self.kind, self.id, self.header_sum)


# A Link before it is known to be worth making.
Raw = tuple[bytes, int, int, bytes, bytes, int]


class Link(NamedTuple):
    """The part of a Row that a lookup needs: cheap to make, because a lookup makes thousands."""

    id: bytes
    a: int
    b: int
    parent: bytes
    digest: bytes
    size: int


def file_id(kind: Kind, fingerprint: bytes, a: int, b: int, parent: bytes, digest: bytes) -> bytes:
    """Identity (16 bytes) of what a file is *meant* to hold: the same ids under the same model, the same identity."""
    numbers = a.to_bytes(8, "little") + b.to_bytes(8, "little")
    return blake2b(kind.encode() + fingerprint + parent + digest + numbers, digest_size=ID_BYTES).digest()


def file_name(kind: Kind, id_: bytes, header_sum: bytes) -> str:
    return f"{id_.hex()}-{header_sum.hex()}.{kind.suffix}"


# For ten thousand names at a time: whether a name is one of ours for a file of a kind.
NAMED_AS = {
    kind: re.compile(rf"[0-9a-f]{{{2 * ID_BYTES}}}-[0-9a-f]{{{2 * SUM_BYTES}}}\.{kind.suffix}") for kind in Kind
}


def parse_name(name: str) -> tuple[Kind, bytes, bytes] | None:
    """Kind, id and header checksum from a file's name; None when it is no name of ours."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    kind = Kind.SEGMENT if match[3] == "seg" else Kind.SNAPSHOT
    return kind, bytes.fromhex(match[1]), bytes.fromhex(match[2])
